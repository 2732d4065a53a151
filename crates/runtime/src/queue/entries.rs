//! Where keys live: each key once, in a slab, found by its hash and chained into lists without allocating.

use std::time::Duration;

use slab::Slab;

use super::Priority;
use super::index::Index;

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
    /// Until this tick.
    Waiting(u64),
}

/// All that is known of one key.
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) digest: Digest,
    pub(super) place: Place,
    /// Of the run to come, or of the current one if none is due.
    pub(super) priority: Priority,
    pub(super) running: bool,
    /// Added while running: runs once more.
    pub(super) again: bool,
    /// Rate limited adds since the last `forget`.
    pub(super) retries: u32,
    /// When it became ready or began to wait.
    pub(super) since: Duration,
    previous: Slot,
    next: Slot,
}

impl<K> Entry<K> {
    pub(super) fn new(key: K, digest: Digest, priority: Priority, now: Duration) -> Entry<K> {
        Entry {
            key,
            digest,
            place: Place::Nowhere,
            priority,
            running: false,
            again: false,
            retries: 0,
            since: now,
            previous: NIL,
            next: NIL,
        }
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

    /// Keeps a key that is not there yet.
    pub(super) fn insert(&mut self, entry: Entry<K>) -> Slot {
        let hash = entry.digest.hash;
        let slot = self.slab.insert(entry) as Slot;
        self.index.insert(hash, slot);
        slot
    }

    /// Forgets a key that is in no list.
    pub(super) fn remove(&mut self, slot: Slot) {
        let entry = self.slab.remove(slot as usize);
        self.index.remove(entry.digest.hash, slot);
        self.give_back_memory();
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
