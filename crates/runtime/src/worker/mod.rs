//! Workers take keys from the queue and reconcile them, so many at a time and no more.
//!
//! A reconcile ends in one of four ways, and one switch ([`settle`](outcome)) says what follows: done, again after
//! a time, retry, or parked until something happens. A panic is an error like any other, and so is a timeout.
//!
//! A stop has three stages: the queue is drained; then reconcilers are told to end; then they are cut off. What
//! does not even let itself be cut off (it blocks its thread) is left behind and named in the log.

mod failures;
mod metrics;
mod outcome;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::failures::Failures;
pub use self::metrics::{Meters, WorkerMetrics};
use self::outcome::Failed;
pub use self::snapshot::{FailingKey, InFlight, WorkerSnapshot};
use crate::queue::{Priority, Queue, Taken};
use crate::reconcile::{Action, Result};
use crate::trace::Journeys;

/// How long cut-off reconcilers may take to be gone.
const CUT_OFF: Duration = Duration::from_millis(100);

/// How many keys at once, how long each, how often again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Reconciles at one time (10).
    pub max_concurrent: usize,
    /// A reconcile that takes longer is ended and counts as a failure (2 minutes).
    pub timeout: Duration,
    /// Retries after errors of which nobody knows whether trying again helps (15); then the key is parked.
    pub max_retries: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { max_concurrent: 10, timeout: Duration::from_secs(120), max_retries: 15 }
    }
}

/// What workers are to do.
#[derive(Clone)]
pub struct Plan<K> {
    /// Name of the controller.
    pub name: String,
    /// Where keys come from.
    pub queue: Queue<K>,
    /// How many at once, how long each, how often again.
    pub settings: Settings,
    /// Where reconciles are counted.
    pub metrics: WorkerMetrics,
    /// Traces that began with the events.
    pub journeys: Journeys<K>,
    /// Permits that these workers share with others; each reconcile takes one.
    pub limit: Option<Arc<Semaphore>>,
}

impl<K> Plan<K> {
    /// The defaults, with metrics that nobody sees.
    pub fn new(name: &str, queue: Queue<K>) -> Plan<K> {
        Plan {
            name: name.to_owned(),
            queue,
            settings: Settings::default(),
            metrics: WorkerMetrics::default(),
            journeys: Journeys::default(),
            limit: None,
        }
    }
}

/// One reconcile to do.
#[derive(Clone, Debug)]
pub struct Job<K> {
    /// Of what.
    pub key: K,
    /// How often it failed before.
    pub retries: u32,
    /// Why it was in the queue.
    pub priority: Priority,
    /// Is cancelled when the process stops and cannot wait any longer. Counted from outside: cloning a token takes a
    /// lock that all jobs would share.
    pub cancelled: Arc<CancellationToken>,
}

/// How long a stop may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the queue to be drained.
    pub drain: Duration,
    /// For reconcilers to end after they were told to.
    pub cancel: Duration,
}

impl Patience {
    /// Four fifths of a deadline for draining, the rest for reconcilers that must be told.
    pub fn within(deadline: Duration) -> Patience {
        let cancel = (deadline / 5).min(Duration::from_secs(5));
        Patience { drain: deadline - cancel, cancel }
    }
}

/// What a stop could not finish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Ready keys that no worker came to.
    pub undone: usize,
    /// Reconciles that were cut off at their next await.
    pub cut_off: Vec<String>,
    /// Reconciles that block their thread and could not be ended.
    pub abandoned: Vec<String>,
}

/// The running workers of one controller. Dropping cuts all reconciles off.
pub struct Workers<K> {
    shared: Arc<Shared<K>>,
    tasks: JoinSet<()>,
}

/// What workers and inspection share.
pub(crate) struct Shared<K> {
    name: String,
    queue: Queue<K>,
    settings: RwLock<Settings>,
    journeys: Journeys<K>,
    limit: Option<Arc<Semaphore>>,
    cancelled: Arc<CancellationToken>,
    meters: Meters,
    failures: Failures<K>,
    /// One per worker.
    in_flight: Vec<Mutex<Option<Running<K>>>>,
}

struct Running<K> {
    taken: Taken<K>,
    since: Instant,
}

impl<K> Workers<K>
where
    K: Clone + Ord + Display + Send + Sync + 'static,
{
    /// Starts workers that call `reconcile` for each key of the queue.
    pub fn start<R, F>(plan: Plan<K>, reconcile: R) -> Workers<K>
    where
        R: Fn(Job<K>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action>> + Send + 'static,
    {
        let count = plan.settings.max_concurrent.max(1);
        let shared = Arc::new(Shared {
            meters: plan.metrics.of(&plan.name),
            name: plan.name,
            queue: plan.queue,
            settings: RwLock::new(plan.settings),
            journeys: plan.journeys,
            limit: plan.limit,
            cancelled: Arc::default(),
            failures: Failures::default(),
            in_flight: (0..count).map(|_| Mutex::new(None)).collect(),
        });
        let reconcile = Arc::new(reconcile);
        let mut tasks = JoinSet::new();
        for worker in 0..count {
            tasks.spawn(work(shared.clone(), reconcile.clone(), worker));
        }
        Workers { shared, tasks }
    }

    /// A handle for inspection, valid beyond the workers.
    pub fn inspector(&self) -> Inspector<K> {
        Inspector { shared: self.shared.clone() }
    }

    /// Drains the queue, then tells reconcilers to end, then cuts them off.
    pub async fn stop(mut self, patience: Patience) -> Stopped {
        let mut stopped = Stopped::default();
        self.shared.queue.shutdown();
        if self.joined(patience.drain).await {
            return stopped;
        }
        stopped.undone = self.shared.queue.shutdown_now();
        self.shared.cancelled.cancel();
        if !self.joined(patience.cancel).await {
            let late = self.shared.running_keys();
            self.tasks.abort_all();
            self.joined(CUT_OFF).await;
            stopped.abandoned = self.shared.running_keys();
            stopped.cut_off = late.into_iter().filter(|key| !stopped.abandoned.contains(key)).collect();
        }
        stopped.tell(&self.shared.name);
        // A blocked worker cannot be waited for; it goes with the process.
        self.tasks.detach_all();
        stopped
    }

    /// Whether all workers have ended within this time.
    async fn joined(&mut self, limit: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}

impl Stopped {
    fn tell(&self, controller: &str) {
        if self.undone > 0 {
            tracing::warn!(controller, keys = self.undone, "stopped before the queue was drained");
        }
        for key in &self.cut_off {
            tracing::warn!(controller, %key, "reconcile cut off: it did not end when told to");
        }
        for key in &self.abandoned {
            tracing::error!(controller, %key, "reconcile abandoned: it blocks its thread and cannot be ended");
        }
    }
}

/// Looks at workers from outside, and sets how they work.
pub struct Inspector<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Inspector<K> {
    fn clone(&self) -> Inspector<K> {
        Inspector { shared: self.shared.clone() }
    }
}

impl<K> Inspector<K> {
    /// From the next reconcile on, this is how long one may take and how often it is tried again. The number of workers
    /// stays.
    pub fn set(&self, settings: Settings) {
        *self.shared.settings.write() = settings;
    }
}

impl<K> Shared<K> {
    fn settings(&self) -> Settings {
        *self.settings.read()
    }
}

impl<K: Display> Shared<K> {
    fn running_keys(&self) -> Vec<String> {
        self.in_flight.iter().filter_map(|slot| Some(slot.lock().as_ref()?.taken.key().to_string())).collect()
    }
}

/// One worker, until the queue ends.
async fn work<K, R, F>(shared: Arc<Shared<K>>, reconcile: Arc<R>, worker: usize)
where
    K: Clone + Ord + Display,
    R: Fn(Job<K>) -> F,
    F: Future<Output = Result<Action>>,
{
    while let Some(taken) = shared.queue.get().await {
        let _permit = match &shared.limit {
            // Nobody closes it.
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let since = Instant::now();
        let span = shared.journeys.reconcile(&shared.name, &taken);
        let job = shared.job(&taken);
        let place = Place::take(&shared.in_flight[worker], Running { taken, since });
        let outcome = run(&*reconcile, job, shared.settings().timeout).instrument(span.clone()).await;
        shared.meters.time.observe(since.elapsed().as_secs_f64());
        if let Some(taken) = place.leave() {
            span.in_scope(|| outcome::settle(&shared, taken, outcome));
        }
        // Reconcilers that never wait would keep their thread from everyone else.
        tokio::task::coop::consume_budget().await;
    }
}

impl<K: Clone> Shared<K> {
    fn job(&self, taken: &Taken<K>) -> Job<K> {
        Job {
            key: taken.key().clone(),
            retries: taken.retries(),
            priority: taken.priority(),
            cancelled: self.cancelled.clone(),
        }
    }
}

/// Calls the reconciler and turns a panic or a timeout into a failure.
async fn run<K, R, F>(reconcile: &R, job: Job<K>, limit: Duration) -> Result<Action, Failed>
where
    R: Fn(Job<K>) -> F,
    F: Future<Output = Result<Action>>,
{
    // The call itself is inside, for it may panic before there is a future.
    let guarded = AssertUnwindSafe(async move { reconcile(job).await }).catch_unwind();
    let mut guarded = pin!(guarded);
    // Most reconciles find everything in order and never wait: they need no timer.
    if let Poll::Ready(result) = futures::poll!(guarded.as_mut()) {
        return finished(result);
    }
    match tokio::time::timeout(limit, guarded).await {
        Ok(result) => finished(result),
        Err(_) => Err(Failed::TimedOut(limit)),
    }
}

fn finished(result: std::thread::Result<Result<Action>>) -> Result<Action, Failed> {
    match result {
        Ok(result) => result.map_err(Failed::Returned),
        Err(panic) => Err(Failed::panicked(&*panic)),
    }
}

/// Shows a key as in flight, and gives it back also when the worker is cut off.
struct Place<'a, K>(&'a Mutex<Option<Running<K>>>);

impl<'a, K> Place<'a, K> {
    fn take(slot: &'a Mutex<Option<Running<K>>>, running: Running<K>) -> Place<'a, K> {
        *slot.lock() = Some(running);
        Place(slot)
    }

    fn leave(self) -> Option<Taken<K>> {
        self.0.lock().take().map(|running| running.taken)
    }
}

impl<K> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let left = self.0.lock().take();
        // Without the lock: it wakes others.
        drop(left);
    }
}
