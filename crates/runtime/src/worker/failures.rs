//! Which keys fail, why, and since when: kept for inspection until the key succeeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::queue::Taken;
use crate::reconcile::Class;

/// Longer error texts are cut.
const LONGEST_TEXT: usize = 512;

/// The failing keys of one controller.
pub(super) struct Failures<K> {
    keys: Mutex<BTreeMap<K, Failure>>,
    /// Lets the many successes of a healthy controller pass without the lock.
    count: AtomicUsize,
}

/// Why a key fails.
pub(super) struct Failure {
    pub(super) error: String,
    pub(super) class: Class,
    pub(super) retries: u32,
    /// Given up until something happens.
    pub(super) parked: bool,
    /// Of the first failure after the last success.
    pub(super) since: Instant,
}

impl<K> Default for Failures<K> {
    fn default() -> Failures<K> {
        Failures { keys: Mutex::new(BTreeMap::new()), count: AtomicUsize::new(0) }
    }
}

impl<K: Clone + Ord> Failures<K> {
    /// Notes a failure; gives back its text, cut to size.
    pub(super) fn note(&self, taken: &Taken<K>, class: Class, mut error: String, parked: bool) -> String {
        error.truncate(error.floor_char_boundary(LONGEST_TEXT));
        let mut keys = self.keys.lock();
        let since = keys.get(taken.key()).map_or_else(Instant::now, |failure| failure.since);
        let failure = Failure { error: error.clone(), class, retries: taken.retries(), parked, since };
        keys.insert(taken.key().clone(), failure);
        self.count.store(keys.len(), Ordering::Release);
        error
    }

    /// The key has succeeded.
    pub(super) fn clear(&self, key: &K) {
        // Only the worker that holds the key writes its entry, so its own failure is never missed here.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut keys = self.keys.lock();
        keys.remove(key);
        self.count.store(keys.len(), Ordering::Release);
    }

    /// Looks at all of them, in order of their keys.
    pub(super) fn read<T>(&self, look: impl FnOnce(&BTreeMap<K, Failure>) -> T) -> T {
        look(&self.keys.lock())
    }
}
