use std::collections::BTreeSet;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Next, Priority, Queue, QueueMetrics, Settings};
use crate::ObjectKey;

const MS: Duration = Duration::from_millis(1);

fn queue() -> Queue<&'static str> {
    Queue::new(Settings::default())
}

fn ready<K: Clone>(queue: &Queue<K>) -> Vec<K> {
    std::iter::from_fn(|| queue.try_get()).map(|taken| taken.key().clone()).collect()
}

#[tokio::test]
async fn keys_leave_in_the_order_in_which_they_came_each_once() {
    let queue = queue();
    for key in ["a", "b", "a", "c", "b"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(ready(&queue), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_key_added_while_it_runs_runs_once_more_and_never_beside_itself() {
    let queue = queue();
    queue.add("a");
    let first = queue.get().await.unwrap();
    queue.add("a");
    queue.add("a");
    assert!(queue.try_get().is_none());
    first.done();
    let second = queue.get().await.unwrap();
    assert_eq!(*second, "a");
    second.done();
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_when_their_time_has_come_and_earliest_first() {
    let (queue, start) = (queue(), Instant::now());
    queue.add_after("late", 300 * MS);
    queue.add_after("early", 100 * MS);
    queue.add_after("late", 200 * MS);
    queue.add_after("early", 900 * MS);
    assert_eq!(queue.get().await.unwrap().key(), &"early");
    assert_eq!(start.elapsed(), 100 * MS);
    assert_eq!(queue.get().await.unwrap().key(), &"late");
    assert_eq!(start.elapsed(), 200 * MS);
    assert_eq!(queue.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn an_add_overtakes_the_timer_of_its_key() {
    let queue = queue();
    queue.add_after("a", 100 * MS);
    queue.add("a");
    queue.get().await.unwrap().done();
    tokio::time::advance(200 * MS).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn retries_wait_twice_as_long_each_time_until_forgotten() {
    let queue = Queue::new(Settings { qps: 0.0, ..Settings::default() });
    let mut waits = Vec::new();
    queue.add("a");
    queue.get().await.unwrap().finish(Next::Retry);
    for _ in 0..4 {
        let start = Instant::now();
        let taken = queue.get().await.unwrap();
        waits.push(start.elapsed().as_millis());
        taken.finish(Next::Retry);
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    assert_eq!(queue.num_requeues(&"a"), 5);
    queue.get().await.unwrap().finish(Next::Forget);
    assert_eq!(queue.num_requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn all_retries_together_are_held_to_the_rate() {
    let settings = Settings { base_delay: MS, qps: 100.0, burst: 10, ..Settings::default() };
    let (queue, start) = (Queue::new(settings), Instant::now());
    (0..110).for_each(|key| queue.add_rate_limited(key));
    for _ in 0..110 {
        queue.get().await.unwrap().finish(Next::Forget);
    }
    assert_eq!(start.elapsed().as_millis(), 1000);
}

#[tokio::test]
async fn live_events_go_before_a_resync_which_still_gets_its_share() {
    let queue = Queue::new(Settings::default());
    queue.add_all(1000..1010, Priority::Resync);
    queue.add_all(0..70, Priority::Live);
    let order = ready(&queue);
    assert!(order[..7].iter().all(|key| *key < 1000));
    assert_eq!(order[7], 1000);
    assert_eq!(order[..80].iter().filter(|key| **key >= 1000).count(), 10);
    queue.add_with(1, Priority::Resync);
    queue.add_with(2, Priority::Resync);
    queue.add(2);
    assert_eq!(ready(&queue), [2, 1], "a change raises what a resync had queued");
}

#[tokio::test]
async fn a_namespace_with_many_keys_does_not_make_others_wait() {
    let queue = Queue::by_namespace(Settings::default());
    queue.add_all((0..1000).map(|n| ObjectKey::new("crowded", &n.to_string())), Priority::Live);
    queue.add(ObjectKey::new("quiet", "a"));
    queue.add(ObjectKey::new("quiet", "b"));
    let namespaces: Vec<_> = ready(&queue).into_iter().map(|key| key.namespace.to_string()).collect();
    assert_eq!(namespaces[..5], ["crowded", "quiet", "crowded", "quiet", "crowded"]);
}

#[tokio::test]
async fn a_hot_key_does_not_make_others_wait() {
    let queue = queue();
    queue.add("hot");
    let hot = queue.get().await.unwrap();
    queue.add("a");
    queue.add("hot");
    queue.add("b");
    hot.done();
    assert_eq!(ready(&queue), ["a", "b", "hot"]);
}

#[tokio::test]
async fn every_waiting_worker_gets_its_key() {
    let queue: Queue<u32> = Queue::new(Settings::default());
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(|taken| *taken) })
        })
        .collect();
    tokio::task::yield_now().await;
    // A worker that gives up while it is being woken passes its key on.
    let impatient = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|taken| *taken) }
    });
    tokio::task::yield_now().await;
    queue.add_all(0..4, Priority::Live);
    impatient.abort();
    let mut got = BTreeSet::new();
    for worker in workers {
        got.insert(worker.await.unwrap());
    }
    assert_eq!(got, (0..4).map(Some).collect());
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_out_what_is_ready_and_waits_for_the_last() {
    let queue = queue();
    queue.add("running");
    let running = queue.get().await.unwrap();
    queue.add("running");
    queue.add("ready");
    queue.add_after("waiting", 10 * MS);
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown_with_drain().await }
    });
    tokio::task::yield_now().await;
    queue.add("too late");
    assert!(!queue.is_accepting());
    assert_eq!(queue.get().await.unwrap().key(), &"ready");
    tokio::task::yield_now().await;
    assert!(!drain.is_finished());
    running.finish(Next::Retry);
    let again = queue.get().await.unwrap();
    assert_eq!(*again, "running");
    again.finish(Next::Retry);
    drain.await.unwrap();
    assert!(queue.get().await.is_none());
}

#[tokio::test]
async fn a_shutdown_ends_waiting_workers_and_can_give_up_ready_keys() {
    let queue = queue();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    tokio::task::yield_now().await;
    queue.shutdown();
    assert!(worker.await.unwrap());

    let queue = Queue::new(Settings::default());
    queue.add_all(0..10, Priority::Live);
    assert_eq!(queue.shutdown_now(), 10);
    assert!(queue.get().await.is_none());
    queue.shutdown_with_drain().await;
}

#[tokio::test]
async fn odd_delays_do_no_harm() {
    let queue = queue();
    queue.add_after("never", Duration::MAX);
    queue.add_after("now", Duration::ZERO);
    assert_eq!(queue.get().await.unwrap().key(), &"now");
    tokio::task::yield_now().await;
    assert_eq!(queue.stats().waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_first_keys_and_metrics_the_numbers() {
    let queue = queue();
    queue.add("a");
    queue.add_with("b", Priority::Resync);
    queue.add_rate_limited("c");
    tokio::time::advance(2 * MS).await;
    let shown = serde_json::to_value(queue.snapshot(10)).unwrap();
    assert_eq!(
        shown,
        serde_json::json!({
            "accepting": true, "live": 1, "resync": 1, "waiting": 1, "running": 0, "adds": 2, "retries": 1,
            "keys": [
                {"key": "a", "priority": "live", "retries": 0, "ageSeconds": 0.002},
                {"key": "b", "priority": "resync", "retries": 0, "ageSeconds": 0.002},
                {"key": "c", "priority": "live", "retries": 1, "ageSeconds": 0.002, "dueSeconds": 0.003},
            ],
        })
    );

    let (metrics, mut registry) = (QueueMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    metrics.watch("demo", &queue);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "controller_workqueue_depth{controller=\"demo\"} 2",
        "controller_workqueue_adds_total{controller=\"demo\"} 2",
        "controller_workqueue_retries_total{controller=\"demo\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn producers_and_consumers_at_once_lose_nothing_and_never_meet_on_a_key() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    let queue: Queue<usize> = Queue::in_groups(Settings::default(), |key| (*key % 7) as u64);
    let running: Arc<Vec<AtomicU32>> = Arc::new((0..100).map(|_| AtomicU32::new(0)).collect());
    let added: Arc<Vec<AtomicU32>> = Arc::new((0..100).map(|_| AtomicU32::new(0)).collect());
    let consumers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, running, added) = (queue.clone(), running.clone(), added.clone());
            tokio::spawn(async move {
                while let Some(taken) = queue.get().await {
                    assert_eq!(running[*taken].fetch_add(1, Ordering::SeqCst), 0);
                    added[*taken].store(0, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    running[*taken].fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..8)
        .map(|producer| {
            let (queue, added) = (queue.clone(), added.clone());
            tokio::spawn(async move {
                for round in 0..2000 {
                    let key = (round * 31 + producer * 17) % 100;
                    added[key].store(1, Ordering::SeqCst);
                    queue.add(key);
                    if round % 50 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    queue.shutdown_with_drain().await;
    for consumer in consumers {
        consumer.await.unwrap();
    }
    assert!(added.iter().all(|flag| flag.load(Ordering::SeqCst) == 0), "an add was not followed by a run");
}
