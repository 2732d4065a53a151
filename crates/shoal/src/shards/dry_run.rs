//! `plan`: what would move and why, through the planner of the core. Nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shoal_sharding::algorithm::{Algorithm, Sticky};
use shoal_sharding::{
    Facts, Guards, Identity, LeaseObject, LeaseRecord, Moment, NodeStatus, Rebalancing, Registry, ReplicaId,
    Settings, ShardMap, Situation, Timers, Transition, plan,
};

use super::snapshot::Snapshot;
use super::text::{count, table, tame};

/// What would happen.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// What should be known before reading on.
    pub notes: Vec<String>,
    /// In the order of their slots.
    pub moves: Vec<Move>,
    /// How many slots change hands.
    pub moved: u32,
    /// Of how many.
    pub slots: u32,
    /// Slots of each replica, now and afterwards.
    pub balance: BTreeMap<String, (u32, u32)>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// `FIRST-LAST`
    pub slots: String,
    /// What is done: `prepare` begins a handover, `assign` is at once.
    pub step: &'static str,
    /// Who has them.
    pub from: Option<String>,
    /// Who gets them.
    pub to: Option<String>,
    /// Why.
    pub why: String,
}

/// Suppositions for a dry run.
#[derive(Clone, Debug, Default)]
pub struct Suppose {
    /// These replicas are drained.
    pub drained: Vec<String>,
    /// So many more join.
    pub joined: u32,
}

/// What the coordinator would do if it looked now, without the limit on moves at once.
pub fn dry_run(snapshot: &Snapshot, suppose: &Suppose) -> Result<DryRun, String> {
    let map = snapshot.sound_map()?;
    let (mut members, now) = snapshot.members();
    let mut spec = snapshot.spec.clone();
    spec.cordoned.extend(suppose.drained.iter().cloned());
    for number in 1..=suppose.joined {
        let lease = LeaseObject {
            uid: 0,
            resource_version: 1,
            record: newcomer(snapshot, map, number),
            genuine: true,
        };
        members.saw(&Arc::new(lease), map.longest_lease, now);
    }
    let mut result = DryRun { slots: map.identity.slots.get(), ..DryRun::default() };
    let algorithm: Arc<dyn Algorithm> = match Registry::default().get(&map.identity.algorithm) {
        Ok(algorithm) => algorithm,
        Err(_) => {
            result.notes.push(format!(
                "the algorithm {} is known to its controller only; this shows what sticky would do",
                map.identity.algorithm
            ));
            Arc::new(Sticky)
        }
    };
    let settings = settings(&map.identity);
    let situation = Situation {
        map,
        facts: Facts {
            members: &members,
            waited_after_repair: false,
            timers: &settings.timers,
            guards: Guards::default(),
            now,
        },
        settings: &settings,
        algorithm: &*algorithm,
        spec: &spec,
        balance: true,
        phase_since: &|_| Moment::NEVER,
    };
    let planned = plan(&situation);
    if let Some(complaint) = &planned.complaint {
        result.notes.push(format!("{complaint}; sticky stands in"));
    }
    result.balance = map.counts().iter().map(|(id, n)| (id.to_string(), (*n, *n))).collect();
    for node in members.nodes(Some(map), now) {
        result.balance.entry(node.id.to_string()).or_default();
    }
    for (transition, reason) in &planned.steps {
        result.add(map, transition, &reason.to_string());
    }
    Ok(result)
}

/// The settings that matter here; the rest is the replicas' own business.
fn settings(identity: &Arc<Identity>) -> Settings {
    Settings {
        identity: identity.clone(),
        name: "plan".into(),
        address: "".into(),
        revision: "".into(),
        weight: 100,
        timers: Timers::default(),
        rebalancing: Rebalancing { budget: identity.slots.get(), ..Rebalancing::default() },
    }
}

/// One more of those that are there: a new revision would begin a rolling update.
fn newcomer(snapshot: &Snapshot, map: &ShardMap, number: u32) -> LeaseRecord {
    let id = ReplicaId::new(format!("new-{number}"));
    let live = snapshot.leases.iter().rev().find(|lease| !lease.object.is_tombstone());
    LeaseRecord {
        name: id.as_str().into(),
        revision: live.map(|lease| lease.object.record.revision.clone()).unwrap_or_default(),
        status: NodeStatus::Healthy,
        fingerprint: map.fingerprint(),
        weight: 100,
        revoked: None,
        ..LeaseRecord::tombstone_of(&id, &id, Duration::from_secs(60))
    }
}

impl DryRun {
    fn add(&mut self, map: &ShardMap, transition: &Transition, why: &str) {
        let slots = transition.slots();
        for run in map.runs() {
            let Some(part) = run.slots.common(slots) else { continue };
            let from = run.assignment.owner.as_ref().map(ReplicaId::to_string);
            let next = run.assignment.next.as_ref();
            let to = match transition {
                Transition::Assign { to, .. } => to.as_ref(),
                Transition::Prepare { next, .. } | Transition::Retarget { next, .. } => Some(next),
                Transition::Drain { .. } | Transition::Complete { .. } => next,
                Transition::Cancel { .. } => run.assignment.owner.as_ref(),
                Transition::Recover { .. } => None,
            };
            let to = to.map(ReplicaId::to_string);
            if from != to {
                self.moved += part.len();
                let change = [(&from, false), (&to, true)];
                for (id, gains) in change {
                    let Some(after) =
                        id.as_ref().map(|id| &mut self.balance.entry(id.clone()).or_default().1)
                    else {
                        continue;
                    };
                    *after = if gains { *after + part.len() } else { after.saturating_sub(part.len()) };
                }
            }
            self.moves.push(Move {
                slots: part.to_string(),
                step: transition.name(),
                from,
                to,
                why: why.to_owned(),
            });
        }
    }

    /// As plain text.
    pub fn text(&self) -> String {
        let mut text: String = self.notes.iter().map(|note| format!("note: {}\n", tame(note))).collect();
        if self.moves.is_empty() {
            text += "nothing would move: every slot is where it should be\n";
            return text;
        }
        let name = |of: &Option<String>| of.as_deref().map_or_else(|| "-".to_owned(), tame);
        let rows: Vec<Vec<String>> = self
            .moves
            .iter()
            .map(|m| vec![m.slots.clone(), name(&m.from), name(&m.to), m.step.to_owned(), tame(&m.why)])
            .collect();
        text += &table(&["SLOTS", "FROM", "TO", "STEP", "WHY"], &rows);
        let percent = f64::from(self.moved) * 100.0 / f64::from(self.slots.max(1));
        text += &format!(
            "\n{} of {} would change hands ({percent:.1}%); nothing was changed\n\n",
            self.moved,
            count(self.slots as usize, "slot")
        );
        let rows: Vec<Vec<String>> = self
            .balance
            .iter()
            .map(|(id, (now, after))| {
                let change = i64::from(*after) - i64::from(*now);
                let change = if change == 0 { String::new() } else { format!("{change:+}") };
                vec![tame(id), now.to_string(), after.to_string(), change]
            })
            .collect();
        text += &table(&["REPLICA", ">NOW", ">AFTER", ">CHANGE"], &rows);
        text
    }
}
