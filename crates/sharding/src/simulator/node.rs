//! One simulated process: a replica with a clock, a cache, work in flight and a bad network.

use std::sync::Arc;
use std::time::Duration;

use crate::guards::{Guard, Guards};
use crate::replica::{Event, Replica};
use crate::settings::Settings;
use crate::slots::{Epoch, Slot, SlotRange};
use crate::time::Moment;

/// Work on one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) life: u32,
    /// The object as the cache had it.
    pub(super) version: u32,
    /// When it ends, in true time.
    pub(super) until: u64,
    /// It was told to stop and will have no effect.
    pub(super) doomed: bool,
    /// When it must have stopped, on the own clock; set when its replica's life ended.
    pub(super) cap: Option<Moment>,
}

pub(super) struct Node {
    pub(super) name: usize,
    /// Counts lives; messages to earlier ones are dropped.
    pub(super) life: u32,
    pub(super) replica: Option<Replica>,
    pub(super) settings: Arc<Settings>,
    /// Whether it shall be started again when it ends.
    pub(super) wanted: bool,
    /// Keys of this node's slots are shifted: it computes differently.
    pub(super) shift: u32,
    offset: u64,
    parts_per_million: u64,
    /// How long its clock stood still.
    frozen: u64,
    pub(super) paused_until: u64,
    pub(super) inbox: Vec<Event>,
    pub(super) cut_out: u64,
    pub(super) cut_in: u64,
    pub(super) watch_cut: u64,
    pub(super) wake: u64,
    pub(super) cached: Vec<u32>,
    pub(super) flights: Vec<Option<Flight>>,
    pub(super) in_flight: u32,
    pub(super) drains: Vec<(SlotRange, Epoch)>,
    /// How long stopping takes after the deadline: up to the margin.
    stopping: Duration,
}

impl Node {
    pub(super) fn new(name: usize, settings: Arc<Settings>, clock: (u64, u64), stopping: Duration) -> Node {
        let slots = settings.identity.slots.get() as usize;
        Node {
            name,
            life: 0,
            replica: None,
            settings,
            wanted: true,
            shift: 0,
            offset: clock.0,
            parts_per_million: clock.1,
            frozen: 0,
            paused_until: 0,
            inbox: Vec::new(),
            cut_out: 0,
            cut_in: 0,
            watch_cut: 0,
            wake: u64::MAX,
            cached: vec![0; slots],
            flights: vec![None; slots],
            in_flight: 0,
            drains: Vec::new(),
            stopping,
        }
    }

    /// The own clock at a true time.
    pub(super) fn clock(&self, time: u64) -> Moment {
        let time = time - self.frozen;
        Moment::from_micros(self.offset + time + time * self.parts_per_million / 1_000_000)
    }

    /// The true time at which the own clock has reached a moment.
    pub(super) fn true_time(&self, moment: Moment) -> u64 {
        let since = moment.micros().saturating_sub(self.offset);
        let time = (u128::from(since) * 1_000_000).div_ceil(u128::from(1_000_000 + self.parts_per_million));
        u64::try_from(time).unwrap_or(u64::MAX).saturating_add(self.frozen).saturating_add(1)
    }

    /// The machine slept; only a clock of the wrong sort did, too.
    pub(super) fn slept(&mut self, time: u64, guards: Guards) {
        if !guards.on(Guard::BootClock) {
            self.frozen += time;
        }
    }

    /// How long stopping takes after the deadline.
    pub(super) fn stopping_time(&self) -> Duration {
        self.stopping
    }

    /// Whether this process may have an effect on a slot's key at this true time.
    pub(super) fn has_authority(&self, slot: Slot, time: u64, guards: Guards) -> bool {
        let now = self.clock(time);
        let works = |replica: &Replica| replica.may_work(slot, now).is_some();
        self.replica.as_ref().is_some_and(works) || self.is_in_flight(slot, time, now, guards)
    }

    fn is_in_flight(&self, slot: Slot, time: u64, now: Moment, guards: Guards) -> bool {
        let Some(flight) = self.flights[slot as usize].filter(|flight| time < flight.until) else {
            return false;
        };
        let cap = flight
            .cap
            .or_else(|| self.replica.as_ref().map(|replica| replica.deadline() + self.stopping_time()));
        cap.is_some_and(|cap| now < cap) || !guards.on(Guard::Deadline)
    }

    /// Whether an earlier life of this process is still at it.
    pub(super) fn old_life_in_flight(&self, slot: Slot, time: u64, guards: Guards) -> bool {
        self.flights[slot as usize].is_some_and(|flight| flight.life != self.life)
            && self.is_in_flight(slot, time, self.clock(time), guards)
    }

    /// Ends this life. If the process goes on, its work is told to stop and does so within the margin.
    pub(super) fn end_life(&mut self, time: u64, process_goes_on: bool) {
        let cap = self.replica.take().map(|replica| replica.deadline() + self.stopping_time());
        self.life += 1;
        self.inbox.clear();
        self.drains.clear();
        self.wake = u64::MAX;
        let stop = time + self.stopping_time().as_micros() as u64;
        for flight in &mut self.flights {
            match flight {
                Some(running) if process_goes_on => {
                    running.cap = running.cap.or(cap);
                    running.until = running.until.min(stop);
                    running.doomed = true;
                }
                Some(_) => {
                    *flight = None;
                    self.in_flight -= 1;
                }
                None => {}
            }
        }
    }
}
