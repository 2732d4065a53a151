//! Replicas come, go, fall over and are cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use shoal_runtime::monotonic::Monotonic;
use shoal_runtime::{Action, Context, Controller, Manager};
use shoal_testkit::FaultLayer;

use crate::harness::{Replica, SERVICE, SLOTS, World, config, options, settled, within};

/// Lease × (1 + drift), and the second that the goal allows.
const TAKEOVER: u64 = 12;

#[tokio::test(start_paused = true)]
async fn one_replica_works_on_everything() {
    let world = World::new().await;
    world.create(20).await;
    let a = world.replica("a").await;
    within(30, "all objects are reconciled", || world.all_at(20, "0")).await;
    world.set_all(20, "1").await;
    within(5, "changes are reconciled", || world.all_at(20, "1")).await;
    a.stop().await;
    world.intervals.check();
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_its_share_and_no_object_is_rewritten() {
    let world = World::new().await;
    world.create(40).await;
    let a = world.replica("a").await;
    settled(&[&a]).await;
    let before = world.maps().list(&Default::default()).await.unwrap();
    let b = world.replica("b").await;
    settled(&[&a, &b]).await;
    let after = world.maps().list(&Default::default()).await.unwrap();
    let versions = |list: &kube::api::ObjectList<ConfigMap>| -> Vec<String> {
        list.items.iter().filter_map(|map| map.metadata.resource_version.clone()).collect()
    };
    assert_eq!(versions(&before), versions(&after));
    world.set_all(40, "1").await;
    within(5, "changes are reconciled", || world.all_at(40, "1")).await;
    let workers: Vec<String> =
        world.intervals.last_by_key().values().map(|interval| interval.replica.clone()).collect();
    assert!(workers.contains(&"a".to_owned()) && workers.contains(&"b".to_owned()));
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leaver_hands_its_slots_over_before_it_ends() {
    let world = World::new().await;
    world.create(40).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    let began = tokio::time::Instant::now();
    a.stop().await;
    assert!(began.elapsed() < Duration::from_secs(5), "a stop took {:?}", began.elapsed());
    within(1, "everything was handed over", || b.slots() == SLOTS).await;
    world.set_all(40, "1").await;
    within(5, "changes are reconciled", || world.all_at(40, "1")).await;
    world.intervals.check();
    b.stop().await;
    assert!(world.live_leases().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_planned_handover_leaves_no_object_alone_for_half_a_second() {
    let world = World::new().await;
    world.create(60).await;
    let again = Duration::from_millis(50);
    let start = async |name: &str| world.replica_with(options(name), world.repeating(name, again)).await;
    let a = start("a").await;
    settled(&[&a]).await;
    within(5, "all are worked on", || world.intervals.last_by_key().len() == 60).await;
    let b = start("b").await;
    settled(&[&a, &b]).await;
    let c = start("c").await;
    settled(&[&a, &b, &c]).await;
    a.stop().await;
    settled(&[&b, &c]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.intervals.check();
    let longest = world.intervals.longest_gap();
    assert!(longest <= Duration::from_millis(500) + SERVICE + again, "{longest:?}");
    b.stop().await;
    c.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_crashed_replica_are_taken_over_within_the_bound() {
    let world = World::new().await;
    world.create(40).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    a.crash().await;
    world.set_all(40, "1").await;
    within(TAKEOVER, "the survivor works on everything", || world.all_at(40, "1")).await;
    world.intervals.check();
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_coordinators_death_stops_nobody() {
    let world = World::new().await;
    world.create(30).await;
    // The first in the order of ids coordinates.
    let (a, b, c) = (world.replica("a").await, world.replica("b").await, world.replica("c").await);
    settled(&[&a, &b, &c]).await;
    a.crash().await;
    b.crash().await;
    world.set_all(30, "1").await;
    within(2 * TAKEOVER, "the last one works on everything", || world.all_at(30, "1")).await;
    world.intervals.check();
    c.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_cut_off_stops_before_another_starts() {
    let world = World::new().await;
    world.create(40).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    a.cut_off();
    within(7, "it has stopped by itself", || {
        !a.sharding.inspect()["secondsToDeadline"].as_f64().is_some_and(|s| s > 0.0)
    })
    .await;
    world.set_all(40, "1").await;
    within(TAKEOVER, "the other works on everything", || world.all_at(40, "1")).await;
    a.reconnect();
    settled(&[&a, &b]).await;
    world.set_all(40, "2").await;
    within(5, "both work again", || world.all_at(40, "2")).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_lease_stops_all_work_until_it_is_over() {
    let world = World::new().await;
    world.create(20).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    a.cut_off();
    b.cut_off();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let worked = world.intervals.count();
    world.set_all(20, "1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.intervals.count(), worked, "nobody works without the server");
    a.reconnect();
    b.reconnect();
    within(45, "everything is worked on again", || world.all_at(20, "1")).await;
    settled(&[&a, &b]).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_works_only_after_its_lease_is_renewed() {
    let world = World::new().await;
    world.create(20).await;
    let asleep = Arc::new(AtomicU64::new(0));
    let (awake, gap) = (Monotonic::tokio(), asleep.clone());
    let clock = Monotonic::from_fn(move || awake.now() + Duration::from_secs(gap.load(Ordering::Relaxed)));
    let faults = FaultLayer::new(1);
    let builder = Manager::builder("web").client(world.cluster.client_through(&faults)).config(config());
    let builder = builder.embedded().monotonic(clock).sharded(options("a"));
    let a = Replica::start(builder, world.controller("a"), faults).await.unwrap();
    settled(&[&a]).await;
    a.cut_off();
    asleep.store(7, Ordering::Relaxed);
    world.set_all(20, "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!world.all_at(1, "1"), "the deadline has passed in its sleep");
    a.reconnect();
    within(10, "it goes on", || world.all_at(20, "1")).await;
    world.intervals.check();
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciler_that_blocks_its_thread_ends_the_process_before_another_may_start() {
    let world = World::new().await;
    world.create(4).await;
    let mut short = config();
    short.state.lease_duration = Duration::from_secs(2);
    short.state.renew_deadline = Duration::from_millis(1_200);
    short.state.retry_period = Duration::from_millis(300);
    let (told, ended) = std::sync::mpsc::channel();
    let options = options("a").abort_hook(move |why| _ = told.send(why.to_owned()));
    let faults = FaultLayer::new(1);
    let blocking = Controller::of::<ConfigMap>("maps").with_labels("app=test").reconcile(
        |_: Context<ConfigMap>| async {
            // As if everything were stuck: both threads of the runtime are gone.
            std::thread::sleep(Duration::from_secs(5));
            Ok(Action::done())
        },
    );
    let builder = Manager::builder("web").client(world.cluster.client_through(&faults)).config(short);
    let builder = builder.signals(false).listen(false).sharded(options);
    let began = std::time::Instant::now();
    let a = Replica::start(builder, blocking, faults).await.unwrap();
    let why = tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(30))).await;
    let why = why.unwrap().unwrap();
    assert!(why.contains("did not stop"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(20));
    a.crash().await;
}
