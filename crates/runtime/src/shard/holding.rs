//! What this replica may work on now, and what is in flight: for everyone who asks, from any thread.
//!
//! The driver is the only one who writes. Gate and fence read; the watchdog reads and cancels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_sharding::{Epoch, Moment, Slot, SlotCount, SlotRange};
use slab::Slab;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::apply::{Fence, Permit};
use crate::monotonic::Monotonic;

/// The slots of this replica and the work on them.
pub(crate) struct Holding {
    clock: Monotonic,
    /// Work is allowed before this moment.
    deadline: AtomicU64,
    /// What is in flight must be gone by then, or the process ends.
    stop_by: AtomicU64,
    /// By slot: the epoch, and in the lowest bit whether new work may begin. 0: not ours.
    states: Box<[AtomicU64]>,
    /// By slot: something was turned away or cut off because the time was over.
    missed: Box<[AtomicBool]>,
    any_missed: AtomicBool,
    /// By slot: microseconds of work.
    costs: Box<[AtomicU64]>,
    work: Mutex<Work>,
    ended: Notify,
}

#[derive(Default)]
struct Work {
    running: Slab<Running>,
}

struct Running {
    slot: Slot,
    epoch: Epoch,
    lost: CancellationToken,
}

const OPEN: u64 = 1;

impl Holding {
    pub(crate) fn new(slots: SlotCount, clock: Monotonic) -> Arc<Holding> {
        let table = || (0..slots.get()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Holding {
            clock,
            deadline: AtomicU64::new(0),
            stop_by: AtomicU64::new(0),
            states: table(),
            missed: (0..slots.get()).map(|_| AtomicBool::new(false)).collect(),
            any_missed: AtomicBool::new(false),
            costs: table(),
            work: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// The time on the clock of deadlines.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_micros(u64::try_from(self.clock.now().as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn clock(&self) -> &Monotonic {
        &self.clock
    }

    /// Sets until when work is allowed, and until when it must have ended.
    pub(crate) fn set_deadline(&self, deadline: Moment, margin: Duration) {
        // A tenth of the margin is for whoever notices last.
        let stop_by = deadline + (margin - margin / 10);
        // Closer ends must be seen at once; of later ones, the later end of the stop comes first.
        self.stop_by.fetch_max(stop_by.micros(), Ordering::SeqCst);
        self.deadline.store(deadline.micros(), Ordering::SeqCst);
        self.stop_by.store(stop_by.micros(), Ordering::SeqCst);
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::SeqCst))
    }

    pub(crate) fn stop_by(&self) -> Moment {
        Moment::from_micros(self.stop_by.load(Ordering::SeqCst))
    }

    /// New work may begin on these slots.
    pub(crate) fn open(&self, slots: SlotRange, epoch: Epoch) {
        let _work = self.work.lock();
        self.each(slots, |state| state.store(epoch << 1 | OPEN, Ordering::SeqCst));
    }

    /// No new work on these slots; what is in flight may go on.
    pub(crate) fn close(&self, slots: SlotRange) {
        let _work = self.work.lock();
        self.each(slots, |state| _ = state.fetch_and(!OPEN, Ordering::SeqCst));
    }

    /// These slots are not ours; what is in flight is cancelled. How much that was.
    pub(crate) fn drop_slots(&self, slots: SlotRange) -> usize {
        let work = self.work.lock();
        self.each(slots, |state| state.store(0, Ordering::SeqCst));
        work.cancel(|running| slots.contains(running.slot))
    }

    /// These slots are not ours any more in that epoch; nothing is in flight on them. Slots that have a later epoch by now stay.
    pub(crate) fn release(&self, slots: SlotRange, epoch: Epoch) {
        let _work = self.work.lock();
        self.each(slots, |state| {
            if state.load(Ordering::SeqCst) >> 1 <= epoch {
                state.store(0, Ordering::SeqCst);
            }
        });
    }

    /// Ends what is in flight on these slots in epochs up to this one, at its next await.
    pub(crate) fn cancel(&self, slots: SlotRange, epoch: Epoch) -> usize {
        self.work.lock().cancel(|running| slots.contains(running.slot) && running.epoch <= epoch)
    }

    /// Ends everything in flight at its next await.
    pub(crate) fn cancel_all(&self) -> usize {
        let work = self.work.lock();
        work.running.iter().for_each(|(_, running)| self.miss(running.slot));
        work.cancel(|_| true)
    }

    fn miss(&self, slot: Slot) {
        if let Some(missed) = self.missed.get(slot as usize) {
            missed.store(true, Ordering::SeqCst);
            self.any_missed.store(true, Ordering::SeqCst);
        }
    }

    /// Whether [`Holding::take_missed`] would find something.
    pub(crate) fn has_missed(&self) -> bool {
        self.any_missed.load(Ordering::SeqCst)
    }

    /// Open slots of which something was turned away or cut off because the time was over, since the last call. Call after
    /// [`Holding::set_deadline`], so that whoever is turned away meanwhile looks again.
    pub(crate) fn take_missed(&self) -> Vec<Slot> {
        self.any_missed.store(false, Ordering::SeqCst);
        let missed = (0..).zip(self.missed.iter()).filter(|(_, missed)| missed.swap(false, Ordering::SeqCst));
        missed.map(|(slot, _)| slot).filter(|slot| self.state(*slot) & OPEN != 0).collect()
    }

    /// Waits until nothing is in flight on these slots in epochs up to this one. Call after [`Holding::close`], or new work may come.
    /// Work of later epochs is none of a drain that was called off.
    pub(crate) async fn idle(&self, slots: SlotRange, epoch: Epoch) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that no end is missed.
            ended.as_mut().enable();
            let awaited = |running: &Running| slots.contains(running.slot) && running.epoch <= epoch;
            if !self.work.lock().running.iter().any(|(_, running)| awaited(running)) {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn all(&self) -> SlotRange {
        SlotRange { start: 0, end: u32::try_from(self.states.len()).unwrap_or(u32::MAX) }
    }

    /// How much is in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.work.lock().running.len()
    }

    /// Whether new work may begin on a slot, without keeping count of it.
    pub(crate) fn admits(&self, slot: Slot) -> bool {
        let in_time = || self.now() < self.deadline();
        if self.state(slot) & OPEN == 0 {
            return false;
        }
        in_time() || {
            self.miss(slot);
            // The deadline may have been put off before the note was made, which then was overlooked.
            in_time()
        }
    }

    /// How many slots are worked on.
    pub(crate) fn open_slots(&self) -> usize {
        self.states.iter().filter(|state| state.load(Ordering::Relaxed) & OPEN != 0).count()
    }

    /// Begins work on a slot, if it is ours. The check and the count are one step: a drain sees the work or the work sees the
    /// drain.
    pub(crate) fn enter(self: &Arc<Self>, slot: Slot) -> Option<Pass> {
        let mut work = self.work.lock();
        if !self.admits(slot) {
            return None;
        }
        let epoch = self.state(slot) >> 1;
        let lost = CancellationToken::new();
        let place = work.running.insert(Running { slot, epoch, lost: lost.clone() });
        let (holding, began) = (self.clone(), self.clock.now());
        Some(Pass { holding, slot, epoch, lost, place, began })
    }

    /// Until when writes for this slot and epoch may be sent.
    fn permit(&self, slot: Slot, epoch: Epoch) -> Option<Permit> {
        let remaining = self.deadline().since(self.now());
        (self.state(slot) >> 1 == epoch && !remaining.is_zero()).then_some(Permit { slot, epoch, remaining })
    }

    /// What the slots cost since the last call, in milliseconds: the busiest first.
    pub(crate) fn take_costs(&self) -> Vec<(Slot, u32)> {
        let taken = (0..).zip(self.costs.iter()).map(|(slot, cost)| (slot, cost.swap(0, Ordering::Relaxed)));
        let millis = |micros: u64| u32::try_from(micros / 1000).unwrap_or(u32::MAX);
        let mut costs: Vec<(Slot, u32)> =
            taken.filter(|(_, cost)| *cost >= 1000).map(|(slot, cost)| (slot, millis(cost))).collect();
        costs.sort_by_key(|(slot, cost)| (std::cmp::Reverse(*cost), *slot));
        costs
    }

    fn state(&self, slot: Slot) -> u64 {
        self.states.get(slot as usize).map_or(0, |state| state.load(Ordering::SeqCst))
    }

    fn each(&self, slots: SlotRange, change: impl Fn(&AtomicU64)) {
        slots.slots().filter_map(|slot| self.states.get(slot as usize)).for_each(change);
    }
}

impl Work {
    fn cancel(&self, which: impl Fn(&Running) -> bool) -> usize {
        let running = self.running.iter().filter(|(_, running)| which(running));
        running.map(|(_, running)| running.lost.cancel()).count()
    }
}

/// Work in flight on one slot.
pub(crate) struct Pass {
    holding: Arc<Holding>,
    pub(crate) slot: Slot,
    pub(crate) epoch: Epoch,
    pub(crate) lost: CancellationToken,
    place: usize,
    began: Duration,
}

impl Pass {
    /// Stops the writes of this work when the slot is lost or the time is over.
    pub(crate) fn fence(&self) -> Fence {
        let (holding, slot, epoch) = (self.holding.clone(), self.slot, self.epoch);
        Fence::new(move || holding.permit(slot, epoch))
    }

    /// How long the work has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.holding.clock.now().saturating_sub(self.began)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let micros = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(cost) = self.holding.costs.get(self.slot as usize) {
            cost.fetch_add(micros, Ordering::Relaxed);
        }
        self.holding.work.lock().running.try_remove(self.place);
        self.holding.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_secs(5);

    fn holding() -> Arc<Holding> {
        let holding = Holding::new(SlotCount::new(4).unwrap(), Monotonic::tokio());
        holding.set_deadline(holding.now() + Duration::from_secs(10), MARGIN);
        holding
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_only_on_open_slots_and_before_the_deadline() {
        let holding = holding();
        assert!(holding.enter(1).is_none());
        holding.open(SlotRange::one(1), 3);
        assert_eq!(holding.enter(1).unwrap().epoch, 3);
        assert!(holding.enter(0).is_none() && holding.enter(9).is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(holding.enter(1).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_what_is_in_flight_which_may_go_on_writing() {
        let holding = holding();
        holding.open(SlotRange::one(1), 3);
        let pass = holding.enter(1).unwrap();
        holding.close(SlotRange::one(1));
        assert!(holding.enter(1).is_none());
        assert_eq!(pass.fence().check().unwrap().epoch, 3);
        let waited = tokio::time::timeout(Duration::from_secs(5), holding.idle(SlotRange::one(1), 3));
        assert!(waited.await.is_err());
        let fence = pass.fence();
        drop(pass);
        holding.idle(SlotRange::one(1), 3).await;
        holding.release(SlotRange::one(1), 3);
        assert!(fence.check().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_slot_cancels_its_work_and_stops_its_writes() {
        let holding = holding();
        holding.open(holding.all(), 3);
        let (lost, kept) = (holding.enter(1).unwrap(), holding.enter(2).unwrap());
        assert_eq!(holding.drop_slots(SlotRange::one(1)), 1);
        assert!(lost.lost.is_cancelled() && lost.fence().check().is_err());
        assert!(!kept.lost.is_cancelled() && kept.fence().check().is_ok());
        holding.open(SlotRange::one(1), 4);
        assert!(lost.fence().check().is_err(), "the old epoch never writes again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_turned_away_or_cut_off_for_want_of_time_is_known_by_its_slot() {
        let holding = holding();
        holding.open(SlotRange { start: 0, end: 3 }, 3);
        let pass = holding.enter(0).unwrap();
        assert!(!holding.has_missed());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!holding.admits(1) && holding.enter(2).is_none() && !holding.admits(3));
        holding.cancel_all();
        drop(pass);
        holding.close(SlotRange::one(2));
        holding.set_deadline(holding.now() + Duration::from_secs(10), MARGIN);
        assert_eq!(holding.take_missed(), [0, 1], "what is not open comes with its opening");
        assert!(holding.take_missed().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_was_called_off_leaves_later_work_alone() {
        let holding = holding();
        holding.open(SlotRange::one(1), 3);
        let old = holding.enter(1).unwrap();
        holding.close(SlotRange::one(1));
        holding.open(SlotRange::one(1), 4);
        let new = holding.enter(1).unwrap();
        assert_eq!(holding.cancel(SlotRange::one(1), 3), 1);
        assert!(old.lost.is_cancelled() && !new.lost.is_cancelled());
        drop(old);
        holding.idle(SlotRange::one(1), 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_does_not_take_what_came_back_under_a_later_epoch() {
        let holding = holding();
        holding.open(SlotRange::one(1), 4);
        holding.release(SlotRange::one(1), 3);
        assert!(holding.admits(1));
    }
}
