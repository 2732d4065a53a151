//! What must never happen, and what must have happened in the end.

use std::fmt;
use std::sync::Arc;

use crate::guards::Guards;
use crate::identity::ReplicaId;
use crate::lease::{LeaseObject, NodeStatus};
use crate::map::{Phase, ShardMap};
use crate::simulator::coverage::Mark;
use crate::simulator::node::Node;
use crate::slots::{Epoch, Slot, SlotCount, SlotRange};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two processes could work on a key at one time.
    Overlap {
        /// The slot.
        slot: Slot,
        /// The one.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A new owner acted on an older state than its predecessor had handled.
    StaleRead {
        /// The slot.
        slot: Slot,
        /// Who.
        node: usize,
        /// What it read.
        read: u32,
        /// What was handled.
        handled: u32,
    },
    /// An epoch fell, or an owner changed without a higher one.
    Epoch {
        /// The slot.
        slot: Slot,
        /// Before.
        before: Epoch,
        /// After.
        after: Epoch,
    },
    /// A number above the resourceVersion under which it was stored: that would be no floor for the next record.
    Ahead {
        /// The highest version or epoch.
        number: u64,
        /// The resourceVersion.
        revision: u64,
    },
    /// More slots on the move for balance than allowed.
    Budget {
        /// How many.
        moving: u32,
        /// How many were allowed.
        budget: u32,
    },
    /// A key was not reconciled within the bound after the last fault.
    Unhandled {
        /// The slot.
        slot: Slot,
        /// Why, as far as it shows.
        why: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Overlap { slot, first, second } => {
                write!(f, "r{first} and r{second} could both work on slot {slot}")
            }
            Violation::StaleRead { slot, node, read, handled } => {
                write!(f, "r{node} read version {read} of slot {slot}, its predecessor had handled {handled}")
            }
            Violation::Epoch { slot, before, after } => {
                write!(f, "slot {slot} changed its owner from epoch {before} to {after}")
            }
            Violation::Ahead { number, revision } => {
                write!(f, "the record counts up to {number} at resourceVersion {revision}")
            }
            Violation::Budget { moving, budget } => write!(f, "{moving} slots on the move, {budget} allowed"),
            Violation::Unhandled { slot, why } => write!(f, "slot {slot} is not handled: {why}"),
        }
    }
}

pub(super) struct Checker {
    pub(super) violation: Option<Violation>,
    pub(super) seen: u64,
    /// The newest version of the object in each slot.
    pub(super) objects: Vec<u32>,
    /// The newest version that was reconciled.
    pub(super) handled: Vec<u32>,
    handled_by: Vec<(usize, u32)>,
    epochs: Vec<Epoch>,
    owners: Vec<Option<ReplicaId>>,
    pub(super) moves: Vec<u32>,
    budget: u32,
    last: Option<Arc<ShardMap>>,
    /// Replicas that were about to leave or unwell at some time: their slots may move beyond the budget.
    unsteady: Vec<ReplicaId>,
}

impl Checker {
    pub(super) fn new(slots: SlotCount, budget: u32) -> Checker {
        let slots = slots.get() as usize;
        Checker {
            violation: None,
            seen: 0,
            objects: vec![1; slots],
            handled: vec![0; slots],
            handled_by: vec![(usize::MAX, 0); slots],
            epochs: vec![0; slots],
            owners: vec![None; slots],
            moves: vec![0; slots],
            budget,
            last: None,
            unsteady: Vec::new(),
        }
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.seen |= 1 << mark as u64;
    }

    pub(super) fn has(&self, mark: Mark) -> bool {
        self.seen >> mark as u64 & 1 == 1
    }

    /// Whether anybody else could work on the keys of these slots now.
    pub(super) fn overlap(
        &self,
        nodes: &[Node],
        node: usize,
        slots: SlotRange,
        now: u64,
        guards: Guards,
    ) -> Option<Violation> {
        let count = self.objects.len() as u32;
        let me = &nodes[node];
        for slot in slots.slots() {
            if !me.has_authority(slot, now, guards) {
                continue;
            }
            for (at, other) in nodes.iter().enumerate() {
                let theirs = (slot + count + me.shift - other.shift) % count;
                let both = match at == node {
                    true => {
                        other.old_life_in_flight(slot, now, guards)
                            && me
                                .replica
                                .as_ref()
                                .is_some_and(|replica| replica.may_work(slot, me.clock(now)).is_some())
                    }
                    false => other.has_authority(theirs, now, guards),
                };
                if both {
                    return Some(Violation::Overlap { slot, first: node, second: at });
                }
            }
        }
        None
    }

    pub(super) fn works_on(&self, node: usize, life: u32, slot: Slot, version: u32) -> Option<Violation> {
        let at = slot as usize;
        let older = version < self.handled[at] && self.handled_by[at] != (node, life);
        older.then(|| Violation::StaleRead { slot, node, read: version, handled: self.handled[at] })
    }

    pub(super) fn handled_by(&mut self, node: usize, life: u32, slot: Slot, version: u32) {
        let at = slot as usize;
        if version >= self.handled[at] {
            self.handled[at] = version;
            self.handled_by[at] = (node, life);
        }
    }

    /// The server has stored a record made by the rules.
    pub(super) fn committed(&mut self, map: &Arc<ShardMap>, revision: u64) -> Option<Violation> {
        let number = map.version.max(map.highest_epoch());
        if number > revision {
            return Some(Violation::Ahead { number, revision });
        }
        let mut voluntary = 0;
        for run in map.runs() {
            let a = &run.assignment;
            let steady = a.owner.as_ref().is_some_and(|owner| !self.unsteady.contains(owner));
            if matches!(a.phase, Phase::Preparing | Phase::Draining) && steady {
                voluntary += run.slots.len();
            }
            for slot in run.slots.slots() {
                let at = slot as usize;
                let before = self.epochs[at];
                let changed = a.owner.is_some() && a.owner != self.owners[at];
                if a.epoch < before || (changed && a.epoch == before) {
                    return Some(Violation::Epoch { slot, before, after: a.epoch });
                }
                if changed {
                    self.owners[at] = a.owner.clone();
                    self.moves[at] += 1;
                }
                self.epochs[at] = a.epoch;
            }
        }
        self.mark_changes(map);
        self.last = Some(map.clone());
        (voluntary > self.budget).then_some(Violation::Budget { moving: voluntary, budget: self.budget })
    }

    /// The server has stored a Lease.
    pub(super) fn lease_written(&mut self, lease: &LeaseObject) {
        let record = &lease.record;
        let goes =
            matches!(record.status, NodeStatus::Leaving | NodeStatus::Unhealthy) || record.revoked.is_some();
        if goes && !self.unsteady.contains(&record.replica) {
            self.unsteady.push(record.replica.clone());
        }
    }

    fn mark_changes(&mut self, map: &ShardMap) {
        let Some(last) = self.last.take() else { return };
        let mut seen = Vec::new();
        for new in map.runs() {
            for old in last.runs().iter().filter(|old| old.slots.common(new.slots).is_some()) {
                let (a, b) = (&old.assignment, &new.assignment);
                if a == b {
                    continue;
                }
                seen.push(match (a.phase, b.phase) {
                    (_, Phase::Repairing) => Mark::Repair,
                    (Phase::Repairing, _) => Mark::Recover,
                    (Phase::Unowned, Phase::Owned) => Mark::AssignUnowned,
                    (_, Phase::Unowned) => Mark::LeftUnowned,
                    (Phase::Owned, Phase::Preparing)
                        if a.owner.as_ref().is_some_and(|o| self.unsteady.contains(o)) =>
                    {
                        Mark::PrepareLeaving
                    }
                    (Phase::Owned, Phase::Preparing) => Mark::Prepare,
                    (Phase::Preparing, Phase::Draining) => Mark::Drain,
                    (Phase::Draining, Phase::Draining) => Mark::Retarget,
                    (Phase::Preparing, Phase::Owned) if a.owner == b.owner => Mark::CancelPreparing,
                    (Phase::Draining, Phase::Owned) if a.owner == b.owner => Mark::CancelDraining,
                    (Phase::Draining, Phase::Owned) if a.next == b.owner => Mark::Complete,
                    _ => Mark::Takeover,
                });
            }
        }
        seen.into_iter().for_each(|mark| self.mark(mark));
    }

    /// The first slot that nobody handles, if any.
    pub(super) fn unhandled(&self, nodes: &[Node], now: u64) -> Option<Violation> {
        (0..self.objects.len() as Slot).find_map(|slot| {
            let works = nodes.iter().any(|node| {
                now >= node.paused_until
                    && node.replica.as_ref().is_some_and(|r| r.may_work(slot, node.clock(now)).is_some())
            });
            let done = self.handled[slot as usize] >= self.objects[slot as usize];
            let why = match (works, done) {
                (true, true) => return None,
                (true, false) => "its owner has not got to it".to_owned(),
                (false, _) => format!(
                    "nobody works on it; the record says {}",
                    self.last
                        .as_ref()
                        .and_then(|map| map.get(slot))
                        .map_or("nothing".to_owned(), ToString::to_string)
                ),
            };
            Some(Violation::Unhandled { slot, why })
        })
    }
}
