//! What a replica does with each slot: warming, reading anew, working, draining.

use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::lease::LeaseRecord;
use crate::map::{Assignment, Phase, ShardMap};
use crate::replica::message::{Action, Notice};
use crate::slots::{Epoch, Slot, SlotCount, SlotRange};
use crate::time::Moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Watches are being opened.
    Warming,
    /// Watches are open.
    Warm,
    /// Owned; everything is read anew first.
    Barrier,
    /// Owned and worked on.
    Active,
    /// Nothing new; what is in flight goes on.
    Draining,
    /// Owned on paper, but never again worked on in this epoch.
    Released,
}

#[derive(Clone, Copy, Debug)]
struct Local {
    stage: Stage,
    epoch: Epoch,
    /// No epoch up to this one is ever worked on again.
    released: Epoch,
    /// The last epoch of which work may be in flight, 0 for none: a cancelled drain goes on under a new epoch.
    busy: Epoch,
    phase: Phase,
    phase_epoch: Epoch,
    since: Moment,
}

/// All slots of one replica.
pub(super) struct Stages {
    id: ReplicaId,
    guards: Guards,
    slots: Vec<Local>,
    /// How many slots drain although the record does not name this replica any more.
    letting_go: u32,
    /// The version of the record that is obeyed in full.
    seen: u64,
    acknowledgements_changed: bool,
}

/// Collects neighbouring slots into one action.
struct Collector {
    what: Option<(Kind, SlotRange, Epoch)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Warm,
    Cool,
    Barrier,
    Drain,
    Abort,
    Activate,
    Lost,
}

impl Collector {
    fn new() -> Collector {
        Collector { what: None }
    }

    fn add(&mut self, kind: Kind, slot: Slot, epoch: Epoch, out: &mut Vec<Action>) {
        match &mut self.what {
            Some((last, slots, at)) if *last == kind && *at == epoch && slots.end == slot => slots.end += 1,
            _ => {
                self.flush(out);
                self.what = Some((kind, SlotRange::one(slot), epoch));
            }
        }
    }

    fn flush(&mut self, out: &mut Vec<Action>) {
        let Some((kind, slots, epoch)) = self.what.take() else { return };
        match kind {
            Kind::Warm => out.push(Action::Warm { slots, epoch }),
            Kind::Cool => out.push(Action::Cool { slots }),
            Kind::Barrier => {
                out.push(Action::Notify(Notice::Gained { slots, epoch }));
                out.push(Action::Barrier { slots, epoch });
            }
            Kind::Drain => out.push(Action::Drain { slots, epoch }),
            Kind::Abort => {
                out.push(Action::Abort { slots });
                out.push(Action::Notify(Notice::Lost { slots, epoch }));
            }
            Kind::Activate => out.push(Action::Activate { slots, epoch }),
            Kind::Lost => out.push(Action::Notify(Notice::Lost { slots, epoch })),
        }
    }
}

impl Stages {
    pub(super) fn new(id: ReplicaId, slots: SlotCount, guards: Guards) -> Stages {
        let local = Local {
            stage: Stage::Idle,
            epoch: 0,
            released: 0,
            busy: 0,
            phase: Phase::Unowned,
            phase_epoch: 0,
            since: Moment::default(),
        };
        let slots = vec![local; slots.get() as usize];
        Stages { id, guards, slots, letting_go: 0, seen: 0, acknowledgements_changed: false }
    }

    pub(super) fn active(&self, slot: Slot) -> Option<Epoch> {
        self.slots.get(slot as usize).filter(|local| local.stage == Stage::Active).map(|local| local.epoch)
    }

    pub(super) fn may_be_in_flight(&self, slot: Slot) -> bool {
        let stage = self.slots.get(slot as usize).map(|local| local.stage);
        matches!(stage, Some(Stage::Active | Stage::Draining))
    }

    pub(super) fn active_ranges(&self) -> Vec<(SlotRange, Epoch)> {
        let mut ranges: Vec<(SlotRange, Epoch)> = Vec::new();
        for (slot, local) in (0..).zip(&self.slots).filter(|(_, local)| local.stage == Stage::Active) {
            match ranges.last_mut() {
                Some((range, epoch)) if range.end == slot && *epoch == local.epoch => range.end += 1,
                _ => ranges.push((SlotRange::one(slot), local.epoch)),
            }
        }
        ranges
    }

    pub(super) fn phase_since(&self, slot: Slot) -> Moment {
        self.slots.get(slot as usize).map(|local| local.since).unwrap_or_default()
    }

    pub(super) fn holds_any(&self) -> bool {
        let held = |local: &Local| matches!(local.stage, Stage::Barrier | Stage::Active | Stage::Draining);
        self.slots.iter().any(|local| held(local) || local.busy > 0)
    }

    /// Follows the record. True if there is something to acknowledge.
    pub(super) fn obey(
        &mut self,
        before: Option<&ShardMap>,
        map: &ShardMap,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> bool {
        let mut collector = Collector::new();
        let mut urgent = false;
        for run in map.runs() {
            for slot in run.slots.slots() {
                urgent |= self.obey_slot(slot, &run.assignment, now, &mut collector, out);
            }
        }
        collector.flush(out);
        if let Some(before) = before {
            reassignments(before, map, out);
        }
        self.acknowledgements_changed = true;
        self.finish_letting_go(map.version);
        urgent
            || (map.repaired > 0
                && self.seen >= map.repaired
                && before.is_none_or(|b| b.repaired != map.repaired))
    }

    fn obey_slot(
        &mut self,
        slot: Slot,
        a: &Assignment,
        now: Moment,
        collector: &mut Collector,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(local) = self.slots.get_mut(slot as usize) else { return false };
        if (local.phase, local.phase_epoch) != (a.phase, a.epoch) {
            (local.phase, local.phase_epoch, local.since) = (a.phase, a.epoch, now);
        }
        let mine = a.owner.as_ref() == Some(&self.id);
        let held = matches!(local.stage, Stage::Barrier | Stage::Active | Stage::Draining);
        match (mine, a.phase) {
            (true, Phase::Draining) => match local.stage {
                Stage::Draining | Stage::Released if local.epoch == a.epoch => false,
                _ if local.busy > 0 => {
                    local.epoch = a.epoch;
                    if self.guards.on(Guard::DrainInFlight) {
                        local.stage = Stage::Draining;
                        collector.add(Kind::Drain, slot, a.epoch, out);
                        return false;
                    }
                    // The mutant acknowledges at once and drains on the side.
                    collector.add(Kind::Drain, slot, a.epoch, out);
                    local.busy = 0;
                    local.stage = Stage::Released;
                    local.released = a.epoch;
                    true
                }
                // Nothing is in flight.
                _ => {
                    local.stage = Stage::Released;
                    local.epoch = a.epoch;
                    local.released = local.released.max(a.epoch);
                    true
                }
            },
            (true, _) => {
                let goes_on = matches!(local.stage, Stage::Barrier | Stage::Active) && local.epoch == a.epoch;
                let allowed = a.epoch > local.released || !self.guards.on(Guard::NeverBack);
                let drains = local.stage == Stage::Draining && local.epoch == a.epoch;
                if !goes_on && allowed && !drains {
                    local.epoch = a.epoch;
                    if self.guards.on(Guard::Barrier) {
                        local.stage = Stage::Barrier;
                        collector.add(Kind::Barrier, slot, a.epoch, out);
                    } else {
                        local.stage = Stage::Active;
                        local.busy = a.epoch;
                        collector.add(Kind::Activate, slot, a.epoch, out);
                    }
                }
                false
            }
            (false, Phase::Repairing) if local.busy > 0 => {
                if local.stage != Stage::Draining {
                    local.stage = Stage::Draining;
                    collector.add(Kind::Drain, slot, local.epoch, out);
                }
                false
            }
            (false, phase) => {
                if held || local.busy > 0 {
                    // By the rules this happens only after the own Lease has ended.
                    collector.add(Kind::Abort, slot, local.epoch, out);
                    local.busy = 0;
                }
                let wanted = a.next.as_ref() == Some(&self.id);
                let warm = matches!(local.stage, Stage::Warming | Stage::Warm);
                match (wanted, phase) {
                    (true, Phase::Draining) if warm => {}
                    (true, Phase::Preparing) if warm && local.epoch == a.epoch => {}
                    (true, Phase::Preparing) => {
                        local.stage = Stage::Warming;
                        local.epoch = a.epoch;
                        collector.add(Kind::Warm, slot, a.epoch, out);
                    }
                    _ => {
                        if warm {
                            collector.add(Kind::Cool, slot, local.epoch, out);
                        }
                        local.stage = Stage::Idle;
                    }
                }
                false
            }
        }
    }

    fn finish_letting_go(&mut self, version: u64) {
        // Counted anew: a slot can be met in several versions while it drains.
        let going = |local: &&Local| local.phase == Phase::Repairing && local.stage == Stage::Draining;
        self.letting_go = self.slots.iter().filter(going).count() as u32;
        if self.letting_go == 0 {
            self.seen = self.seen.max(version);
        }
    }

    pub(super) fn warmed(&mut self, slots: SlotRange, epoch: Epoch) -> bool {
        let mut changed = false;
        for local in self.range(slots) {
            if local.stage == Stage::Warming && local.epoch == epoch {
                local.stage = Stage::Warm;
                changed = true;
            }
        }
        self.acknowledgements_changed |= changed;
        changed
    }

    pub(super) fn drained(&mut self, slots: SlotRange, epoch: Epoch, out: &mut Vec<Action>) -> bool {
        let mut changed = false;
        let mut collector = Collector::new();
        let version = self.seen;
        for (slot, local) in slots.slots().zip(self.range(slots)) {
            if local.stage != Stage::Active && epoch >= local.busy {
                local.busy = 0;
            }
            if local.stage == Stage::Draining && local.epoch == epoch {
                local.stage = if local.phase == Phase::Repairing { Stage::Idle } else { Stage::Released };
                local.released = local.released.max(epoch);
                changed = true;
                collector.add(Kind::Lost, slot, epoch, out);
            }
        }
        collector.flush(out);
        self.acknowledgements_changed |= changed;
        self.finish_letting_go(version);
        changed
    }

    pub(super) fn fresh(&mut self, slots: SlotRange, epoch: Epoch, out: &mut Vec<Action>) {
        let mut collector = Collector::new();
        for (slot, local) in slots.slots().zip(self.range(slots)) {
            if local.stage == Stage::Barrier && local.epoch == epoch {
                local.stage = Stage::Active;
                local.busy = epoch;
                collector.add(Kind::Activate, slot, epoch, out);
            }
        }
        collector.flush(out);
    }

    /// Drains everything, whatever the record says.
    pub(super) fn let_go_of_all(&mut self, out: &mut Vec<Action>) {
        let mut collector = Collector::new();
        for (slot, local) in (0..).zip(&mut self.slots) {
            match local.stage {
                Stage::Draining => {}
                _ if local.busy > 0 => {
                    local.stage = Stage::Draining;
                    collector.add(Kind::Drain, slot, local.epoch, out);
                }
                Stage::Barrier => {
                    local.stage = Stage::Released;
                    local.released = local.released.max(local.epoch);
                }
                _ => {}
            }
        }
        collector.flush(out);
    }

    /// Writes what the others wait for into the Lease.
    pub(super) fn acknowledge(&mut self, record: &mut LeaseRecord, map: &ShardMap) {
        if self.letting_go == 0 {
            self.seen = self.seen.max(map.version);
        }
        record.seen = self.seen;
        if !self.acknowledgements_changed {
            return;
        }
        self.acknowledgements_changed = false;
        record.warm.clear();
        record.released.clear();
        for (slot, local) in (0..).zip(&self.slots) {
            let list = match local.stage {
                Stage::Warm => &mut record.warm,
                Stage::Released => &mut record.released,
                _ => continue,
            };
            match list.last_mut() {
                Some((range, epoch)) if range.end == slot && *epoch == local.epoch => range.end += 1,
                _ => list.push((SlotRange::one(slot), local.epoch)),
            }
        }
    }

    fn range(&mut self, slots: SlotRange) -> impl Iterator<Item = &mut Local> {
        let end = (slots.end as usize).min(self.slots.len());
        let start = (slots.start as usize).min(end);
        self.slots[start..end].iter_mut()
    }
}

/// Tells which slots changed hands between two records.
fn reassignments(before: &ShardMap, after: &ShardMap, out: &mut Vec<Action>) {
    let mut olds = before.runs().iter().peekable();
    for new in after.runs() {
        while let Some(old) = olds.peek() {
            let (from, to) = (&old.assignment.owner, &new.assignment.owner);
            if let Some(slots) = old.slots.common(new.slots).filter(|_| from != to) {
                out.push(Action::Notify(Notice::Reassigned { slots, from: from.clone(), to: to.clone() }));
            }
            if old.slots.end > new.slots.end {
                break;
            }
            olds.next();
        }
    }
}
