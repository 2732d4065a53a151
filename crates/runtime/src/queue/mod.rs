//! The queue of keys that need a reconcile.
//!
//! * A key is in the queue once, however often it is added, and on one worker at most. A key that is added while
//!   it runs, runs once more.
//! * Live events go before re-lists and resyncs, which still get their share.
//! * Groups of keys (namespaces, by default of a controller) take turns, so that one with many keys does not make
//!   the others wait. Within a group, keys leave in the order in which they came.
//! * A retry waits, longer each time, and all retries together are held to a rate.
//! * One timer per key: the earliest counts, and an add overtakes it.
//!
//! Every operation takes constant time, or logarithmic in the number of distinct due times.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use shoal_runtime::queue::{Next, Queue, Settings};
//!
//! let queue = Queue::new(Settings::default());
//! queue.add("a");
//! queue.add("b");
//! queue.add("a");
//! let a = queue.get().await.unwrap();
//! assert_eq!(*a, "a");
//! queue.add("a"); // Comes back when the first run has finished.
//! assert_eq!(*queue.get().await.unwrap(), "b");
//! a.finish(Next::Forget);
//! assert_eq!(*queue.get().await.unwrap(), "a");
//! # }
//! ```

mod backoff;
mod core;
mod entries;
mod index;
mod lanes;
mod metrics;
#[cfg(test)]
mod model;
mod snapshot;
#[cfg(test)]
mod tests;
mod timer;

use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::{FixedState, RandomState};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::core::{Core, Effects, Took};
use self::entries::{Digest, Slot};
pub use self::metrics::QueueMetrics;
pub use self::snapshot::{QueueSnapshot, QueuedKey, Stats};
use crate::ObjectKey;

/// How many keys go into the queue under one lock.
const BATCH: usize = 256;

/// How retries are held back. The defaults are client-go's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Delay of a key's first retry (5 ms); doubles each time.
    pub base_delay: Duration,
    /// Longest delay of a retry (1000 s).
    pub max_delay: Duration,
    /// Retries per second of all keys together (10); zero is no limit.
    pub qps: f64,
    /// Retries that may exceed the rate at once (100).
    pub burst: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            qps: 10.0,
            burst: 100,
        }
    }
}

/// Why a key is in the queue, and so how soon it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Everything is looked at again; nothing is known to have changed.
    Resync,
    /// Something changed.
    Live,
}

/// What happens to a key after its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing; its retries are still counted.
    Done,
    /// Nothing; its next failure is its first.
    Forget,
    /// Forget, and run again after this time unless something happens earlier.
    After(Duration),
    /// Run again after the delay of a retry.
    Retry,
}

/// A queue of keys; clones are the same queue.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    core: Mutex<Core<K>>,
    /// Drawn anew for each queue: whoever chooses names cannot choose which of them share a place.
    hasher: RandomState,
    group: Option<fn(&K) -> u64>,
    epoch: Instant,
    /// Wakes one `get` per ready key.
    ready: Notify,
    /// Calls of `get` that may be waiting; never fewer than there are.
    idle: AtomicUsize,
    /// Wakes the timer when its next moment has come nearer, or the queue is gone.
    sooner: Arc<Notify>,
    drained: Notify,
}

/// A key on a worker. Dropping it says that the worker is done.
pub struct Taken<K> {
    queue: Queue<K>,
    slot: Slot,
    key: K,
    priority: Priority,
    retries: u32,
    since: Duration,
    next: Next,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Queue<K> {
        Queue { shared: self.shared.clone() }
    }
}

impl Queue<ObjectKey> {
    /// A queue in which namespaces take turns.
    pub fn by_namespace(settings: Settings) -> Queue<ObjectKey> {
        Queue::in_groups(settings, |key| FixedState::default().hash_one(&*key.namespace))
    }
}

impl<K: Send + 'static> Queue<K> {
    /// A queue in which keys leave in the order in which they come. Call it inside a tokio runtime.
    pub fn new(settings: Settings) -> Queue<K> {
        Queue::start(settings, None)
    }

    /// A queue in which groups of keys take turns. Groups are told apart by a number; groups that share a number
    /// share their turn.
    pub fn in_groups(settings: Settings, group: fn(&K) -> u64) -> Queue<K> {
        Queue::start(settings, Some(group))
    }

    fn start(settings: Settings, group: Option<fn(&K) -> u64>) -> Queue<K> {
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(settings)),
            hasher: RandomState::default(),
            group,
            epoch: Instant::now(),
            ready: Notify::new(),
            idle: AtomicUsize::new(0),
            sooner: Arc::new(Notify::new()),
            drained: Notify::new(),
        });
        tokio::spawn(timer::run(Arc::downgrade(&shared), shared.sooner.clone()));
        Queue { shared }
    }
}

impl<K: Eq + Hash> Queue<K> {
    /// Adds a key because something changed.
    pub fn add(&self, key: K) {
        self.add_with(key, Priority::Live);
    }

    /// Adds a key.
    pub fn add_with(&self, key: K, priority: Priority) {
        let (digest, now) = (self.shared.digest(&key), self.shared.now());
        let effects = self.shared.core.lock().add(key, digest, priority, now);
        self.shared.tell(effects);
    }

    /// Adds many keys at less cost than one by one.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, priority: Priority) {
        let mut keys = keys.into_iter();
        let mut batch = Vec::with_capacity(keys.size_hint().0.min(BATCH));
        loop {
            batch.extend(keys.by_ref().take(BATCH).map(|key| (self.shared.digest(&key), key)));
            if batch.is_empty() {
                return;
            }
            let mut effects = Effects::default();
            {
                let now = self.shared.now();
                let mut core = self.shared.core.lock();
                for (digest, key) in batch.drain(..) {
                    effects += core.add(key, digest, priority, now);
                }
            }
            self.shared.tell(effects);
        }
    }

    /// Adds a key after a delay, unless it is ready or waits for something earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        let (digest, now) = (self.shared.digest(&key), self.shared.now());
        let effects = self.shared.core.lock().add_after(key, digest, delay, now);
        self.shared.tell(effects);
    }

    /// Adds a key after the delay of its next retry.
    pub fn add_rate_limited(&self, key: K) {
        let (digest, now) = (self.shared.digest(&key), self.shared.now());
        let effects = self.shared.core.lock().add_rate_limited(key, digest, now);
        self.shared.tell(effects);
    }

    /// Makes the next retry of a key its first.
    pub fn forget(&self, key: &K) {
        let digest = self.shared.digest(key);
        self.shared.core.lock().forget(key, digest);
    }

    /// How often a key was retried since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        let digest = self.shared.digest(key);
        self.shared.core.lock().num_requeues(key, digest)
    }
}

impl<K: Clone> Queue<K> {
    /// Waits for the next key; None when the queue is shut down and empty.
    ///
    /// Can be dropped at any time without losing a key.
    pub async fn get(&self) -> Option<Taken<K>> {
        match self.take() {
            Ok(taken) => return Some(taken),
            Err(Empty { closed: true }) => return None,
            Err(Empty { closed: false }) => {}
        }
        let _idle = Idle::new(&self.shared.idle);
        loop {
            // Listening begins before the look, or a key that is added between the two would wake nobody.
            let mut ready = pin!(self.shared.ready.notified());
            ready.as_mut().enable();
            match self.take() {
                Ok(taken) => return Some(taken),
                Err(Empty { closed: true }) => return None,
                Err(Empty { closed: false }) => ready.await,
            }
        }
    }

    /// The next key, if one is ready.
    pub fn try_get(&self) -> Option<Taken<K>> {
        self.take().ok()
    }

    fn take(&self) -> Result<Taken<K>, Empty> {
        let mut core = self.shared.core.lock();
        let Some(took) = core.take() else { return Err(Empty { closed: core.closed }) };
        drop(core);
        let Took { slot, key, priority, retries, since } = took;
        Ok(Taken { queue: self.clone(), slot, key, priority, retries, since, next: Next::Done })
    }
}

/// No key is ready.
struct Empty {
    closed: bool,
}

impl<K> Queue<K> {
    /// Number of ready keys.
    pub fn len(&self) -> usize {
        self.shared.core.lock().lanes.len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Holds retries back in this way from now on. Keys that wait already wait as long as they were told.
    pub fn set(&self, settings: Settings) {
        self.shared.core.lock().settings = settings;
    }

    /// Whether keys can still be added.
    pub fn is_accepting(&self) -> bool {
        !self.shared.core.lock().closed
    }

    /// Accepts no more keys and gives up those that wait for a time. Ready keys are still handed out.
    pub fn shutdown(&self) {
        self.shared.core.lock().close();
        self.shared.wake_all();
    }

    /// Shuts down and gives up the ready keys too: their number. What runs, goes on.
    pub fn shutdown_now(&self) -> usize {
        let discarded = {
            let mut core = self.shared.core.lock();
            core.close();
            core.discard()
        };
        self.shared.wake_all();
        discarded
    }

    /// Shuts down and waits until every ready key has been worked on.
    pub async fn shutdown_with_drain(&self) {
        self.shutdown();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.core.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }
}

impl<K> Taken<K> {
    /// The key; also what a `Taken` dereferences to.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// How often the key was retried before this run.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Why it was in the queue.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How long ago it became ready.
    pub fn age(&self) -> Duration {
        self.queue.shared.now().saturating_sub(self.since)
    }

    /// The worker is done. The same as dropping.
    pub fn done(self) {}

    /// The worker is done, and says what comes next.
    pub fn finish(mut self, next: Next) {
        self.next = next;
    }
}

impl<K> Deref for Taken<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K> Drop for Taken<K> {
    fn drop(&mut self) {
        let shared = &self.queue.shared;
        let (effects, drained) = {
            let mut core = shared.core.lock();
            (core.finish(self.slot, self.next, || shared.now()), core.is_drained())
        };
        shared.tell(effects);
        if drained {
            shared.drained.notify_waiters();
        }
    }
}

impl<K> Shared<K> {
    fn digest(&self, key: &K) -> Digest
    where
        K: Hash,
    {
        Digest {
            hash: fold(self.hasher.hash_one(key)),
            group: self.group.map_or(0, |group| fold(group(key))),
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Wakes whom a change concerns. Called without the lock.
    fn tell(&self, effects: Effects) {
        // A `get` counts itself before it looks, so one that missed the key is counted here.
        for _ in 0..effects.ready.min(self.idle.load(Ordering::SeqCst)) {
            self.ready.notify_one();
        }
        if effects.sooner {
            self.sooner.notify_one();
        }
    }

    fn wake_all(&self) {
        self.ready.notify_waiters();
        self.sooner.notify_one();
        if self.core.lock().is_drained() {
            self.drained.notify_waiters();
        }
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

fn fold(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// Counts a `get` that may be waiting.
struct Idle<'a>(&'a AtomicUsize);

impl Idle<'_> {
    fn new(count: &AtomicUsize) -> Idle<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Idle(count)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
