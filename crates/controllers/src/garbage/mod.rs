//! The garbage collector: what has lost its owners goes.
//!
//! Watches the metadata of every kind that the server has. Kinds may come and go.

mod collect;
pub mod graph;
mod monitor;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use parking_lot::{Mutex, RwLock};
use shoal_runtime::manager::BoxError;
use shoal_runtime::queue::{Queue, Settings};
use shoal_runtime::worker::{self, Patience, Plan, Workers};
use shoal_runtime::{Component, Informers, Manager, Stop, Subscription};

use graph::{Graph, Identity};
use monitor::Monitors;

const NAME: &str = "garbage-collector-controller";
/// Objects that are looked at at the same time.
const AT_ONCE: usize = 20;
/// Kinds can come without a definition or an APIService that changes.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// What a definition brings is served a moment after it was written; the second look is for slow servers.
const AFTER_A_CHANGE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What all parts of the collector share.
struct Collector {
    client: kube::Client,
    informers: Informers,
    graph: Mutex<Graph>,
    monitors: RwLock<Monitors>,
    queue: Queue<Identity>,
}

/// The collector, for this manager.
pub fn component(manager: &Manager) -> Component {
    let queue = Queue::new(Settings::default());
    let collector = Arc::new(Collector {
        client: manager.client(),
        informers: manager.informers().clone(),
        graph: Mutex::default(),
        monitors: RwLock::default(),
        queue: queue.clone(),
    });
    manager.queue_metrics().watch(NAME, &queue);
    let plan = Plan {
        settings: worker::Settings { max_concurrent: AT_ONCE, ..worker::Settings::default() },
        metrics: manager.worker_metrics().clone(),
        ..Plan::new(NAME, queue)
    };
    let definitions = manager.informers().metadata::<CustomResourceDefinition>();
    let services = manager.informers().metadata::<APIService>();
    let shown = Arc::clone(&collector);
    let run = move |stop: Stop| {
        let changes = [definitions.subscribe(), services.subscribe()];
        run(collector, plan, changes, stop)
    };
    Component::new(NAME, run).elected().inspect(move || {
        serde_json::json!({"objects": shown.graph.lock().len(), "kinds": shown.monitors.read().len()})
    })
}

async fn run(
    collector: Arc<Collector>,
    plan: Plan<Identity>,
    [mut definitions, mut services]: [Subscription; 2],
    stop: Stop,
) -> Result<(), BoxError> {
    let own = Arc::clone(&collector);
    let workers = Workers::start(plan, move |job| {
        let collector = Arc::clone(&own);
        async move { collector.work(job.key).await }
    });
    let mut looks = Vec::new();
    loop {
        if let Err(error) = monitor::follow(&collector).await {
            tracing::warn!(%error, "the server does not tell its kinds");
            looks.push(AFTER_A_CHANGE[1]);
        }
        let pause = looks.pop().unwrap_or(ASK_AGAIN);
        tokio::select! {
            biased;
            () = stop.quiet() => break,
            () = tokio::time::sleep(pause) => {}
            () = changed(&mut definitions) => looks = vec![AFTER_A_CHANGE[1], AFTER_A_CHANGE[0]],
            () = changed(&mut services) => looks = vec![AFTER_A_CHANGE[1], AFTER_A_CHANGE[0]],
        }
    }
    collector.monitors.write().clear();
    stop.requested().await;
    tokio::select! {
        biased;
        () = stop.aborted() => {}
        _ = workers.stop(Patience::within(STOP_WITHIN)) => {}
    }
    Ok(())
}

/// Waits for a change, and takes those that came with it.
async fn changed(changes: &mut Subscription) {
    if changes.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
    while changes.try_recv().is_some() {}
}
