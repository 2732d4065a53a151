//! What should move next and why: one round of the coordinator, as a pure function of what it sees.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, BadAlgorithm, NOBODY, Node, Request, Sticky, place, wants_to_move};
use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::lease::NodeStatus;
use crate::map::{Assignment, Facts, Phase, Run, ShardMap, Transition};
use crate::members::Members;
use crate::settings::Settings;
use crate::slots::{Slot, SlotRange};
use crate::time::Moment;

/// What people ask for: `spec` of a ShardMap object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShardMapSpec {
    /// Slots that belong to one replica, by name or id.
    pub pins: Vec<Pin>,
    /// Replicas that shall have no slots, by name or id.
    pub cordoned: Vec<String>,
}

/// Slots that belong to one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// `FIRST-LAST`
    pub slots: String,
    /// Name or id.
    pub replica: String,
}

/// Why something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Nobody has the slots.
    Unowned,
    /// The owner's Lease was revoked.
    OwnerEnded,
    /// The owner shuts down, is unwell, or shall have none.
    OwnerGoes,
    /// Others have less, or less to do.
    Balance,
    /// A person said so.
    Pinned,
    /// The next owner is ready.
    NextIsWarm,
    /// The owner has let go.
    Released,
    /// The next owner is gone or took too long.
    NextIsLost,
    /// Everybody has confirmed the repair.
    Confirmed,
}

/// One round: what to change and why.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order in which they are applied.
    pub steps: Vec<(Transition, Reason)>,
    /// The algorithm was not usable and `sticky` stood in for it.
    pub complaint: Option<BadAlgorithm>,
}

/// So many looks at the balance without any move, and the group is steady.
const STEADY_LOOKS: u32 = 10;

/// What a plan is made from.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The record.
    pub map: &'a ShardMap,
    /// Leases and clock.
    pub facts: Facts<'a>,
    /// Settings of this replica.
    pub settings: &'a Settings,
    /// From slots to replicas.
    pub algorithm: &'a dyn Algorithm,
    /// What people ask for.
    pub spec: &'a ShardMapSpec,
    /// Whether it is time to look at the balance.
    pub balance: bool,
    /// Since when each slot is in its phase.
    pub phase_since: &'a dyn Fn(Slot) -> Moment,
}

/// Everything that can be done now.
pub fn plan(situation: &Situation<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut placement = situation.balance;
    for run in situation.map.runs() {
        placement |= situation.progress(run, &mut plan.steps);
    }
    if placement {
        situation.place(&mut plan);
    }
    plan
}

impl Plan {
    /// Only the changes.
    pub fn transitions(&self) -> Vec<Transition> {
        self.steps.iter().map(|(transition, _)| transition.clone()).collect()
    }
}

impl<'a> Situation<'a> {
    fn members(&self) -> &'a Members {
        self.facts.members
    }

    fn guards(&self) -> Guards {
        self.facts.guards
    }

    /// Whether a replica can be given slots.
    fn takes(&self, id: &ReplicaId) -> bool {
        self.members().takes_slots(
            id,
            self.map.fingerprint(),
            &self.settings.timers,
            self.guards(),
            self.facts.now,
        ) && !self.is_cordoned(id)
    }

    fn is_cordoned(&self, id: &ReplicaId) -> bool {
        self.spec.cordoned.iter().any(|name| self.is_called(id, name))
    }

    fn is_called(&self, id: &ReplicaId, name: &str) -> bool {
        id.as_str() == name || self.members().record(id).is_some_and(|record| &*record.name == name)
    }

    fn has_ended(&self, id: &ReplicaId) -> bool {
        self.facts.has_ended(id)
    }

    /// Moves under way that can go on, or must be given up. True if slots need a new owner.
    fn progress(&self, run: &Run, steps: &mut Vec<(Transition, Reason)>) -> bool {
        let Run { slots, assignment } = run;
        let Assignment { owner, epoch, phase, next } = assignment;
        let slots = *slots;
        if owner.as_ref().is_some_and(|owner| self.has_ended(owner)) {
            return true;
        }
        let next_lost = || next.as_ref().is_some_and(|next| !self.takes(next));
        let acknowledged =
            |list: &[(SlotRange, u64)], steps: &mut Vec<_>, make: fn(SlotRange) -> Transition, why| {
                let there =
                    list.iter().filter(|(_, at)| at == epoch).filter_map(|(range, _)| range.common(slots));
                let before = steps.len();
                steps.extend(there.map(|slots| (make(slots), why)));
                steps.len() > before
            };
        match (phase, owner, next) {
            (Phase::Unowned, ..) => true,
            (Phase::Repairing, ..) => {
                let confirmed = self.facts.waited_after_repair && self.members().all_obey(self.map.repaired);
                if confirmed || !self.guards().on(Guard::RepairWaits) {
                    steps.push((Transition::Recover { slots }, Reason::Confirmed));
                }
                false
            }
            (Phase::Preparing, _, Some(next)) => {
                let warm =
                    self.members().record(next).map(|record| record.warm.as_slice()).unwrap_or_default();
                let late = self.facts.now.since((self.phase_since)(slots.start))
                    >= self.settings.timers.warm_timeout;
                let drain = |slots| Transition::Drain { slots };
                let ready = !next_lost() && acknowledged(warm, steps, drain, Reason::NextIsWarm);
                if !ready && (next_lost() || late) {
                    steps.push((Transition::Cancel { slots }, Reason::NextIsLost));
                }
                false
            }
            (Phase::Draining, Some(owner), Some(_)) => {
                if next_lost() {
                    // The owner goes on if it can; else somebody else has to be found.
                    if self.takes(owner) {
                        steps.push((Transition::Cancel { slots }, Reason::NextIsLost));
                        return false;
                    }
                    return true;
                }
                if self.guards().on(Guard::ReleaseFirst) {
                    let record = self.members().record(owner);
                    let released = record.map(|record| record.released.as_slice()).unwrap_or_default();
                    acknowledged(released, steps, |slots| Transition::Complete { slots }, Reason::Released);
                } else {
                    steps.push((Transition::Complete { slots }, Reason::Released));
                }
                false
            }
            (Phase::Owned, Some(owner), _) => !self.takes(owner) && self.is_going(owner),
            _ => false,
        }
    }

    /// Alive, but not to keep its slots.
    fn is_going(&self, id: &ReplicaId) -> bool {
        let Some(member) = self.members().get(id) else { return false };
        let alive = !member.revoked
            && !member.absent
            && self.facts.now < member.expires(&self.settings.timers, self.guards());
        let status = member.record().map(|record| record.status);
        let unwell = matches!(status, Some(NodeStatus::Leaving | NodeStatus::Unhealthy));
        let weightless = member.record().is_some_and(|record| record.weight == 0);
        alive && (unwell || weightless || self.is_cordoned(id))
    }

    /// New owners for slots that need one, and moves for balance.
    fn place(&self, plan: &mut Plan) {
        let touched: Vec<SlotRange> = plan.steps.iter().map(|(transition, _)| transition.slots()).collect();
        let nodes = self.nodes();
        let find = |id: &ReplicaId| nodes.binary_search_by(|node| node.id.cmp(id)).ok();
        let slots = self.map.identity.slots;
        let mut current = vec![NOBODY; slots.get() as usize];
        for Run { slots, assignment: a } in self.map.runs() {
            let holder = a.next.as_ref().and_then(find).or_else(|| a.owner.as_ref().and_then(find));
            if let Some(at) = holder {
                current[slots.start as usize..slots.end as usize].fill(at as u16);
            }
        }
        let pins = self.pins(&find);
        let loads = self.loads();
        let mut request = Request {
            pins: &pins,
            loads: loads.as_deref(),
            threshold: self.settings.rebalancing.threshold,
            ..Request::fresh(&nodes, slots, &current)
        };
        let worth_it =
            || is_uneven(&request) || (self.is_steady() && wants_to_move(self.algorithm, &request));
        request.only_orphans = !self.balance || self.rollout_expects_leavers() || !worth_it();
        let desired = place(self.algorithm, &request).or_else(|complaint| {
            plan.complaint = Some(complaint);
            place(&Sticky, &request)
        });
        let Ok(mut desired) = desired else { return };
        if request.only_orphans && self.balance {
            pins.iter().for_each(|(slot, node)| desired[*slot as usize] = *node);
        }
        let mut budget = self.budget_left();
        for run in self.map.runs() {
            if !touched.iter().any(|touched| touched.common(run.slots).is_some()) {
                self.place_run(run, &nodes, &desired, &pins, &mut budget, &mut plan.steps);
            }
        }
    }

    fn place_run(
        &self,
        run: &Run,
        nodes: &[Node],
        desired: &[u16],
        pins: &[(Slot, u16)],
        budget: &mut u32,
        steps: &mut Vec<(Transition, Reason)>,
    ) {
        let Assignment { owner, phase, .. } = &run.assignment;
        let ended = owner.as_ref().is_some_and(|owner| self.has_ended(owner));
        let goes = owner.as_ref().is_some_and(|owner| !self.takes(owner) && self.is_going(owner));
        let mut from = run.slots.start;
        while from < run.slots.end {
            let to = desired[from as usize];
            let mut slots = SlotRange::one(from);
            while slots.end < run.slots.end && desired[slots.end as usize] == to {
                slots.end += 1;
            }
            from = slots.end;
            let target = nodes.get(usize::from(to)).map(|node| node.id.clone());
            match (phase, target) {
                (_, to) if ended => steps.push((Transition::Assign { slots, to }, Reason::OwnerEnded)),
                (Phase::Unowned, Some(to)) => {
                    steps.push((Transition::Assign { slots, to: Some(to) }, Reason::Unowned));
                }
                (Phase::Draining, Some(next))
                    if goes && run.assignment.next.as_ref().is_some_and(|n| !self.takes(n)) =>
                {
                    steps.push((Transition::Retarget { slots, next }, Reason::NextIsLost));
                }
                (Phase::Owned, Some(next)) if owner.as_ref() != Some(&next) => {
                    if goes {
                        steps.push((Transition::Prepare { slots, next }, Reason::OwnerGoes));
                    } else if self.balance && owner.as_ref().is_some_and(|owner| self.takes(owner)) {
                        if self.guards().on(Guard::MoveBudget) {
                            slots.end = slots.end.min(slots.start.saturating_add(*budget));
                        }
                        *budget = budget.saturating_sub(slots.len());
                        let pinned = pins.iter().any(|(slot, _)| slots.contains(*slot));
                        let why = if pinned { Reason::Pinned } else { Reason::Balance };
                        if !slots.is_empty() {
                            steps.push((Transition::Prepare { slots, next }, why));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Replicas that take slots, in the order of their ids.
    fn nodes(&self) -> Vec<Node> {
        let able = self.members().iter().filter(|(id, _)| self.takes(id));
        able.map(|(id, member)| Node {
            id: id.clone(),
            weight: member.record().map_or(0, |record| record.weight.min(10_000)),
        })
        .collect()
    }

    fn pins(&self, find: &dyn Fn(&ReplicaId) -> Option<usize>) -> Vec<(Slot, u16)> {
        let mut pins = Vec::new();
        for pin in &self.spec.pins {
            let Ok(range) = pin.slots.parse::<SlotRange>() else { continue };
            let named = self.members().iter().filter(|(id, _)| self.is_called(id, &pin.replica));
            let Some(at) = named.filter_map(|(id, _)| find(id)).next() else { continue };
            let there = self.map.identity.slots.all().common(range);
            pins.extend(there.into_iter().flat_map(SlotRange::slots).map(|slot| (slot, at as u16)));
        }
        pins
    }

    fn loads(&self) -> Option<Vec<u32>> {
        let mut loads = None;
        for (slot, cost) in self.members().loads() {
            let loads = loads.get_or_insert_with(|| vec![0; self.map.identity.slots.get() as usize]);
            if let Some(load) = loads.get_mut(slot as usize) {
                *load = cost;
            }
        }
        loads
    }

    /// While two revisions live and the latest newcomer is young, those it replaces are about to leave: what they have goes to it
    /// then, and nothing before. So a rolling update moves each slot once.
    fn rollout_expects_leavers(&self) -> bool {
        let live = self.members().iter().filter(|(_, member)| !member.revoked && !member.absent);
        let mut first: Option<&str> = None;
        let (mut mixed, mut newest) = (false, Moment::default());
        for (_, member) in live {
            let Some(record) = member.record() else { continue };
            mixed |= first.is_some_and(|first| first != &*record.revision);
            first = first.or(Some(&record.revision));
            newest = newest.max(member.since);
        }
        mixed && self.facts.now < newest + self.settings.rebalancing.replacement_grace
    }

    /// Nothing has moved for long: time for what is not urgent.
    fn is_steady(&self) -> bool {
        let long = self.settings.rebalancing.interval * STEADY_LOOKS;
        let quiet = |slot| self.facts.now.since((self.phase_since)(slot)) >= long;
        self.map.runs().iter().all(|run| run.assignment.phase == Phase::Owned && run.slots.slots().all(quiet))
    }

    /// How many more slots may be moved for balance alone.
    fn budget_left(&self) -> u32 {
        let goes = |owner: &ReplicaId| {
            let record = self.members().record(owner);
            let status = record.map(|record| record.status);
            self.has_ended(owner)
                || matches!(status, Some(NodeStatus::Leaving | NodeStatus::Unhealthy))
                || record.is_some_and(|record| record.weight == 0)
                || self.is_cordoned(owner)
        };
        let moving = self.map.runs().iter().filter(|run| {
            let a = &run.assignment;
            matches!(a.phase, Phase::Preparing | Phase::Draining) && !a.owner.as_ref().is_some_and(goes)
        });
        self.settings.rebalancing.budget.saturating_sub(moving.map(|run| run.slots.len()).sum())
    }
}

/// Whether somebody has so much more or less than its share, in slots or measured load, that moving is worth it.
fn is_uneven(request: &Request<'_>) -> bool {
    let weights: f64 = request.nodes.iter().map(|node| f64::from(node.weight)).sum();
    let mut slots = vec![0_u64; request.nodes.len()];
    let mut loads = vec![0_u64; request.nodes.len()];
    for (slot, node) in request.current.iter().enumerate() {
        let at = usize::from(*node);
        if at < slots.len() {
            slots[at] += 1;
            loads[at] += request.loads.and_then(|loads| loads.get(slot)).map_or(0, |load| u64::from(*load));
        }
    }
    let off = |values: &[u64]| {
        let total: u64 = values.iter().sum();
        values.iter().zip(request.nodes).any(|(value, node)| {
            let share = total as f64 * f64::from(node.weight) / weights.max(1.0);
            (*value as f64 - share).abs() >= (share * request.threshold).max(1.0)
        })
    };
    off(&slots) || off(&loads)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Unowned => "nobody has them",
            Reason::OwnerEnded => "the Lease of the owner was revoked",
            Reason::OwnerGoes => "the owner leaves, is unwell or cordoned",
            Reason::Balance => "balance",
            Reason::Pinned => "pinned",
            Reason::NextIsWarm => "the next owner is warm",
            Reason::Released => "the owner has released them",
            Reason::NextIsLost => "the next owner is gone or took too long",
            Reason::Confirmed => "every replica has confirmed the repair",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(complaint) = &self.complaint {
            writeln!(f, "warning: {complaint}; sticky is used instead")?;
        }
        for (transition, reason) in &self.steps {
            write!(f, "{} {}", transition.name(), transition.slots())?;
            match transition {
                Transition::Assign { to: Some(to), .. } => write!(f, " to {to}")?,
                Transition::Prepare { next, .. } | Transition::Retarget { next, .. } => {
                    write!(f, " for {next}")?;
                }
                _ => {}
            }
            writeln!(f, ": {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::identity::Identity;
    use crate::key::KeyFunction;
    use crate::lease::{LeaseObject, LeaseRecord};
    use crate::map::apply;
    use crate::settings::{Rebalancing, Timers};
    use crate::slots::SlotCount;

    #[test]
    fn scattered_slots_are_put_together_when_nothing_has_moved_for_long_and_not_before() {
        let identity = Arc::new(Identity {
            group: "web".into(),
            controller: "demo".into(),
            slots: SlotCount::new(64).unwrap(),
            key_function: KeyFunction::Uid,
            algorithm: "sticky".into(),
        });
        let settings = Settings {
            identity: identity.clone(),
            name: "a".into(),
            address: "".into(),
            revision: "".into(),
            weight: 100,
            timers: Timers::default(),
            rebalancing: Rebalancing::default(),
        };
        let map = ShardMap::new(identity, Duration::from_secs(60), 0);
        let situation = |map: &ShardMap, seconds: u64| {
            let now = Moment::from_micros(seconds * 1_000_000);
            let mut members = Members::default();
            for id in ["a", "b"] {
                let record = LeaseRecord {
                    status: NodeStatus::Healthy,
                    fingerprint: map.fingerprint(),
                    weight: 100,
                    revoked: None,
                    ..LeaseRecord::tombstone_of(&id.into(), &"".into(), Duration::from_secs(15))
                };
                let lease = LeaseObject { uid: 1, resource_version: 1, record, genuine: true };
                members.saw(&Arc::new(lease), Duration::from_secs(60), now);
            }
            let (timers, guards) = (&settings.timers, Guards::default());
            let facts = Facts { members: &members, waited_after_repair: true, timers, guards, now };
            let turns = (0..64).map(|slot| Transition::Assign {
                slots: SlotRange::one(slot),
                to: Some(if slot % 2 == 0 { "a".into() } else { "b".into() }),
            });
            let scattered = apply(map, &turns.collect::<Vec<_>>(), &facts).unwrap();
            plan(&Situation {
                map: &scattered,
                facts,
                settings: &settings,
                algorithm: &Sticky,
                spec: &ShardMapSpec::default(),
                balance: true,
                phase_since: &|_| Moment::default(),
            })
        };
        let long = settings.rebalancing.interval.as_secs() * u64::from(STEADY_LOOKS);
        assert!(situation(&map, long - 1).steps.is_empty());
        let steps = situation(&map, long).steps;
        assert!(!steps.is_empty());
        assert!(steps.iter().all(|(step, why)| step.name() == "prepare" && *why == Reason::Balance));
    }
}
