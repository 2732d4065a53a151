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
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
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
    /// What a worker does at its desk.
    work: Box<dyn Fn(Arc<Desk<K>>) -> BoxFuture<'static, ()> + Send + Sync>,
}

/// What workers and inspection share.
pub(crate) struct Shared<K> {
    name: String,
    queue: Queue<K>,
    settings: watch::Sender<Settings>,
    journeys: Journeys<K>,
    limit: Option<Arc<Semaphore>>,
    cancelled: Arc<CancellationToken>,
    meters: Meters,
    failures: Failures<K>,
    desks: Mutex<Vec<Arc<Desk<K>>>>,
}

/// Where one worker works.
struct Desk<K> {
    number: usize,
    running: Mutex<Option<Running<K>>>,
    /// A worker is there. Changed only while all desks are locked.
    taken: AtomicBool,
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
        let shared = Arc::new(Shared {
            meters: plan.metrics.of(&plan.name),
            name: plan.name,
            queue: plan.queue,
            settings: watch::Sender::new(plan.settings),
            journeys: plan.journeys,
            limit: plan.limit,
            cancelled: Arc::default(),
            failures: Failures::default(),
            desks: Mutex::default(),
        });
        let (office, reconcile) = (shared.clone(), Arc::new(reconcile));
        let work = move |desk| work(office.clone(), reconcile.clone(), desk).boxed();
        let mut workers = Workers { shared, tasks: JoinSet::new(), work: Box::new(work) };
        workers.hire();
        workers
    }

    /// Starts more workers when the settings ask for more; surplus ones end by themselves. Never ends.
    pub async fn tend(&mut self) {
        let mut settings = self.shared.settings.subscribe();
        loop {
            settings.mark_unchanged();
            self.hire();
            if settings.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// As many workers as the settings say, at least.
    fn hire(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let count = self.shared.settings().max_concurrent.max(1);
        let mut desks = self.shared.desks.lock();
        for number in desks.len()..count {
            let (running, taken) = (Mutex::new(None), AtomicBool::new(false));
            desks.push(Arc::new(Desk { number, running, taken }));
        }
        for desk in &desks[..count] {
            if !desk.taken.swap(true, Ordering::Relaxed) {
                self.tasks.spawn((self.work)(desk.clone()));
            }
        }
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
    /// From the next reconcile on, this is how many run at once, how long one may take and how often it is tried again.
    /// More workers come only where [`Workers::tend`] runs.
    pub fn set(&self, settings: Settings) {
        self.shared.settings.send_replace(settings);
    }
}

/// The settings as one worker knows them: a look at them takes no lock that others want.
struct Rules {
    changes: watch::Receiver<Settings>,
    known: Settings,
}

impl Rules {
    fn now(&mut self) -> Settings {
        if self.changes.has_changed().unwrap_or(false) {
            self.read();
        }
        self.known
    }

    fn read(&mut self) {
        self.known = *self.changes.borrow_and_update();
    }
}

impl<K> Shared<K> {
    fn settings(&self) -> Settings {
        *self.settings.borrow()
    }

    /// Whether fewer workers are wanted than there are at desks up to this one; then it is free.
    fn leaves(&self, desk: &Desk<K>) -> bool {
        let _all = self.desks.lock();
        // Who hires looks under this lock: it finds a free desk or a worker who stays.
        let surplus = desk.number >= self.settings().max_concurrent.max(1);
        desk.taken.store(!surplus, Ordering::Relaxed);
        surplus
    }

    /// What each worker does, as `look` sees it.
    fn running<T>(&self, look: impl Fn(&Running<K>) -> T) -> Vec<T> {
        let desks = self.desks.lock();
        desks.iter().filter_map(|desk| desk.running.lock().as_ref().map(&look)).collect()
    }
}

impl<K: Display> Shared<K> {
    fn running_keys(&self) -> Vec<String> {
        self.running(|running| running.taken.key().to_string())
    }
}

/// One worker, until the queue ends or fewer are wanted.
async fn work<K, R, F>(shared: Arc<Shared<K>>, reconcile: Arc<R>, desk: Arc<Desk<K>>)
where
    K: Clone + Ord + Display,
    R: Fn(Job<K>) -> F,
    F: Future<Output = Result<Action>>,
{
    let mut rules = Rules { changes: shared.settings.subscribe(), known: shared.settings() };
    while let Some(taken) = shared.next(&desk, &mut rules).await {
        let _permit = match &shared.limit {
            // Nobody closes it.
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let since = Instant::now();
        let span = shared.journeys.reconcile(&shared.name, &taken);
        let job = shared.job(&taken);
        let place = Place::take(&desk.running, Running { taken, since });
        let outcome = run(&*reconcile, job, rules.now().timeout).instrument(span.clone()).await;
        shared.meters.time.observe(since.elapsed().as_secs_f64());
        if let Some(taken) = place.leave() {
            span.in_scope(|| outcome::settle(&shared, taken, outcome));
        }
        // Reconcilers that never wait would keep their thread from everyone else.
        tokio::task::coop::consume_budget().await;
    }
}

impl<K: Clone> Shared<K> {
    /// The next key. None when the queue has ended or the worker is not wanted any more.
    async fn next(&self, desk: &Desk<K>, rules: &mut Rules) -> Option<Taken<K>> {
        loop {
            if desk.number >= rules.now().max_concurrent.max(1) && self.leaves(desk) {
                return None;
            }
            if let Some(taken) = self.queue.try_get() {
                return Some(taken);
            }
            tokio::select! {
                biased;
                Ok(()) = rules.changes.changed() => rules.read(),
                taken = self.queue.get() => return taken,
            }
        }
    }

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
