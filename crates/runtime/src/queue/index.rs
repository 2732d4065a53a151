//! From a hash to slots: a key is found, added and removed by touching one cache line.
//!
//! Open addressing over buckets of twelve cells, each bucket with one byte of the hash of each of its keys. A bucket
//! counts the keys that found it full and went on to the next one, so that a search knows where to end, and keys that
//! come and go leave nothing behind. Who is in the index knows their cell, so removing them need not search.

use super::entries::Slot;

/// Cells of a bucket.
const WIDTH: usize = 12;
/// No key is here.
const EMPTY: u8 = 0;

/// The number of a key's place: sixteen for each bucket. It changes when the index grows.
pub(super) type Cell = u32;

/// As long as a cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Bucket {
    slots: [Slot; WIDTH],
    tags: [u8; WIDTH],
    /// Keys behind this bucket that would be here or before it, had there been room.
    passed: u32,
}

/// The slots of all keys, by hash.
pub(super) struct Index {
    /// A power of two of them.
    buckets: Vec<Bucket>,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { buckets: vec![Bucket::default(); 2], len: 0 }
    }
}

impl Index {
    /// Whether there are so many keys that searches become long: three quarters of the cells.
    pub(super) fn is_full(&self) -> bool {
        (self.len + 1) * 4 > self.buckets.len() * WIDTH * 3
    }

    /// An empty index with room for more keys: for many more, because all of them must be put in anew.
    pub(super) fn grown(&self) -> Index {
        Index { buckets: vec![Bucket::default(); self.buckets.len() * 4], len: 0 }
    }

    /// The slot with this hash that `is_it` accepts.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let tag = tag(hash);
        let mut number = self.home(hash);
        loop {
            let bucket = &self.buckets[number];
            for (cell, other) in bucket.tags.iter().enumerate() {
                if *other == tag && is_it(bucket.slots[cell]) {
                    return Some(bucket.slots[cell]);
                }
            }
            if bucket.passed == 0 {
                return None;
            }
            number = self.after(number);
        }
    }

    /// Adds a slot that is not there. There must be room.
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) -> Cell {
        self.len += 1;
        let mut number = self.home(hash);
        loop {
            let bucket = &mut self.buckets[number];
            if let Some(cell) = bucket.tags.iter().position(|other| *other == EMPTY) {
                bucket.tags[cell] = tag(hash);
                bucket.slots[cell] = slot;
                return (number * 16 + cell) as Cell;
            }
            bucket.passed += 1;
            number = self.after(number);
        }
    }

    /// Removes what is in a cell, and has this hash.
    pub(super) fn remove(&mut self, hash: u32, cell: Cell) {
        self.len -= 1;
        let (place, cell) = (cell as usize / 16, cell as usize % 16);
        self.buckets[place].tags[cell] = EMPTY;
        let mut number = self.home(hash);
        while number != place {
            self.buckets[number].passed -= 1;
            number = self.after(number);
        }
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn after(&self, number: usize) -> usize {
        (number + 1) & (self.buckets.len() - 1)
    }
}

/// Bits of the hash that the number of the bucket does not have.
fn tag(hash: u32) -> u8 {
    ((hash >> 24) as u8).max(EMPTY + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn hash(slot: Slot, spread: u32) -> u32 {
        // Few distinct hashes, many at the end of the array: long and wrapping runs.
        (slot / 3).wrapping_mul(spread)
    }

    proptest! {
        #[test]
        fn what_was_added_and_not_removed_is_found(
            steps in prop::collection::vec((any::<bool>(), 0u32..400), 0..900),
            spread in prop::sample::select(vec![0u32, 1, 7, 64, 0x0100_0001, u32::MAX]),
        ) {
            let (mut index, mut cells) = (Index::default(), BTreeMap::new());
            for (add, slot) in steps {
                match (add, cells.get(&slot).copied()) {
                    (true, None) => {
                        if index.is_full() {
                            index = index.grown();
                            for (known, cell) in &mut cells {
                                *cell = index.insert(hash(*known, spread), *known);
                            }
                        }
                        cells.insert(slot, index.insert(hash(slot, spread), slot));
                    }
                    (false, Some(cell)) => {
                        index.remove(hash(slot, spread), cell);
                        cells.remove(&slot);
                    }
                    _ => {}
                }
            }
            for slot in 0..400 {
                let found = index.find(hash(slot, spread), |other| other == slot);
                prop_assert_eq!(found, cells.contains_key(&slot).then_some(slot));
            }
            for (slot, cell) in &cells {
                index.remove(hash(*slot, spread), *cell);
            }
            prop_assert!(index.buckets.iter().all(|bucket| bucket.passed == 0), "nothing is left behind");
        }
    }

    #[test]
    fn a_bucket_is_as_long_as_a_cache_line() {
        assert_eq!(size_of::<Bucket>(), 64);
    }
}
