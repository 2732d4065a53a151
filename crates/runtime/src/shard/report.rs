//! What people are told: log entries, Events on the ShardMap, figures, and the alarm when slots are nobody's for too long.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use shoal_sharding::{Fate, Moment, NodeInfo, NodeStatus, Reason, ReplicaId, Report, ShardMap, ShardMapSpec};

use super::crd;
use super::driver::Life;
use super::metrics::{Status, Why};
use super::moves::{Cause, Moves};
use super::record::SeenMap;
use crate::events::Severity;
use crate::logging;

/// What was told before.
#[derive(Default)]
pub(super) struct Reporter {
    map_uid: String,
    map_version: u64,
    alarmed: bool,
    nodes: BTreeMap<ReplicaId, NodeStatus>,
    spec: Arc<ShardMapSpec>,
    moves: Moves,
    /// Since when there are slots that nobody works on.
    unattended_since: Option<Moment>,
}

impl Reporter {
    pub(super) fn saw(&mut self, map: &SeenMap) {
        if map.resource_version > self.map_version {
            self.map_version = map.resource_version;
            self.map_uid.clone_from(&map.uid);
            self.alarmed = map.alarmed;
            self.spec = map.spec.clone();
        }
    }

    /// The last word on replicas whose Leases have ended: between two looks one can die and be revoked, or leave.
    fn who_is_gone(&mut self, nodes: &[NodeInfo], fate: impl Fn(&ReplicaId) -> Fate) {
        self.nodes.retain(|id, told| {
            if nodes.iter().any(|node| node.id == *id) {
                return true;
            }
            let last = if fate(id) == Fate::Left { NodeStatus::Leaving } else { NodeStatus::Unhealthy };
            if *told != last {
                logging::node_health(id.as_str(), status_word(last));
            }
            false
        });
    }
}

/// The word for a reason in metrics.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Unowned => "unowned",
        Reason::OwnerEnded => "owner-ended",
        Reason::OwnerGoes => "owner-goes",
        Reason::Balance => "balance",
        Reason::Pinned => "pinned",
        Reason::NextIsWarm => "next-is-warm",
        Reason::Released => "released",
        Reason::NextIsLost => "next-is-lost",
        Reason::Confirmed => "confirmed",
    }
}

fn status_word(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Joining => "Joining",
        NodeStatus::Healthy => "Healthy",
        NodeStatus::Unhealthy => "Unhealthy",
        NodeStatus::Leaving => "Leaving",
    }
}

impl Life {
    /// Writes down which slots changed hands.
    pub(super) fn map_changed(&mut self, now: &ShardMap) {
        let (mut old, mut new, mut came) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for run in now.runs() {
            let owner = run.assignment.owner.as_ref();
            for slot in run.slots.slots() {
                let former = self.map.as_ref().and_then(|before| before.get(slot)?.owner.as_ref());
                if former != owner {
                    former.map(|former| old.insert(slot, former.to_string()));
                    owner.map(|owner| new.insert(slot, owner.to_string()));
                    if let Some(former) = former.filter(|_| owner == Some(&self.id)) {
                        came.entry(former.clone()).or_insert_with(Vec::new).push(slot);
                    }
                }
            }
        }
        if !old.is_empty() || !new.is_empty() {
            logging::shard_change(&old, &new);
        }
        self.moves_came(&came);
    }

    /// Slots came from replicas that gave them away in order. Takeovers are told by who plans them.
    fn moves_came(&mut self, came: &BTreeMap<ReplicaId, Vec<u32>>) {
        if came.is_empty() {
            return;
        }
        let replica = self.shared.replica.lock();
        let Some(replica) = replica.as_ref() else { return };
        let nodes = replica.nodes(self.shared.holding.now());
        let node = |id: &ReplicaId| nodes.iter().find(|node| node.id == *id);
        for (from, slots) in came {
            for slot in slots {
                let cause = match (replica.fate(from), node(from)) {
                    (Fate::Left, _) => Cause::Shutdown,
                    (Fate::Open, Some(giver)) => Cause::of(&self.reporter.spec, giver, node(&self.id), *slot),
                    _ => continue,
                };
                self.reporter.moves.add(from, cause, 1);
            }
        }
    }

    /// Tells what the core reports. How many slots a new move is about.
    pub(super) fn report(&self, report: &Report) -> u32 {
        match report {
            Report::Proposed { slots, reason } => {
                self.shared
                    .metrics
                    .moves
                    .get_or_create(&Why { reason: word(*reason) })
                    .inc_by(u64::from(*slots));
                tracing::debug!(slots, %reason, "slots move on");
                let begins = matches!(
                    reason,
                    Reason::Unowned
                        | Reason::OwnerEnded
                        | Reason::OwnerGoes
                        | Reason::Balance
                        | Reason::Pinned
                );
                if *reason == Reason::OwnerEnded {
                    let message = format!("{slots} slots get another owner: {reason}");
                    self.tell(Severity::Warning, "Takeover", &message);
                }
                if begins { *slots } else { 0 }
            }
            Report::Repairing(why) => {
                tracing::error!(why, "the ShardMap is being repaired");
                self.tell(Severity::Warning, "Repairing", why);
                0
            }
            Report::Algorithm(why) => {
                tracing::error!(why, "the placement algorithm cannot be used; sticky stands in");
                self.tell(Severity::Warning, "BadAlgorithm", why);
                0
            }
            Report::Revoked(id) => {
                tracing::warn!(node_id = %id, "the Lease of a silent replica was revoked");
                self.tell(
                    Severity::Warning,
                    "ReplicaLost",
                    &format!("the Lease of {id} ran out and was revoked"),
                );
                0
            }
        }
    }

    fn tell(&self, severity: Severity, reason: &str, message: &str) {
        let resource = crd::resource();
        let regarding = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: Some(self.shared.records.namespace.clone()),
            name: Some(self.shared.records.group.clone()),
            uid: Some(self.reporter.map_uid.clone()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        };
        // Longer notes are refused.
        self.shared.recorder.record(
            regarding,
            severity,
            reason,
            message.chars().take(1000).collect::<String>(),
        );
    }

    /// Looks at the replicas and at slots that nobody works on.
    pub(super) fn look_around(&mut self, now: Moment) {
        let (nodes, map) = {
            let replica = self.shared.replica.lock();
            let Some(replica) = replica.as_ref() else { return };
            let nodes = replica.nodes(now);
            self.reporter.who_is_gone(&nodes, |id| replica.fate(id));
            (nodes, replica.map().cloned())
        };
        let metrics = &self.shared.metrics;
        metrics.nodes.set(i64::try_from(nodes.len()).unwrap_or(i64::MAX));
        for status in [NodeStatus::Joining, NodeStatus::Healthy, NodeStatus::Unhealthy, NodeStatus::Leaving] {
            let count = nodes.iter().filter(|node| node.status == status).count();
            let label = Status { status: status_word(status) };
            metrics.health.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for node in &nodes {
            if self.reporter.nodes.insert(node.id.clone(), node.status) != Some(node.status) {
                logging::node_health(node.id.as_str(), status_word(node.status));
            }
        }
        let same = |a: &NodeInfo, b: &NodeInfo| (&a.id, a.status, &a.shards) == (&b.id, b.status, &b.shards);
        self.shared.nodes.send_if_modified(|known| {
            let news = known.len() != nodes.len() || !known.iter().zip(&nodes).all(|(a, b)| same(a, b));
            if news {
                known.clone_from(&nodes);
            }
            news
        });
        let Some(map) = map else { return };
        let owns = nodes.iter().any(|node| node.id == self.id && !node.shards.is_empty());
        for message in self.reporter.moves.over(&self.id, owns) {
            self.tell(Severity::Normal, "Moved", &message);
        }
        let lives =
            |id: &ReplicaId| nodes.iter().any(|node| node.id == *id && node.status != NodeStatus::Unhealthy);
        let orphans: u32 =
            map.counts().into_iter().filter(|(id, _)| !lives(id)).map(|(_, slots)| slots).sum();
        let unattended = map.unowned() + orphans;
        let since = (unattended > 0).then(|| *self.reporter.unattended_since.get_or_insert(now));
        self.reporter.unattended_since = since;
        let seconds = since.map_or(0.0, |since| now.since(since).as_secs_f64());
        metrics.unowned.set(i64::from(unattended));
        metrics.unowned_seconds.set(seconds);
        let first = nodes.iter().find(|node| node.status == NodeStatus::Healthy);
        if first.is_some_and(|first| first.id == self.id) {
            self.alarm(unattended, seconds);
        }
    }

    /// Raises or lowers the alarm on the ShardMap. One replica does it; a conflict is tried again with the next look.
    fn alarm(&mut self, unattended: u32, seconds: f64) {
        let timers = &self.settings.timers;
        let bound = timers.patience(timers.lease_duration) + timers.retry_period * 2;
        let raise = unattended > 0 && seconds > bound.as_secs_f64();
        if raise == self.reporter.alarmed || (unattended > 0 && !raise) || self.reporter.map_version == 0 {
            return;
        }
        let (status, reason, message) = if raise {
            let message = format!(
                "nobody has worked on {unattended} slots for {seconds:.0} s, more than a takeover takes"
            );
            tracing::error!(unowned = unattended, seconds, "slots are nobody's for too long");
            self.tell(Severity::Warning, "SlotsUnowned", &message);
            ("True", "TakeoverOverdue", message)
        } else {
            ("False", "AllOwned", "somebody works on every slot".to_owned())
        };
        let at = self.shared.clock.now().to_string();
        let conditions: Value = json!([{
            "type": "SlotsUnowned", "status": status, "reason": reason, "message": message, "lastTransitionTime": at,
        }]);
        let (records, version) = (self.shared.records.clone(), self.reporter.map_version);
        let limit = timers.retry_period;
        self.tasks.spawn(async move {
            records.write_conditions(conditions, version, limit).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use shoal_testkit::CapturedLog;

    use super::*;
    use crate::config::Logging;

    #[test]
    fn who_vanishes_between_two_looks_is_logged_as_lost_or_as_having_left() {
        let log = CapturedLog::new();
        let clock = shoal_objects::Clock::system();
        let (subscriber, _level) =
            logging::subscriber(&Logging::default(), clock, log.writer(), Vec::new()).unwrap();
        let mut reporter = Reporter::default();
        for (name, status) in [
            ("crashed", NodeStatus::Healthy),
            ("left", NodeStatus::Healthy),
            ("seen-unwell", NodeStatus::Unhealthy),
            ("seen-leaving", NodeStatus::Leaving),
        ] {
            reporter.nodes.insert(name.into(), status);
        }
        let leaves = |id: &ReplicaId| ["left", "seen-leaving"].contains(&id.as_str());
        let fate = |id: &ReplicaId| if leaves(id) { Fate::Left } else { Fate::Lost };
        tracing::subscriber::with_default(subscriber, || reporter.who_is_gone(&[], fate));
        let lines = log.lines();
        let told: Vec<_> = lines.iter().map(|line| (&line["node_id"], &line["status"])).collect();
        assert_eq!(told, [(&json!("crashed"), &json!("Unhealthy")), (&json!("left"), &json!("Leaving"))]);
        assert!(reporter.nodes.is_empty());
    }
}
