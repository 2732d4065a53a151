//! Workers with a reconciler that does nothing: what the machinery around a reconcile costs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{FutureExt, StreamExt};
use hdrhistogram::Histogram;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::controller::{Action as KubeAction, Config, ReconcileReason, ReconcileRequest};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{applier, watcher};
use shoal_runtime::queue::{Priority, Queue, Settings as QueueSettings};
use shoal_runtime::worker::{Patience, Plan, Settings, Workers};
use shoal_runtime::{Action, ObjectKey};
use tokio::runtime::Builder;

use crate::queue::keys;
use bench_rows::{Goal, Row, Spent, best, timed};

const CONCURRENCY: usize = 10;

/// All rows of workers.
pub fn run(quick: bool) -> Result<()> {
    let keys = keys(if quick { 20_000 } else { 100_000 });
    let (ours, theirs) = (best(|| reconcile(&keys))?, best(|| reconcile_kube(&keys))?);
    let rate = |time: Duration| keys.len() as f64 / time.as_secs_f64();
    for (what, ours, theirs, unit) in [
        ("workers: no-op reconciles, 10 workers, 100,000 keys", ours.wall, theirs.wall, "/s"),
        ("workers: no-op reconciles, 10 workers, 100,000 keys (CPU)", ours.cpu, theirs.cpu, "/CPU s"),
    ] {
        Row {
            what,
            peer: format!("kube-rs {:.0}", rate(theirs)),
            goal: Goal::AtLeast(5.0 * rate(theirs)),
            measured: rate(ours),
            unit,
            any_size: false,
        }
        .print()?;
    }
    let latency = latency(if quick { 5_000 } else { 25_000 })?;
    Row {
        what: "workers: key added to reconcile started, 5,000/s, p99",
        peer: String::new(),
        goal: Goal::AtMost(1.0),
        measured: latency.value_at_quantile(0.99) as f64 / 1e6,
        unit: "ms",
        any_size: true,
    }
    .print()
}

fn workers<R, F>(queue: &Queue<ObjectKey>, reconcile: R) -> Workers<ObjectKey>
where
    R: Fn(shoal_runtime::worker::Job<ObjectKey>) -> F + Send + Sync + 'static,
    F: Future<Output = shoal_runtime::Result<Action>> + Send + 'static,
{
    let settings = Settings { max_concurrent: CONCURRENCY, ..Settings::default() };
    Workers::start(Plan { settings, ..Plan::new("bench", queue.clone()) }, reconcile)
}

/// All keys are queued when the workers begin, as at each start of a controller.
fn reconcile(keys: &[ObjectKey]) -> Result<Spent> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let queue = Queue::by_namespace(QueueSettings::default());
        queue.add_all(keys.to_vec(), Priority::Live);
        timed(async {
            let workers = workers(&queue, |_| std::future::ready(Ok(Action::done())));
            workers.stop(Patience::within(Duration::from_secs(60))).await;
        })
        .await
    }))
}

/// The part of kube's Controller behind its watches. It collects requests while the first list is under way, and begins
/// when that is complete. As a Controller does, it spawns a task for each reconcile.
fn reconcile_kube(keys: &[ObjectKey]) -> Result<Spent> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let (reader, mut writer) = store::<ConfigMap>();
        let objects = keys.iter().map(|key| watcher::Event::InitApply(object(key)));
        for event in std::iter::once(watcher::Event::Init).chain(objects) {
            writer.apply_watcher_event(&event);
        }
        let requests: Vec<_> = keys.iter().map(|key| Ok::<_, Infallible>(request(key))).collect();
        let (collected, all_collected) = tokio::sync::oneshot::channel();
        let end = futures::stream::once(async move {
            let _ = collected.send(());
            std::future::pending().await
        });
        let runs = applier(
            |_, _| {
                let run = tokio::spawn(async { Ok::<_, Infallible>(KubeAction::await_change()) });
                run.map(|joined| joined.unwrap_or(Ok(KubeAction::await_change())))
            },
            |_, _, _| KubeAction::await_change(),
            Arc::new(()),
            reader,
            futures::stream::iter(requests).chain(end),
            Config::default().concurrency(CONCURRENCY as u16),
        );
        let mut done = Box::pin(runs.take(keys.len()).for_each(|_| std::future::ready(())));
        tokio::select! {
            biased;
            () = &mut done => {}
            _ = all_collected => {}
        }
        timed(async {
            writer.apply_watcher_event(&watcher::Event::InitDone);
            done.await;
        })
        .await
    }))
}

fn object(key: &ObjectKey) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn request(key: &ObjectKey) -> ReconcileRequest<ConfigMap> {
    let obj_ref = ObjectRef::new(&key.name).within(&key.namespace);
    ReconcileRequest { obj_ref, reason: ReconcileReason::ObjectUpdated }
}

/// One key every 200 µs; the key's name is the time at which it was added.
fn latency(count: u64) -> Result<Histogram<u64>> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let queue = Queue::by_namespace(QueueSettings::default());
        let start = Instant::now();
        let workers = workers(&queue, move |job| {
            let added: u64 = job.key.name.parse().unwrap_or_default();
            let _ = began.send(start.elapsed().as_nanos() as u64 - added);
            std::future::ready(Ok(Action::done()))
        });
        // A thread of its own: tokio's timers are a millisecond apart.
        let producer = std::thread::spawn({
            let queue = queue.clone();
            move || {
                for n in 1..=count {
                    let due = start + Duration::from_micros(200) * n as u32;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    queue.add(ObjectKey::new("default", &start.elapsed().as_nanos().to_string()));
                }
            }
        });
        let mut latencies = Histogram::new(3)?;
        for _ in 0..count {
            latencies.record(begun.recv().await.unwrap_or(u64::MAX))?;
        }
        drop(producer);
        workers.stop(Patience::within(Duration::from_secs(10))).await;
        Ok(latencies)
    })
}
