//! Decoded objects beside the encoded ones: as many as are allowed, the recently read ones stay.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

const SHARDS: usize = 16;

/// What was decoded to `K`, by the id of the encoded object. `None` stands for what cannot be decoded.
///
/// Second chance (CLOCK): a read marks an object, the hand takes marks away and evicts what it finds without one.
pub(crate) struct Decoded<K> {
    shards: Box<[RwLock<Shard<K>>]>,
    capacity: usize,
}

struct Shard<K> {
    places: HashMap<u64, usize, BuildHasherDefault<IdHasher>>,
    slots: Vec<Slot<K>>,
    hand: usize,
}

struct Slot<K> {
    id: u64,
    object: Option<Arc<K>>,
    used: AtomicBool,
}

impl<K> Decoded<K> {
    pub fn new(capacity: usize) -> Decoded<K> {
        let shard = || RwLock::new(Shard { places: HashMap::default(), slots: Vec::new(), hand: 0 });
        Decoded { shards: (0..SHARDS).map(|_| shard()).collect(), capacity: capacity.div_ceil(SHARDS) }
    }

    fn shard(&self, id: u64) -> &RwLock<Shard<K>> {
        &self.shards[id as usize % SHARDS]
    }

    /// What was decoded of this object, if it is still here.
    #[allow(clippy::option_option, reason = "not decoded yet, and cannot be decoded, are different things")]
    pub fn get(&self, id: u64) -> Option<Option<Arc<K>>> {
        let shard = self.shard(id).read();
        let slot = &shard.slots[*shard.places.get(&id)?];
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(slot.object.clone())
    }

    /// Keeps what was decoded.
    pub fn insert(&self, id: u64, object: Option<Arc<K>>) {
        if self.capacity == 0 {
            return;
        }
        let mut guard = self.shard(id).write();
        let shard = &mut *guard;
        if shard.places.contains_key(&id) {
            return;
        }
        let slot = Slot { id, object, used: AtomicBool::new(false) };
        if shard.slots.len() < self.capacity {
            shard.places.insert(id, shard.slots.len());
            shard.slots.push(slot);
            return;
        }
        let place = loop {
            let place = shard.hand % shard.slots.len();
            shard.hand = place + 1;
            if !shard.slots[place].used.swap(false, Ordering::Relaxed) {
                break place;
            }
        };
        let evicted = std::mem::replace(&mut shard.slots[place], slot);
        shard.places.remove(&evicted.id);
        shard.places.insert(id, place);
        drop(guard);
        drop(evicted);
    }

    /// The object is not held any more.
    pub fn remove(&self, id: u64) {
        let mut guard = self.shard(id).write();
        let shard = &mut *guard;
        let Some(place) = shard.places.remove(&id) else {
            return;
        };
        let removed = shard.slots.swap_remove(place);
        if let Some(moved) = shard.slots.get(place) {
            shard.places.insert(moved.id, place);
        }
        drop(guard);
        drop(removed);
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().slots.len()).sum()
    }
}

/// Ids are counted, so they are their own hash; mixed, because tables look at the upper bits.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_allowed_and_what_is_read_stays() {
        let decoded = Decoded::new(SHARDS * 4);
        let one_shard = |n: u64| n * SHARDS as u64;
        for n in 0..4 {
            decoded.insert(one_shard(n), Some(Arc::new(n)));
        }
        for n in 4..100 {
            assert_eq!(decoded.get(one_shard(0)).unwrap().as_deref(), Some(&0));
            decoded.insert(one_shard(n), Some(Arc::new(n)));
            assert_eq!(decoded.len(), 4);
        }
        decoded.remove(one_shard(0));
        assert!(decoded.get(one_shard(0)).is_none());
        assert_eq!(decoded.len(), 3);
        for n in 0..100 {
            decoded.remove(one_shard(n));
        }
        assert_eq!(decoded.len(), 0);
    }

    #[test]
    fn what_cannot_be_decoded_is_remembered_as_such() {
        let decoded = Decoded::<u64>::new(10);
        assert!(decoded.get(1).is_none());
        decoded.insert(1, None);
        assert_eq!(decoded.get(1), Some(None));
    }
}
