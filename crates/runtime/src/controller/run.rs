//! A controller at work.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::listers::Listers;
use super::pipeline::{Find, Pipeline, Tombs};
use super::source::Source;
use super::{Context, Reconciler};
use crate::ObjectKey;
use crate::apply::{Object, Writer};
use crate::cache::{Encoded, Lister};
use crate::client::{Cause, because};
use crate::events::Recorder;
use crate::gate::{Entry, Gate};
use crate::manager::{BoxError, Component, Stop};
use crate::queue::{Priority, Queue, QueueMetrics, Settings as QueueSettings};
use crate::reconcile::{Action, Result};
use crate::shard::{Kinds, Partition, Requeue};
use crate::trace::Journeys;
use crate::worker::{self, Inspector, Job, Patience, Plan, WorkerMetrics, Workers};

/// What is done for a key.
pub(super) type Work = Arc<dyn Fn(Job<ObjectKey>) -> BoxFuture<'static, Result<Action>> + Send + Sync>;

/// How often caches that are not full yet are asked.
const ASK: Duration = Duration::from_millis(5);
/// Keys of each sort that an inspection shows.
const SHOWN: usize = 100;

/// Everything that a controller needs to run.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) sources: Vec<Source>,
    pub(super) work: Work,
    pub(super) gate: Gate,
    pub(super) tombs: Arc<Tombs>,
    pub(super) find: Find,
    pub(super) queue: QueueSettings,
    pub(super) queue_metrics: QueueMetrics,
    pub(super) workers: worker::Settings,
    pub(super) worker_metrics: WorkerMetrics,
    pub(super) limit: Arc<Semaphore>,
    pub(super) patience: Patience,
    pub(super) kinds: Option<Arc<Kinds>>,
    pub(super) follow: Option<Follow>,
}

/// Puts settings in force that have changed.
pub(super) type Follow =
    Box<dyn FnOnce(Queue<ObjectKey>, Inspector<ObjectKey>) -> BoxFuture<'static, ()> + Send>;

impl Parts {
    pub(super) fn into_component(self) -> Component {
        let started: Arc<OnceLock<Inspector<ObjectKey>>> = Arc::default();
        let (ready, shown) = (started.clone(), started.clone());
        Component::new(self.name.clone(), move |stop| self.run(stop, started))
            .ready(move || ready.get().is_some())
            .inspect(move || match shown.get() {
                Some(workers) => json!(workers.snapshot(SHOWN)),
                None => json!({"waiting": "for caches to fill"}),
            })
    }

    async fn run(self, stop: Stop, started: Arc<OnceLock<Inspector<ObjectKey>>>) -> Result<(), BoxError> {
        tokio::select! {
            biased;
            () = stop.quiet() => return Ok(()),
            () = synced(&self.sources) => {}
        }
        let queue = Queue::by_namespace(self.queue);
        self.queue_metrics.watch(&self.name, &queue);
        let journeys = Journeys::default();
        let pipeline = Arc::new(Pipeline {
            name: self.name.as_str().into(),
            queue: queue.clone(),
            gate: self.gate,
            find: self.find,
            tombs: self.tombs,
            journeys: journeys.clone(),
        });
        let work = self.work;
        let plan = Plan {
            settings: self.workers,
            metrics: self.worker_metrics,
            journeys,
            limit: Some(self.limit),
            ..Plan::new(&self.name, queue.clone())
        };
        let mut workers = Workers::start(plan, move |job| work(job));
        let mut sources = JoinSet::new();
        let all: Vec<Arc<Source>> = self.sources.into_iter().map(Arc::new).collect();
        if let (Some(kinds), Some(main)) = (&self.kinds, all.iter().find(|source| source.main)) {
            kinds.attach(&self.name, requeue(main, &pipeline, kinds.partition.clone()));
        }
        for source in all {
            sources.spawn(source.follow(pipeline.clone()));
        }
        if let Some(follow) = self.follow {
            sources.spawn(follow(queue.clone(), workers.inspector()));
        }
        let _ = started.set(workers.inspector());

        // Sharded work goes on until the slots are handed over.
        let over = async {
            match self.kinds {
                Some(_) => stop.requested().await,
                None => stop.quiet().await,
            }
        };
        tokio::select! {
            biased;
            () = over => {}
            () = workers.tend() => {}
        }
        sources.shutdown().await;
        stop.requested().await;
        tokio::select! {
            biased;
            () = stop.aborted() => queue.shutdown_now(),
            stopped = workers.stop(self.patience) => stopped.undone,
        };
        Ok(())
    }
}

/// Queues all objects of some slots.
fn requeue(main: &Arc<Source>, pipeline: &Arc<Pipeline>, partition: Partition) -> Requeue {
    let (main, pipeline) = (main.clone(), pipeline.clone());
    Arc::new(move |slots| {
        let (main, pipeline, partition) = (main.clone(), pipeline.clone(), partition.clone());
        let ours = move |object: &Encoded| slots.contains(partition.slot_of(object));
        tokio::spawn(async move { main.queue_again(&pipeline, ours).await });
    })
}

async fn synced(sources: &[Source]) {
    while !sources.iter().all(|source| (source.synced)()) {
        tokio::time::sleep(ASK).await;
    }
}

/// What a reconciler of `K` is called with.
pub(super) struct Subject<K, R> {
    pub(super) lister: Lister<K>,
    pub(super) listers: Listers,
    pub(super) gate: Gate,
    pub(super) tombs: Arc<Tombs>,
    pub(super) writer: Writer,
    pub(super) recorder: Recorder,
    pub(super) controller: Arc<str>,
    pub(super) reconciler: Arc<R>,
}

impl<K: Object, R: Reconciler<K>> Subject<K, R> {
    pub(super) fn work(self) -> Work {
        let subject = Arc::new(self);
        Arc::new(move |job| {
            let subject = subject.clone();
            Box::pin(async move { subject.run(job).await })
        })
    }

    /// Looks the object up, enters the gate, and calls the reconciler.
    async fn run(&self, job: Job<ObjectKey>) -> Result<Action> {
        let present = self.lister.meta(&job.key);
        let last = if present.is_none() { self.tombs.of(&job.key) } else { None };
        let object = present.as_ref().and_then(|present| self.lister.decode(present));
        // Never seen, not ours any more, or not of the shape of its type: no reason to think that it was deleted.
        if object.is_none() && last.is_none() {
            return Ok(Action::done());
        }
        let Some(entry) = self.gate.enter(&job.key, present.as_deref().or(last.as_deref())) else {
            return Ok(Action::done());
        };
        let fence = entry.fence.clone();
        let cause = Cause {
            controller: self.controller.clone(),
            key: Some(job.key.clone()),
            trigger: reason(&job).into(),
            fence: fence.clone(),
        };
        let context = Context {
            key: job.key.clone(),
            object,
            last: last.clone(),
            retries: job.retries,
            listers: self.listers.clone(),
            writer: self.writer.within(fence, entry.shard.as_ref()),
            recorder: self.recorder.clone(),
            shard: entry.shard.clone(),
            cancelled: job.cancelled,
        };
        // On the heap: a reconcile holds whole objects, and is handed through many hands before it runs.
        let reconcile = Box::pin(self.reconciler.reconcile(context));
        let Some(action) = kept(&entry, because(cause, reconcile)).await? else {
            return Ok(Action::done());
        };
        if let Some(last) = last {
            self.tombs.done(&job.key, &last);
        }
        Ok(action)
    }
}

/// Runs work until it ends or, with None, must end. The work is gone before its entry is.
pub(super) async fn kept<T>(entry: &Entry, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        biased;
        // Whoever has the object now looks after it; if it comes back, it is queued anew.
        () = entry.lost() => Ok(None),
        result = work => {
            if let (Err(_), Some(failures)) = (&result, &entry.failures) {
                failures.inc();
            }
            result.map(Some)
        }
    }
}

fn reason(job: &Job<ObjectKey>) -> &'static str {
    match job.priority {
        _ if job.retries > 0 => "retry",
        Priority::Live => "event",
        Priority::Resync => "resync",
    }
}
