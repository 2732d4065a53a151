//! Where keys live: each key once, in a slab, found by its hash and chained into lists without allocating.

use std::time::Duration;

use slab::Slab;

use super::Priority;
use super::index::{Cell, Index};

/// The number of a key's place in the slab.
pub(super) type Slot = u32;

const NIL: Slot = Slot::MAX;

/// What is computed from a key before the lock is taken.
#[derive(Clone, Copy)]
pub(super) struct Digest {
    /// Hash of the key.
    pub(super) hash: u32,
    /// Keys of one group take turns with those of other groups.
    pub(super) group: u32,
}

/// The list that holds a key. A running key is in none, unless it waits for a later run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    Ready,
    /// Until `Entry::due`.
    Waiting,
}

/// All that is known of one key. A million of them are walked through: every byte counts.
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) digest: Digest,
    /// The tick for which a waiting key waits.
    pub(super) due: u64,
    since: u64,
    /// Where it is in the index.
    cell: Cell,
    previous: Slot,
    next: Slot,
    /// Rate limited adds since the last `forget`.
    pub(super) retries: u32,
    pub(super) place: Place,
    /// Of the run to come, or of the current one if none is due.
    pub(super) priority: Priority,
    pub(super) running: bool,
    /// Added while running: runs once more.
    pub(super) again: bool,
}

impl<K> Entry<K> {
    /// When it became ready or began to wait.
    pub(super) fn since(&self) -> Duration {
        Duration::from_nanos(self.since)
    }

    pub(super) fn set_since(&mut self, now: Duration) {
        // Enough for 580 years.
        self.since = now.as_nanos() as u64;
    }
}

/// A first-in first-out chain of slots; the links are in the entries.
#[derive(Clone, Copy)]
pub(super) struct List {
    head: Slot,
    tail: Slot,
}

impl Default for List {
    fn default() -> List {
        List { head: NIL, tail: NIL }
    }
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

/// The slab and the index into it.
pub(super) struct Entries<K> {
    slab: Slab<Entry<K>>,
    index: Index,
}

impl<K> Default for Entries<K> {
    fn default() -> Entries<K> {
        Entries { slab: Slab::new(), index: Index::default() }
    }
}

impl<K> Entries<K> {
    pub(super) fn at(&mut self, slot: Slot) -> &mut Entry<K> {
        &mut self.slab[slot as usize]
    }

    pub(super) fn peek(&self, slot: Slot) -> &Entry<K> {
        &self.slab[slot as usize]
    }

    pub(super) fn find(&self, digest: Digest, key: &K) -> Option<Slot>
    where
        K: Eq,
    {
        self.index.find(digest.hash, |slot| self.slab[slot as usize].key == *key)
    }

    /// The slot of a key, and whether it is new: then it is in no list and not running.
    pub(super) fn find_or_insert(&mut self, key: K, digest: Digest, priority: Priority) -> (Slot, bool)
    where
        K: Eq,
    {
        if let Some(slot) = self.find(digest, &key) {
            return (slot, false);
        }
        if self.index.is_full() {
            self.grow();
        }
        let vacant = self.slab.vacant_entry();
        let slot = vacant.key() as Slot;
        vacant.insert(Entry {
            key,
            digest,
            due: 0,
            since: 0,
            cell: self.index.insert(digest.hash, slot),
            previous: NIL,
            next: NIL,
            retries: 0,
            place: Place::Nowhere,
            priority,
            running: false,
            again: false,
        });
        (slot, true)
    }

    /// Forgets a key that is in no list.
    pub(super) fn remove(&mut self, slot: Slot) {
        let entry = self.slab.remove(slot as usize);
        self.index.remove(entry.digest.hash, entry.cell);
        self.give_back_memory();
    }

    fn grow(&mut self) {
        self.index = self.index.grown();
        // In the order of the slab: its memory is read as it lies.
        for (slot, entry) in &mut self.slab {
            entry.cell = self.index.insert(entry.digest.hash, slot as Slot);
        }
    }

    /// A burst of a million keys must not be paid for ever after.
    fn give_back_memory(&mut self) {
        if self.slab.is_empty() && self.slab.capacity() > 4096 {
            self.slab = Slab::with_capacity(1024);
            self.index = Index::default();
        }
    }

    pub(super) fn push_back(&mut self, list: &mut List, slot: Slot) {
        let tail = list.tail;
        let entry = self.at(slot);
        entry.previous = tail;
        entry.next = NIL;
        match tail {
            NIL => list.head = slot,
            tail => self.at(tail).next = slot,
        }
        list.tail = slot;
    }

    pub(super) fn unlink(&mut self, list: &mut List, slot: Slot) {
        let entry = self.at(slot);
        let (previous, next) = (entry.previous, entry.next);
        entry.previous = NIL;
        entry.next = NIL;
        match previous {
            NIL => list.head = next,
            previous => self.at(previous).next = next,
        }
        match next {
            NIL => list.tail = previous,
            next => self.at(next).previous = previous,
        }
    }

    pub(super) fn pop_front(&mut self, list: &mut List) -> Option<Slot> {
        let slot = list.head;
        if slot == NIL {
            return None;
        }
        self.unlink(list, slot);
        Some(slot)
    }

    /// The entries of a list, first to last.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = &Entry<K>> {
        let mut slot = list.head;
        std::iter::from_fn(move || {
            let entry = (slot != NIL).then(|| self.peek(slot))?;
            slot = entry.next;
            Some(entry)
        })
    }
}
