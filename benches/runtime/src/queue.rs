//! The queue alone: what one key costs, and whether a large backlog is cheap to drain.

use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use shoal_runtime::ObjectKey;
use shoal_runtime::queue::{Next, Priority, Queue, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use bench_rows::{Goal, Row, Spent, best, each, timed};

/// Producers, and as many consumers.
const SIDES: usize = 8;

/// All rows of the queue.
pub fn run(quick: bool) -> Result<()> {
    let count = if quick { 100_000 } else { 1_000_000 };
    let keys = keys(count);
    let rows = |what: &str, peer: f64, spent: Spent| -> Result<()> {
        for (what, time) in [(what.to_owned(), spent.wall), (format!("{what} (CPU)"), spent.cpu)] {
            let (goal, peer) = (Goal::AtMost((peer / 3.0).floor()), format!("client-go {peer}"));
            let measured = each(time, count);
            Row { what: &what, peer, goal, measured, unit: "ns/key", any_size: true }.print()?;
        }
        Ok(())
    };
    rows("queue: add, get, done; one thread", 1654.0, best(|| one_thread(&keys))?)?;
    rows("queue: 8 producers, 8 consumers", 1447.0, best(|| many_threads(&keys))?)?;
    rows("queue: rate limited add, get, forget, done", 4375.0, best(|| rate_limited(&keys))?)?;
    drains(&keys, quick)
}

/// A backlog of ready keys, drained by one worker.
fn drains(keys: &[ObjectKey], quick: bool) -> Result<()> {
    let small = if quick { 20_000 } else { 80_000 };
    let ours = best(|| drain(&keys[..small]))?;
    let theirs = drain_kube(&keys[..small])?;
    let row = |what, peer: String, goal, measured, unit| {
        Row { what, peer, goal, measured, unit, any_size: false }.print()
    };
    let peer = format!("kube-rs {:.3}", theirs.wall.as_secs_f64());
    row("queue: draining 80,000 parked keys", peer, Goal::AtMost(0.1), ours.wall.as_secs_f64(), "s")?;
    let growth = each(best(|| drain(keys))?.cpu, keys.len()) / each(ours.cpu, small);
    row("queue: a key of 1,000,000 against one of 80,000", String::new(), Goal::AtMost(3.0), growth, "×")
}

/// Keys as a cluster has them: 200 namespaces.
pub fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count).map(|n| ObjectKey::new(&format!("namespace-{}", n % 200), &format!("object-{n:07}"))).collect()
}

fn current_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn one_thread(keys: &[ObjectKey]) -> Result<Spent> {
    Ok(current_thread()?.block_on(async {
        let queue = Queue::by_namespace(Settings::default());
        let keys = keys.to_vec();
        timed(async {
            let count = keys.len();
            keys.into_iter().for_each(|key| queue.add(key));
            take(&queue, count).await;
        })
        .await
    }))
}

fn many_threads(keys: &[ObjectKey]) -> Result<Spent> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let queue = Queue::by_namespace(Settings::default());
        let parts: Vec<Vec<ObjectKey>> = keys.chunks(keys.len().div_ceil(SIDES)).map(<[_]>::to_vec).collect();
        timed(async {
            let consumers: Vec<_> = (0..SIDES)
                .map(|_| {
                    let queue = queue.clone();
                    tokio::spawn(async move { while queue.get().await.is_some() {} })
                })
                .collect();
            let producers = parts.into_iter().map(|part| {
                let queue = queue.clone();
                tokio::spawn(async move { part.into_iter().for_each(|key| queue.add(key)) })
            });
            futures::future::join_all(producers).await;
            queue.shutdown();
            futures::future::join_all(consumers).await;
        })
        .await
    }))
}

fn rate_limited(keys: &[ObjectKey]) -> Result<Spent> {
    Ok(current_thread()?.block_on(async {
        let settings = Settings { base_delay: Duration::from_millis(1), qps: 0.0, ..Settings::default() };
        let queue = Queue::by_namespace(settings);
        let keys = keys.to_vec();
        timed(async {
            let count = keys.len();
            keys.into_iter().for_each(|key| queue.add_rate_limited(key));
            // Forgotten as a controller does after success: else every key would stay with its count of retries.
            for _ in 0..count {
                if let Some(taken) = queue.get().await {
                    taken.finish(Next::Forget);
                }
            }
        })
        .await
    }))
}

fn drain(keys: &[ObjectKey]) -> Result<Spent> {
    Ok(current_thread()?.block_on(async {
        let queue = Queue::by_namespace(Settings::default());
        queue.add_all(keys.iter().cloned(), Priority::Resync);
        timed(take(&queue, keys.len())).await
    }))
}

async fn take(queue: &Queue<ObjectKey>, count: usize) {
    for _ in 0..count {
        queue.get().await;
    }
}

/// kube's scheduler: everything is made pending while it may not run, then taken as its runner takes it.
fn drain_kube(keys: &[ObjectKey]) -> Result<Spent> {
    Ok(current_thread()?.block_on(async {
        let now = Instant::now();
        let requests = keys.iter().map(|key| ScheduleRequest { message: key.clone(), run_at: now });
        let mut scheduler =
            Box::pin(scheduler(futures::stream::iter(requests).chain(futures::stream::pending())));
        let parked = futures::future::poll_fn(|context| {
            let _ = scheduler.as_mut().hold().poll_next_unpin(context);
            Poll::Ready(())
        });
        parked.await;
        timed(async {
            for _ in 0..keys.len() {
                scheduler.as_mut().hold_unless(|_| true).next().await;
            }
        })
        .await
    }))
}
