//! One table: its objects, the events of it that the history keeps, and the watchers that wait for more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::{Mutex, RwLock};

use crate::object::{Event, EventKind, Object};
use crate::pages::Pages;

/// A table. Locks are taken in the order `objects`, `ring`; only the committer writes, and it publishes the store's
/// revision while it holds both. So under either lock the revision read belongs to the content seen.
pub(crate) struct Table {
    pub name: Arc<str>,
    pub objects: RwLock<Pages>,
    pub ring: RwLock<Ring>,
    waiting: Mutex<Waiting>,
}

/// The events of one table that are still kept, oldest first.
pub(crate) struct Ring {
    events: VecDeque<(u64, Arc<Event>)>,
    /// Reads of the past and new watches from before this revision are refused.
    pub floor: u64,
    /// The newest event dropped from this ring: a cursor before it has missed something.
    pub dropped: u64,
}

/// One slot per watcher, so that a watcher polled many times is woken once.
#[derive(Default)]
struct Waiting {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Table {
    /// A table whose history begins at `floor`.
    pub(crate) fn new(name: Arc<str>, objects: Pages, floor: u64) -> Table {
        Table {
            name,
            objects: RwLock::new(objects),
            ring: RwLock::new(Ring { events: VecDeque::new(), floor, dropped: floor }),
            waiting: Mutex::default(),
        }
    }

    /// The current object of a key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.objects.read().get(key).cloned()
    }

    /// Makes an event visible, and its revision with it.
    pub(crate) fn commit(&self, event: Arc<Event>, visible: &AtomicU64) {
        let mut objects = self.objects.write();
        match event.kind {
            EventKind::Created | EventKind::Updated => objects.insert(event.object.clone()),
            EventKind::Deleted => objects.remove(&event.object.key),
        };
        let mut ring = self.ring.write();
        let revision = event.revision;
        ring.events.push_back((revision, event));
        visible.store(revision, Ordering::Release);
    }

    /// Wakes the watchers. To be called after `commit`, without locks held.
    pub(crate) fn wake(&self) {
        // Taking the wakers out first keeps this lock short.
        let wakers: Vec<Waker> = self.waiting.lock().slots.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// A slot for a new watcher.
    pub(crate) fn join(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.free.pop().unwrap_or_else(|| {
            waiting.slots.push(None);
            waiting.slots.len() - 1
        })
    }

    /// Frees the slot of a watcher.
    pub(crate) fn leave(&self, slot: usize) {
        let mut waiting = self.waiting.lock();
        waiting.slots[slot] = None;
        waiting.free.push(slot);
    }

    /// Asks for a wake-up at the next event.
    pub(crate) fn wait(&self, slot: usize, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        match &mut waiting.slots[slot] {
            Some(present) if present.will_wake(waker) => {}
            present => *present = Some(waker.clone()),
        }
    }
}

impl Ring {
    /// Drops the oldest event, which has this revision.
    pub(crate) fn drop_oldest(&mut self, revision: u64) {
        self.events.pop_front();
        self.dropped = self.dropped.max(revision);
        self.floor = self.floor.max(revision);
    }

    /// The revision of the newest event kept, 0 without events.
    pub(crate) fn newest(&self) -> u64 {
        self.events.back().map_or(0, |(revision, _)| *revision)
    }

    /// The events after a revision, oldest first.
    pub(crate) fn after(
        &self,
        revision: u64,
    ) -> impl DoubleEndedIterator<Item = &Arc<Event>> + ExactSizeIterator {
        let start = self.events.partition_point(|(at, _)| *at <= revision);
        self.events.range(start..).map(|(_, event)| event)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}
