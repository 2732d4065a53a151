//! The record of a group: which replica owns which slots, in which epoch, and what is about to move.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Identity, ReplicaId};
use crate::slots::{Epoch, Slot, SlotRange};

mod document;
mod repair;
mod transition;

pub use document::{Defect, MAX_RECORD_BYTES, Observed, ShardMapStatus, encode_map, read_map};
pub use repair::{migrate, repair};
pub use transition::{Facts, Refusal, Transition, apply};

/// Where a slot is on its way from one owner to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nobody's.
    Unowned,
    /// One replica's.
    Owned,
    /// Still the owner's; the next one opens its watches.
    Preparing,
    /// The owner finishes what is in flight and takes nothing new.
    Draining,
    /// Nobody's, and whoever worked on it has to say that it stopped.
    Repairing,
}

/// What the record says about a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Who may work.
    pub owner: Option<ReplicaId>,
    /// Rises with every new owner.
    pub epoch: Epoch,
    /// Where it is on its way.
    pub phase: Phase,
    /// Who shall own it next.
    pub next: Option<ReplicaId>,
}

/// Neighbouring slots with one assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The slots.
    pub slots: SlotRange,
    /// What is said about them.
    pub assignment: Assignment,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    /// What all replicas must have in common.
    pub identity: Arc<Identity>,
    /// No Lease of the group lasts longer.
    pub longest_lease: Duration,
    /// Rises by one with every change.
    pub version: u64,
    /// The version in which it was last repaired, 0 for never.
    pub repaired: u64,
    fingerprint: u64,
    runs: Vec<Run>,
}

impl ShardMap {
    /// The first record of a group. Its numbers begin above `floor`, for the same reason as those of a [`repair`].
    pub fn new(identity: Arc<Identity>, longest_lease: Duration, floor: u64) -> ShardMap {
        let assignment = Assignment { owner: None, epoch: floor, phase: Phase::Unowned, next: None };
        let runs = vec![Run { slots: identity.slots.all(), assignment }];
        ShardMap {
            fingerprint: identity.fingerprint(),
            identity,
            longest_lease,
            version: floor + 1,
            repaired: 0,
            runs,
        }
    }

    /// The short form of its identity.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Runs in the order of their slots; neighbours differ.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// What is said about a slot.
    pub fn get(&self, slot: Slot) -> Option<&Assignment> {
        let at = self.runs.partition_point(|run| run.slots.end <= slot);
        self.runs.get(at).filter(|run| run.slots.contains(slot)).map(|run| &run.assignment)
    }

    /// The slots that a replica owns.
    pub fn slots_of(&self, id: &ReplicaId) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for run in self.runs.iter().filter(|run| run.assignment.owner.as_ref() == Some(id)) {
            match ranges.last_mut() {
                Some(last) if last.end == run.slots.start => last.end = run.slots.end,
                _ => ranges.push(run.slots),
            }
        }
        ranges
    }

    /// Whether it owns or shall own anything.
    pub fn names(&self, id: &ReplicaId) -> bool {
        self.runs
            .iter()
            .any(|Run { assignment: a, .. }| a.owner.as_ref() == Some(id) || a.next.as_ref() == Some(id))
    }

    /// Everyone who owns or shall own something; may repeat.
    pub fn named(&self) -> impl Iterator<Item = &ReplicaId> {
        self.runs.iter().flat_map(|run| run.assignment.owner.iter().chain(&run.assignment.next))
    }

    /// How many slots each owner has.
    pub fn counts(&self) -> BTreeMap<&ReplicaId, u32> {
        let mut counts = BTreeMap::new();
        for run in &self.runs {
            if let Some(owner) = &run.assignment.owner {
                *counts.entry(owner).or_default() += run.slots.len();
            }
        }
        counts
    }

    /// How many slots are in one of these phases.
    pub fn count(&self, phases: &[Phase]) -> u32 {
        let there = self.runs.iter().filter(|run| phases.contains(&run.assignment.phase));
        there.map(|run| run.slots.len()).sum()
    }

    /// The highest epoch.
    pub fn highest_epoch(&self) -> Epoch {
        self.runs.iter().map(|run| run.assignment.epoch).max().unwrap_or_default()
    }

    /// Changes what is said about some slots; `change` is called per run and may refuse.
    fn edit<E>(
        &mut self,
        slots: SlotRange,
        mut change: impl FnMut(SlotRange, &mut Assignment) -> Result<(), E>,
    ) -> Result<(), E> {
        self.cut(slots.start);
        self.cut(slots.end);
        let from = self.runs.partition_point(|run| run.slots.start < slots.start);
        for run in self.runs[from..].iter_mut().take_while(|run| run.slots.start < slots.end) {
            change(run.slots, &mut run.assignment)?;
        }
        Ok(())
    }

    /// Makes a run begin at this slot.
    fn cut(&mut self, at: Slot) {
        let index = self.runs.partition_point(|run| run.slots.end <= at);
        if let Some(run) = self.runs.get_mut(index).filter(|run| run.slots.start < at) {
            let right =
                Run { slots: SlotRange { start: at, ..run.slots }, assignment: run.assignment.clone() };
            run.slots.end = at;
            self.runs.insert(index + 1, right);
        }
    }

    /// Joins neighbours that say the same.
    fn join(&mut self) {
        self.runs.dedup_by(|right, left| {
            let same = left.assignment == right.assignment && left.slots.end == right.slots.start;
            if same {
                left.slots.end = right.slots.end;
            }
            same
        });
    }
}

impl Phase {
    /// As the record writes it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Unowned => "unowned",
            Phase::Owned => "owned",
            Phase::Preparing => "preparing",
            Phase::Draining => "draining",
            Phase::Repairing => "repairing",
        }
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.phase.name())?;
        if let Some(owner) = &self.owner {
            write!(f, " {owner}")?;
        }
        write!(f, " epoch {}", self.epoch)?;
        match &self.next {
            Some(next) => write!(f, ", next {next}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ShardMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}:", self.version)?;
        for run in &self.runs {
            write!(f, " [{}] {};", run.slots, run.assignment)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
