//! Records that cannot be obeyed: lost, edited by hand, set back. Nobody gets a slot until everybody has let go.

use std::sync::Arc;

use crate::identity::Identity;
use crate::map::{Assignment, Defect, Observed, Phase, Run, ShardMap};
use crate::members::Members;

/// The record that replaces a broken one. Every slot is nobody's and its epoch is higher than any that ever was;
/// replicas let go of what they have and say so in their Leases, only then [`super::Transition::Recover`] is possible.
///
/// Records may have come and gone that nobody who is left has seen, so what was seen is no floor. The resourceVersion of the object
/// to be replaced is one: epochs and versions rise by at most one with a write and resourceVersions by at least one, so that no record
/// written before the object has either above `floor`, and the write succeeds only while the object is the same.
pub fn repair(known: &ShardMap, floor: u64, members: &Members) -> ShardMap {
    let (seen, epoch) = members.highest();
    let version = known.version.max(seen).max(floor) + 1;
    let epoch = known.highest_epoch().max(epoch).max(floor) + 1;
    let assignment = Assignment { owner: None, epoch, phase: Phase::Repairing, next: None };
    let runs = vec![Run { slots: known.identity.slots.all(), assignment }];
    ShardMap { version, repaired: version, runs, ..known.clone() }
}

/// Another number of slots, key function or algorithm: only when nobody can be at work any more.
pub fn migrate(old: &ShardMap, identity: &Arc<Identity>, members: &Members) -> Result<ShardMap, String> {
    if let Some((id, _)) = members.iter().find(|(_, member)| !member.revoked) {
        return Err(format!(
            "{id} still runs with the old settings ({}): scale the controller to 0, wait until its Lease has ended, \
             then migrate",
            old.identity.difference(identity).unwrap_or_else(|| "no difference".to_owned())
        ));
    }
    if let Some(owner) =
        old.runs.iter().filter_map(|run| run.assignment.owner.as_ref()).find(|o| !members.is_revoked(o))
    {
        return Err(format!(
            "{owner} owns slots and has no Lease that ended: wait until one of the replicas took over"
        ));
    }
    let epoch = old.highest_epoch().max(members.highest().1) + 1;
    let assignment = Assignment { owner: None, epoch, phase: Phase::Unowned, next: None };
    let runs = vec![Run { slots: identity.slots.all(), assignment }];
    Ok(ShardMap {
        identity: identity.clone(),
        fingerprint: identity.fingerprint(),
        version: old.version + 1,
        runs,
        ..old.clone()
    })
}

impl ShardMap {
    /// What is wrong with `newer`, which replaced this record on the server, if it was not made by the rules.
    pub fn successor_defect(&self, newer: &ShardMap) -> Option<Defect> {
        if newer.version < self.version {
            return Some(Defect::SetBack { from: self.version, to: newer.version });
        }
        let forked = newer.version == self.version && newer.runs != self.runs;
        forked.then_some(Defect::SetBack { from: self.version, to: newer.version })
    }
}

impl Observed {
    /// A record made by the rules.
    pub fn valid(map: ShardMap) -> Observed {
        Observed::Valid(Arc::new(map))
    }
}

#[cfg(any(test, feature = "simulator"))]
impl ShardMap {
    /// What somebody could do with an editor: give slots away, lower an epoch, lose a slot's owner.
    pub(crate) fn edited_by_hand(&self, choice: u64, owner: &crate::identity::ReplicaId) -> ShardMap {
        let mut map = self.clone();
        let at = (choice >> 8) as usize % map.runs.len();
        let assignment = &mut map.runs[at].assignment;
        match choice % 3 {
            0 => assignment.epoch = assignment.epoch.saturating_sub(1),
            1 => *assignment = Assignment { owner: None, epoch: 0, phase: Phase::Unowned, next: None },
            _ => {
                let epoch = assignment.epoch + 1;
                *assignment =
                    Assignment { owner: Some(owner.clone()), epoch, phase: Phase::Owned, next: None };
            }
        }
        map.version += choice >> 16 & 1;
        map
    }
}
