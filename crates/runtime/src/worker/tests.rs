use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{Job, Patience, Plan, Settings, WorkerMetrics, Workers};
use crate::queue::{Priority, Queue, Settings as QueueSettings};
use crate::reconcile::{Action, Error, Result};

const SECOND: Duration = Duration::from_secs(1);

fn queue<K: Send + 'static>() -> Queue<K> {
    Queue::new(QueueSettings { qps: 0.0, ..QueueSettings::default() })
}

fn start<R, F>(queue: &Queue<u32>, settings: Settings, reconcile: R) -> Workers<u32>
where
    R: Fn(Job<u32>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action>> + Send + 'static,
{
    Workers::start(Plan { settings, ..Plan::new("demo", queue.clone()) }, reconcile)
}

fn brief() -> Patience {
    Patience { drain: SECOND, cancel: SECOND }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_limit_run_at_once_and_a_stop_drains_the_queue() {
    let queue = queue();
    let (now, most, total) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counters = Arc::new((now, most, total));
    let seen = counters.clone();
    let settings = Settings { max_concurrent: 3, ..Settings::default() };
    let workers = start(&queue, settings, move |_| {
        let seen = seen.clone();
        async move {
            seen.1.fetch_max(seen.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            seen.0.fetch_sub(1, Ordering::SeqCst);
            seen.2.fetch_add(1, Ordering::SeqCst);
            Ok(Action::done())
        }
    });
    queue.add_all(0..30, Priority::Live);
    let start = Instant::now();
    let stopped = workers.stop(Patience::within(60 * SECOND)).await;
    assert_eq!(stopped, super::Stopped::default());
    assert_eq!((counters.1.load(Ordering::SeqCst), counters.2.load(Ordering::SeqCst)), (3, 30));
    assert_eq!(start.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn controllers_share_the_limit_of_the_process() {
    let limit = Some(Arc::new(Semaphore::new(3)));
    let queues: [Queue<u32>; 2] = [queue(), queue()];
    let workers = queues.each_ref().map(|queue| {
        let plan = Plan { limit: limit.clone(), ..Plan::new("demo", queue.clone()) };
        Workers::start(plan, |_| async {
            tokio::time::sleep(SECOND).await;
            Ok(Action::done())
        })
    });
    queues.iter().for_each(|queue| queue.add_all(0..9, Priority::Live));
    tokio::time::sleep(SECOND / 2).await;
    let running: usize = workers.iter().map(|workers| workers.inspector().in_flight().len()).sum();
    assert_eq!(running, 3);
    let start = Instant::now();
    for workers in workers {
        workers.stop(Patience::within(60 * SECOND)).await;
    }
    assert_eq!(start.elapsed(), SECOND * 11 / 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_counted_and_retried() {
    let (queue, metrics, mut registry) = (queue(), WorkerMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let plan = Plan { metrics, ..Plan::new("demo", queue.clone()) };
    let workers = Workers::start(plan, |job: Job<u32>| {
        assert!(job.retries > 0, "before the future");
        async move {
            assert!(job.retries > 1, "inside the future");
            Ok(Action::done())
        }
    });
    queue.add(7);
    while queue.stats().retries < 2 || queue.stats().running + queue.stats().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(workers.inspector().snapshot(10).failing, 0, "the third run succeeded");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "controller_reconcile_errors_total{controller=\"demo\"} 2",
        "controller_reconcile_panics_total{controller=\"demo\"} 2",
        "controller_reconcile_time_seconds_count{controller=\"demo\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_is_ended_by_its_timeout_and_retried() {
    let queue = queue();
    let settings = Settings { timeout: 5 * SECOND, ..Settings::default() };
    let workers = start(&queue, settings, |_| std::future::pending());
    queue.add(1);
    tokio::time::sleep(4 * SECOND).await;
    let in_flight = workers.inspector().in_flight();
    assert_eq!((in_flight[0].key.as_str(), in_flight[0].seconds, in_flight[0].overdue), ("1", 4.0, false));
    tokio::time::sleep(2 * SECOND).await;
    let shown = workers.inspector().snapshot(10);
    assert_eq!(shown.failures[0].error, "the reconcile took longer than 5 s");
    assert_eq!((shown.failing, shown.parked, shown.in_flight[0].retries), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn unknown_errors_are_parked_after_their_retries_and_revived_by_the_next_event() {
    let queue = queue();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let settings = Settings { max_retries: 3, ..Settings::default() };
    let workers = start(&queue, settings, move |_| {
        let run = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0..4 => Err(Error::unknown("looking up the zone").because("no answer")),
                _ => Ok(Action::done()),
            }
        }
    });
    queue.add(1);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 4, "once and three retries");
    let shown = workers.inspector().snapshot(10);
    let failure = &shown.failures[0];
    assert_eq!((shown.parked, failure.key.as_str(), failure.class), (1, "1", "unknown"));
    assert_eq!(failure.error, "looking up the zone: no answer");
    assert!(failure.since_seconds > 59.0 && failure.retries == 3, "{failure:?}");
    queue.add_with(1, Priority::Resync);
    tokio::time::sleep(SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    assert_eq!(workers.inspector().snapshot(10).failing, 0);
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried_and_transient_ones_without_end() {
    let queue = queue();
    let runs = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let count = runs.clone();
    let settings = Settings { max_retries: 3, ..Settings::default() };
    let workers = start(&queue, settings, move |job| {
        count[job.key as usize].fetch_add(1, Ordering::SeqCst);
        async move {
            match job.key {
                0 => Err(Error::permanent("the spec names no image")),
                _ => Err(Error::transient("the API server is busy")),
            }
        }
    });
    queue.add_all([0, 1], Priority::Live);
    tokio::time::sleep(60 * SECOND).await;
    let shown = workers.inspector().snapshot(10);
    assert_eq!((shown.failing, shown.parked), (2, 1));
    assert_eq!(runs[0].load(Ordering::SeqCst), 1);
    assert!(runs[1].load(Ordering::SeqCst) > 10);
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_back_after_the_time_that_its_reconciler_asked_for() {
    let queue = queue();
    let _workers = start(&queue, Settings::default(), |_| async { Ok(Action::after(10 * SECOND)) });
    queue.add(1);
    tokio::time::sleep(35 * SECOND).await;
    assert_eq!(queue.stats().adds, 4);
}

#[tokio::test(start_paused = true)]
async fn a_stop_tells_reconcilers_to_end_and_cuts_off_those_that_do_not() {
    let queue = queue();
    let settings = Settings { max_concurrent: 2, ..Settings::default() };
    let workers = start(&queue, settings, |job| async move {
        match job.key {
            0 => job.cancelled.cancelled().await,
            _ => std::future::pending().await,
        }
        Ok(Action::done())
    });
    queue.add_all(0..4, Priority::Live);
    let start = Instant::now();
    let stopped = workers.stop(brief()).await;
    assert_eq!((stopped.undone, stopped.cut_off, stopped.abandoned.len()), (2, vec!["1".to_owned()], 0));
    assert_eq!(start.elapsed(), 2 * SECOND);
    assert_eq!(queue.stats().running, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciler_that_blocks_its_thread_is_left_behind_and_named() {
    let queue = queue();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = parking_lot::Mutex::new(blocked);
    let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let workers =
        start(&queue, Settings { timeout: Duration::from_millis(1), ..Settings::default() }, move |_| {
            let _ = began.send(());
            let _ = blocked.lock().recv();
            async { Ok(Action::done()) }
        });
    queue.add(3);
    begun.recv().await.unwrap();
    let inspector = workers.inspector();
    shoal_testkit::eventually("overdue", || async {
        inspector.in_flight().into_iter().find(|run| run.overdue)
    })
    .await;
    let patience = Patience { drain: Duration::ZERO, cancel: Duration::ZERO };
    let stopped = workers.stop(patience).await;
    assert_eq!(stopped.abandoned, ["3"]);
    drop(release);
}
