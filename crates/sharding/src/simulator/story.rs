//! Actions in words, for traces.

use crate::replica::Action;
use crate::simulator::world::World;

impl World {
    pub(super) fn say_action(&mut self, node: usize, life: u32, action: &Action) {
        let words = match action {
            Action::RenewLease { resource_version, record, .. } => format!(
                "renews version {resource_version} as {:?} for {:?}, seen {}, warm {:?}, released {:?}",
                record.status, record.duration, record.seen, record.warm, record.released
            ),
            Action::CreateLease(record) => format!("creates its Lease for {:?}", record.duration),
            Action::RevokeLease { resource_version, record, .. } => {
                format!("revokes version {resource_version} of {}", record.replica)
            }
            Action::BuryLease(record) => format!("buries {}", record.replica),
            Action::WriteMap { resource_version, map } => format!("proposes on {resource_version}: {map}"),
            Action::CreateMap => "creates an empty record".to_owned(),
            Action::Restart(why) => format!("ends: {why}"),
            Action::List | Action::ReadMap | Action::ReadLease(_) | Action::Report(_) | Action::Notify(_) => {
                return;
            }
            other => format!("{other:?}"),
        };
        let (now, deadline) = {
            let n = &self.nodes[node];
            let deadline = n.replica.as_ref().map(crate::replica::Replica::deadline).unwrap_or_default();
            (n.clock(self.now), deadline)
        };
        self.say(|| format!("r{node}-{life} (clock {now}, may work until {deadline}) {words}"));
    }
}
