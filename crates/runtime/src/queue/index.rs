//! From a hash to slots, in one array: a key is found, added and removed by touching one or two cache lines.
//!
//! Open addressing with linear probing. A cell holds part of the hash beside the slot, so that growing and removing
//! need not look at the keys. Removing moves later cells back, so there are no tombstones to sweep.

use super::entries::Slot;

const EMPTY: u64 = u64::MAX;
const SMALLEST: usize = 16;

/// The slots of all keys, by hash.
pub(super) struct Index {
    /// A power of two of them, at most three quarters full.
    cells: Vec<u64>,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { cells: vec![EMPTY; SMALLEST], len: 0 }
    }
}

impl Index {
    /// The slot with this hash that `is_it` accepts.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.position(hash, is_it).map(|place| slot_of(self.cells[place]))
    }

    /// Adds a slot that is not there.
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        if (self.len + 1) * 4 > self.cells.len() * 3 {
            let doubled = vec![EMPTY; self.cells.len() * 2];
            let old = std::mem::replace(&mut self.cells, doubled);
            old.into_iter().filter(|cell| *cell != EMPTY).for_each(|cell| self.put(cell));
        }
        self.put(u64::from(hash) << 32 | u64::from(slot));
        self.len += 1;
    }

    /// Removes a slot that is there.
    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        let Some(mut hole) = self.position(hash, |other| other == slot) else { return };
        self.len -= 1;
        let mask = self.mask();
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let cell = self.cells[place];
            if cell == EMPTY {
                break;
            }
            // A cell may move back as far as its home, not before it.
            let way = place.wrapping_sub(home(cell) as usize) & mask;
            if way >= place.wrapping_sub(hole) & mask {
                self.cells[hole] = cell;
                hole = place;
            }
        }
        self.cells[hole] = EMPTY;
    }

    fn position(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<usize> {
        let mask = self.mask();
        let mut place = hash as usize & mask;
        loop {
            let cell = self.cells[place];
            if cell == EMPTY {
                return None;
            }
            if home(cell) == hash && is_it(slot_of(cell)) {
                return Some(place);
            }
            place = (place + 1) & mask;
        }
    }

    fn put(&mut self, cell: u64) {
        let mask = self.mask();
        let mut place = home(cell) as usize & mask;
        while self.cells[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.cells[place] = cell;
    }

    fn mask(&self) -> usize {
        self.cells.len() - 1
    }
}

fn home(cell: u64) -> u32 {
    (cell >> 32) as u32
}

fn slot_of(cell: u64) -> Slot {
    cell as Slot
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_added_and_not_removed_is_found(
            steps in prop::collection::vec((any::<bool>(), 0u32..400, prop::sample::select(vec![1u32, 7, 64, u32::MAX])), 0..600)
        ) {
            let (mut index, mut reference) = (Index::default(), BTreeMap::new());
            for (add, slot, spread) in steps {
                // Few distinct hashes, many at the end of the array: long and wrapping runs.
                let hash = (slot / 3).wrapping_mul(spread);
                match (add, reference.contains_key(&slot)) {
                    (true, false) => {
                        index.insert(hash, slot);
                        reference.insert(slot, hash);
                    }
                    (false, true) => {
                        let hash = reference.remove(&slot).unwrap_or_default();
                        index.remove(hash, slot);
                    }
                    _ => {}
                }
            }
            for slot in 0..400 {
                let hashes = [1, 7, 64, u32::MAX].map(|spread| (slot / 3u32).wrapping_mul(spread));
                let found = hashes.iter().any(|hash| index.find(*hash, |other| other == slot).is_some());
                prop_assert_eq!(found, reference.contains_key(&slot));
            }
        }
    }
}
