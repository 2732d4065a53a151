//! The queue without threads and timers: what each call does to the keys.
//!
//! A key is in at most one list (ready or waiting) and on at most one worker.
//!
//! ```text
//!              add                 take                 finish
//!   (absent) ───────▶  ready  ───────────▶  running  ───────────▶  (absent, or kept for its retries)
//!      │                ▲  ▲                   │  added meanwhile
//!      │ add_after      │  └───────────────────┘  or retried
//!      ▼                │ time passes
//!   waiting ────────────┘  or an add
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff::{self, Bucket};
use super::entries::{Digest, Entries, List, Place, Slot};
use super::lanes::Lanes;
use super::{Next, Priority, Settings};

/// Delays beyond this are not told apart.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The keys and everything about them. All times are since the queue was made.
pub(super) struct Core<K> {
    pub(super) entries: Entries<K>,
    pub(super) lanes: Lanes,
    /// Waiting keys by the millisecond at which they are due.
    pub(super) timers: BTreeMap<u64, List>,
    pub(super) waiting: usize,
    pub(super) running: usize,
    /// Keys that became ready, or became due again while they ran.
    pub(super) adds: u64,
    /// Rate limited adds.
    pub(super) retries: u64,
    pub(super) closed: bool,
    bucket: Bucket,
    pub(super) settings: Settings,
}

/// A key handed to a worker.
pub(super) struct Took<K> {
    pub(super) slot: Slot,
    pub(super) key: K,
    pub(super) priority: Priority,
    pub(super) retries: u32,
    /// When it became ready.
    pub(super) since: Duration,
}

/// What a call changed that someone may be waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Keys that became ready.
    pub(super) ready: usize,
    /// The next timer is earlier than before.
    pub(super) sooner: bool,
}

impl std::ops::AddAssign for Effects {
    fn add_assign(&mut self, other: Effects) {
        self.ready += other.ready;
        self.sooner |= other.sooner;
    }
}

const NOTHING: Effects = Effects { ready: 0, sooner: false };

impl<K> Core<K> {
    pub(super) fn new(settings: Settings) -> Core<K> {
        Core {
            entries: Entries::default(),
            lanes: Lanes::default(),
            timers: BTreeMap::new(),
            waiting: 0,
            running: 0,
            adds: 0,
            retries: 0,
            closed: false,
            bucket: Bucket::default(),
            settings,
        }
    }

    /// Makes a key ready, or due again if it is running.
    pub(super) fn add(&mut self, key: K, digest: Digest, priority: Priority, now: Duration) -> Effects
    where
        K: Eq,
    {
        if self.closed {
            return NOTHING;
        }
        match self.entries.find_or_insert(key, digest, priority) {
            (slot, true) => self.make_ready(slot, now),
            (slot, false) => self.add_known(slot, priority, now),
        }
    }

    /// Makes a key ready after a delay, unless it is ready or waits for something earlier.
    pub(super) fn add_after(&mut self, key: K, digest: Digest, delay: Duration, now: Duration) -> Effects
    where
        K: Eq,
    {
        if self.closed {
            return NOTHING;
        }
        let slot = self.known(key, digest);
        self.wait(slot, delay, now)
    }

    /// Makes a key ready after the delay of its next retry.
    pub(super) fn add_rate_limited(&mut self, key: K, digest: Digest, now: Duration) -> Effects
    where
        K: Eq,
    {
        if self.closed {
            return NOTHING;
        }
        let slot = self.known(key, digest);
        self.retry(slot, now)
    }

    /// Hands out the key whose turn it is.
    pub(super) fn take(&mut self) -> Option<Took<K>>
    where
        K: Clone,
    {
        let slot = self.lanes.pop(&mut self.entries)?;
        let entry = self.entries.at(slot);
        entry.place = Place::Nowhere;
        entry.running = true;
        self.running += 1;
        Some(Took {
            slot,
            key: entry.key.clone(),
            priority: entry.priority,
            retries: entry.retries,
            since: entry.since(),
        })
    }

    /// A worker is done with a key. Most often nobody needs to know the time.
    pub(super) fn finish(&mut self, slot: Slot, next: Next, now: impl Fn() -> Duration) -> Effects {
        let entry = self.entries.at(slot);
        entry.running = false;
        self.running -= 1;
        if matches!(next, Next::Forget | Next::After(_)) {
            entry.retries = 0;
        }
        let again = std::mem::take(&mut entry.again);
        let mut effects = match next {
            Next::Done | Next::Forget => NOTHING,
            // What is due anyway needs no timer; a retry counts all the same.
            Next::Retry if again => {
                entry.retries = entry.retries.saturating_add(1);
                self.retries += 1;
                NOTHING
            }
            Next::After(_) if again => NOTHING,
            Next::Retry if !self.closed => self.retry(slot, now()),
            Next::After(delay) if !self.closed => self.wait(slot, delay, now()),
            Next::Retry | Next::After(_) => NOTHING,
        };
        if again {
            self.push_ready(slot, now());
            effects.ready += 1;
        }
        self.drop_idle(slot);
        effects
    }

    /// Makes keys ready whose time has come, so many at most.
    pub(super) fn fire(&mut self, now: Duration, limit: usize) -> Effects {
        let tick = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut effects = NOTHING;
        for _ in 0..limit {
            let Some(mut due) = self.timers.first_entry().filter(|due| *due.key() <= tick) else { break };
            let slot = self.entries.pop_front(due.get_mut());
            if due.get().is_empty() {
                due.remove();
            }
            let Some(slot) = slot else { continue };
            self.waiting -= 1;
            self.entries.at(slot).place = Place::Nowhere;
            effects += self.make_ready(slot, now);
        }
        effects
    }

    /// When `fire` has something to do.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|(tick, _)| Duration::from_millis(*tick))
    }

    /// Forgets how often a key was retried.
    pub(super) fn forget(&mut self, key: &K, digest: Digest)
    where
        K: Eq,
    {
        if let Some(slot) = self.entries.find(digest, key) {
            self.entries.at(slot).retries = 0;
            self.drop_idle(slot);
        }
    }

    /// How often a key was retried since it was last forgotten.
    pub(super) fn num_requeues(&self, key: &K, digest: Digest) -> u32
    where
        K: Eq,
    {
        self.entries.find(digest, key).map_or(0, |slot| self.entries.peek(slot).retries)
    }

    /// Accepts no more keys and gives up those that wait; ready ones are still handed out.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for (_, mut list) in std::mem::take(&mut self.timers) {
            while let Some(slot) = self.entries.pop_front(&mut list) {
                self.entries.at(slot).place = Place::Nowhere;
                self.drop_idle(slot);
            }
        }
        self.waiting = 0;
    }

    /// Gives up the ready keys too.
    pub(super) fn discard(&mut self) -> usize {
        let slots = self.lanes.clear(&mut self.entries);
        for slot in &slots {
            self.entries.at(*slot).place = Place::Nowhere;
            self.drop_idle(*slot);
        }
        slots.len()
    }

    /// Closed, and nothing is ready or running.
    pub(super) fn is_drained(&self) -> bool {
        self.closed && self.running == 0 && self.lanes.len() == 0
    }

    /// The slot of a key that a timer is to be set for. A key that is nowhere has no priority to keep.
    fn known(&mut self, key: K, digest: Digest) -> Slot
    where
        K: Eq,
    {
        let (slot, _) = self.entries.find_or_insert(key, digest, Priority::Live);
        let entry = self.entries.at(slot);
        if entry.place == Place::Nowhere && !entry.running {
            entry.priority = Priority::Live;
        }
        slot
    }

    fn add_known(&mut self, slot: Slot, priority: Priority, now: Duration) -> Effects {
        let entry = self.entries.at(slot);
        let old = entry.priority;
        match entry.place {
            Place::Ready if priority > old => {
                self.lanes.unlink(&mut self.entries, slot);
                self.entries.at(slot).priority = priority;
                self.lanes.push(&mut self.entries, slot);
                return NOTHING;
            }
            Place::Ready => return NOTHING,
            Place::Waiting => {
                entry.priority = priority.max(old);
                self.stop_waiting(slot);
            }
            Place::Nowhere => entry.priority = if entry.again { priority.max(old) } else { priority },
        }
        self.make_ready(slot, now)
    }

    fn stop_waiting(&mut self, slot: Slot) {
        let tick = self.entries.peek(slot).due;
        if let Some(list) = self.timers.get_mut(&tick) {
            self.entries.unlink(list, slot);
            if list.is_empty() {
                self.timers.remove(&tick);
            }
            self.waiting -= 1;
        }
        self.entries.at(slot).place = Place::Nowhere;
    }

    /// For a key that is in no list.
    fn make_ready(&mut self, slot: Slot, now: Duration) -> Effects {
        let entry = self.entries.at(slot);
        if !entry.running {
            self.adds += 1;
            self.push_ready(slot, now);
            return Effects { ready: 1, sooner: false };
        }
        if !entry.again {
            self.adds += 1;
            entry.again = true;
        }
        NOTHING
    }

    fn push_ready(&mut self, slot: Slot, now: Duration) {
        let entry = self.entries.at(slot);
        entry.place = Place::Ready;
        entry.set_since(now);
        self.lanes.push(&mut self.entries, slot);
    }

    fn retry(&mut self, slot: Slot, now: Duration) -> Effects {
        let entry = self.entries.at(slot);
        entry.retries = entry.retries.saturating_add(1);
        self.retries += 1;
        let own = backoff::exponential(&self.settings, entry.retries);
        let overall = self.bucket.reserve(&self.settings, now);
        self.wait(slot, own.max(overall), now)
    }

    fn wait(&mut self, slot: Slot, delay: Duration, now: Duration) -> Effects {
        let entry = self.entries.at(slot);
        if entry.place == Place::Ready || entry.again {
            return NOTHING;
        }
        let due = now.saturating_add(delay.min(LONGEST_DELAY));
        // Rounded up: never early.
        let tick = u64::try_from(due.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        if entry.place == Place::Waiting {
            if entry.due <= tick {
                return NOTHING;
            }
            self.stop_waiting(slot);
        }
        if delay.is_zero() {
            return self.make_ready(slot, now);
        }
        let entry = self.entries.at(slot);
        entry.place = Place::Waiting;
        entry.due = tick;
        entry.set_since(now);
        let sooner = self.timers.first_key_value().is_none_or(|(first, _)| tick < *first);
        let list = self.timers.entry(tick).or_default();
        self.entries.push_back(list, slot);
        self.waiting += 1;
        Effects { ready: 0, sooner }
    }

    /// A key of which there is nothing to remember is not remembered.
    fn drop_idle(&mut self, slot: Slot) {
        let entry = self.entries.peek(slot);
        if entry.place == Place::Nowhere && !entry.running && entry.retries == 0 {
            self.entries.remove(slot);
        }
    }
}
