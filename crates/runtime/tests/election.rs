//! Leader election: never two leaders, whatever happens. Time is paused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use shoal_objects::{Clock, Entropy, Timestamp};
use shoal_runtime::election::{Election, Elector, Leadership, Lost, Timing};
use shoal_runtime::manager::Stop;
use shoal_runtime::monotonic::Monotonic;
use shoal_testkit::Cluster;
use tokio::time::{Instant, sleep};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/web";

/// What can go wrong for one replica.
#[derive(Clone, Default)]
struct Faults {
    /// Requests hang.
    hang: Arc<AtomicBool>,
    /// Requests are answered with an error before they have an effect.
    refuse: Arc<AtomicBool>,
    /// Requests have their effect, but the answer is lost.
    deafen: Arc<AtomicBool>,
    /// The elector's task is not run.
    freeze: Arc<AtomicBool>,
    /// Seconds by which the time of day is wrong.
    wall: Arc<AtomicI64>,
    /// Seconds spent in suspend.
    suspended: Arc<AtomicU64>,
}

struct Replica {
    faults: Faults,
    leadership: Leadership,
    elector: Elector,
}

fn replica(cluster: &Cluster, name: &str, seed: u64) -> Replica {
    let faults = Faults::default();
    let (inside, client) = (faults.clone(), cluster.client());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (faults, client) = (inside.clone(), client.clone());
        async move {
            while faults.hang.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(100)).await;
            }
            if faults.refuse.load(Ordering::Relaxed) {
                return Err(tower::BoxError::from("connection refused"));
            }
            let answer = client.send(request).await?;
            if faults.deafen.load(Ordering::Relaxed) {
                return Err("connection reset".into());
            }
            Ok(answer)
        }
    });
    let mut election = Election::new("default", "web", name);
    election.identity = name.to_owned();
    election.entropy = Entropy::seeded(seed);
    let (tokio_clock, suspended) = (Monotonic::tokio(), faults.suspended.clone());
    election.monotonic = Monotonic::from_fn(move || {
        tokio_clock.now() + Duration::from_secs(suspended.load(Ordering::Relaxed))
    });
    let (start, wall) = (Instant::now(), faults.wall.clone());
    election.clock = Clock::from_fn(move || {
        Timestamp(1_767_225_600_000_000 + start.elapsed().as_micros() as i64)
            .plus_seconds(wall.load(Ordering::Relaxed))
    });
    let (elector, leadership) = election.candidate(Client::new(service, "default")).unwrap();
    Replica { faults, leadership, elector }
}

/// A future that is not run while it is frozen, as in a process that is stopped.
struct Freezable<F> {
    inner: Pin<Box<F>>,
    frozen: Arc<AtomicBool>,
    thaw: Pin<Box<tokio::time::Sleep>>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        while self.frozen.load(Ordering::Relaxed) {
            if self.thaw.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.thaw.as_mut().reset(Instant::now() + Duration::from_millis(200));
        }
        self.inner.as_mut().poll(cx)
    }
}

/// Runs a candidate over and over, as a pod that is restarted.
fn forever(mut elector: Elector, freeze: Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
    let run = async move {
        let stop = Stop::never();
        loop {
            let _ = elector.run(&stop).await;
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::spawn(Freezable { inner: Box::pin(run), frozen: freeze, thaw: Box::pin(sleep(Duration::ZERO)) })
}

async fn spec(cluster: &Cluster) -> Value {
    cluster.http().get(LEASE).await.json()["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_renewed_and_given_back() {
    let cluster = Cluster::builder().seed(1).start().await;
    let mut one = replica(&cluster, "one", 1);
    let (stopper, stop) = Stop::channel();
    let run = tokio::spawn(async move { one.elector.run(&stop).await });
    one.leadership.gained().await;
    let first = spec(&cluster).await;
    assert_eq!((&first["holderIdentity"], &first["leaseDurationSeconds"]), (&json!("one"), &json!(15)));
    assert_eq!(first["leaseTransitions"], 0);
    sleep(Duration::from_secs(100)).await;
    assert!(one.leadership.is_leader());
    let later = spec(&cluster).await;
    assert_eq!(first["acquireTime"], later["acquireTime"]);
    assert_ne!(first["renewTime"], later["renewTime"]);
    stopper.stop();
    run.await.unwrap().unwrap();
    assert!(!one.leadership.is_leader());
    let released = spec(&cluster).await;
    assert_eq!((&released["holderIdentity"], &released["leaseDurationSeconds"]), (&json!(""), &json!(1)));

    let mut two = replica(&cluster, "two", 2);
    let begun = Instant::now();
    let (_stopper, stop) = Stop::channel();
    tokio::spawn(async move { two.elector.run(&stop).await });
    two.leadership.gained().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "a released lease is free at once");
    assert_eq!(spec(&cluster).await["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_starts() {
    let cluster = Cluster::builder().seed(1).start().await;
    let (mut one, two) = (replica(&cluster, "one", 1), replica(&cluster, "two", 2));
    let stop = Stop::never();
    let run = tokio::spawn(async move { one.elector.run(&stop).await });
    one.leadership.gained().await;
    forever(two.elector, two.faults.freeze);
    sleep(Duration::from_secs(30)).await;
    for fault in [&one.faults.refuse, &one.faults.deafen] {
        fault.store(true, Ordering::Relaxed);
    }
    let cut = Instant::now();
    one.leadership.lost().await;
    let stopped = cut.elapsed();
    let lost = run.await.unwrap().unwrap_err();
    two.leadership.gained().await;
    let started = cut.elapsed();
    assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
    assert!(stopped + Duration::from_secs(2) < started, "{stopped:?} {started:?}");
    assert!(started <= Duration::from_secs(18), "{started:?}");
    let text = lost.to_string();
    assert!(text.starts_with("the lease default/web could not be renewed for 10s: "), "{text}");
    assert!(text.contains("connection refused"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_time_of_day_change_nothing() {
    for jump in [3600, -3600] {
        let cluster = Cluster::builder().seed(1).start().await;
        let (one, two) = (replica(&cluster, "one", 1), replica(&cluster, "two", 2));
        forever(one.elector, one.faults.freeze);
        one.leadership.gained().await;
        forever(two.elector, two.faults.freeze);
        for wall in [&one.faults.wall, &two.faults.wall, &one.faults.wall] {
            wall.fetch_add(jump, Ordering::Relaxed);
            for _ in 0..600 {
                sleep(Duration::from_millis(100)).await;
                assert!(one.leadership.is_leader() && !two.leadership.is_leader());
            }
        }
        assert_eq!(spec(&cluster).await["leaseTransitions"], 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_wakes_up_does_not_believe_that_it_leads() {
    let cluster = Cluster::builder().seed(1).start().await;
    let mut one = replica(&cluster, "one", 1);
    let stop = Stop::never();
    let run = tokio::spawn(async move { one.elector.run(&stop).await });
    one.leadership.gained().await;
    sleep(Duration::from_secs(5)).await;
    one.faults.suspended.store(60, Ordering::Relaxed);
    assert!(!one.leadership.is_leader(), "at the first moment after the sleep");
    let woke = Instant::now();
    assert!(matches!(run.await.unwrap(), Err(Lost::NotRenewed { .. })));
    assert!(woke.elapsed() <= Duration::from_secs(1), "work is told soon after");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_does_not_believe_that_it_leads() {
    let cluster = Cluster::builder().seed(1).start().await;
    let (one, two) = (replica(&cluster, "one", 1), replica(&cluster, "two", 2));
    let freeze = one.faults.freeze.clone();
    forever(one.elector, freeze.clone());
    one.leadership.gained().await;
    forever(two.elector, two.faults.freeze);
    sleep(Duration::from_secs(10)).await;
    freeze.store(true, Ordering::Relaxed);
    two.leadership.gained().await;
    assert!(!one.leadership.is_leader());
    freeze.store(false, Ordering::Relaxed);
    for _ in 0..300 {
        sleep(Duration::from_millis(100)).await;
        assert!(two.leadership.is_leader() && !one.leadership.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_by_hand_is_written_anew_by_its_leader() {
    let cluster = Cluster::builder().seed(1).start().await;
    let (one, two) = (replica(&cluster, "one", 1), replica(&cluster, "two", 2));
    forever(one.elector, one.faults.freeze);
    one.leadership.gained().await;
    forever(two.elector, two.faults.freeze.clone());
    for _ in 0..10 {
        sleep(Duration::from_secs(7)).await;
        assert_eq!(cluster.http().delete(LEASE).await.status, 200);
        for _ in 0..100 {
            sleep(Duration::from_millis(50)).await;
            assert!(one.leadership.is_leader() && !two.leadership.is_leader());
        }
        assert_eq!(spec(&cluster).await["holderIdentity"], "one");
    }
    // Deleted while the leader is cut off: the other waits as if the lease were still there.
    one.faults.hang.store(true, Ordering::Relaxed);
    assert_eq!(cluster.http().delete(LEASE).await.status, 200);
    one.leadership.lost().await;
    assert!(!two.leadership.is_leader());
    two.leadership.gained().await;
    assert!(!one.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_somebody_else_does_not_end_a_leadership() {
    let cluster = Cluster::builder().seed(1).start().await;
    let one = replica(&cluster, "one", 1);
    forever(one.elector, one.faults.freeze);
    one.leadership.gained().await;
    for round in 0..20 {
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        assert_eq!(cluster.http().merge(LEASE, &patch).await.status, 200);
        sleep(Duration::from_secs(2)).await;
        assert!(one.leadership.is_leader());
    }
    let lease = cluster.http().get(LEASE).await.json();
    assert_eq!(lease["metadata"]["labels"]["round"], "19", "what is not the record stays as it is");
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_name_never_both_lead() {
    let cluster = Cluster::builder().seed(1).start().await;
    let (one, two) = (replica(&cluster, "same", 1), replica(&cluster, "same", 2));
    forever(one.elector, one.faults.freeze);
    one.leadership.gained().await;
    forever(two.elector, two.faults.freeze);
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cautious_replica_waits_before_it_trusts_that_nobody_leads() {
    let cluster = Cluster::builder().seed(1).start().await;
    let mut election = Election::new("default", "web", "host");
    election.cautious = true;
    election.monotonic = Monotonic::tokio();
    let (mut elector, leadership) = election.candidate(cluster.client()).unwrap();
    let begun = Instant::now();
    tokio::spawn(async move { elector.run(&Stop::never()).await });
    leadership.gained().await;
    assert!(begun.elapsed() >= Duration::from_secs(15));
}

#[tokio::test]
async fn timers_out_of_order_are_refused() {
    let cluster = Cluster::start().await;
    let mut election = Election::new("default", "web", "host");
    election.timing = Timing { lease_duration: Duration::from_secs(5), ..Timing::default() };
    let error = election.candidate(cluster.client()).map(|_| ()).unwrap_err();
    assert!(error.starts_with("leaseDuration (5s) must be longer than renewDeadline (10s)"), "{error}");
}

/// Three replicas and much trouble: at no moment do two lead, and whenever the trouble rests, one does.
#[tokio::test(start_paused = true)]
async fn never_two_leaders_whatever_happens() {
    // More with ELECTION_SEEDS=100.
    let seeds = std::env::var("ELECTION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for seed in 0..seeds {
        let cluster = Cluster::builder().seed(seed).start().await;
        let chance = Entropy::seeded(seed);
        let replicas: Vec<(Faults, Leadership)> = (0..3)
            .map(|index| {
                let replica = replica(&cluster, &format!("r{index}"), seed * 10 + index);
                forever(replica.elector, replica.faults.freeze.clone());
                (replica.faults, replica.leadership)
            })
            .collect();
        let mut leaders_seen = std::collections::BTreeSet::new();
        let mut seen_any = false;
        for step in 0..300 {
            let (faults, _) = &replicas[chance.below(3) as usize];
            let on = chance.below(2) == 0;
            match chance.below(8) {
                0 => faults.hang.store(on, Ordering::Relaxed),
                1 => faults.refuse.store(on, Ordering::Relaxed),
                2 => faults.deafen.store(on, Ordering::Relaxed),
                3 => faults.freeze.store(on, Ordering::Relaxed),
                4 => _ = faults.wall.fetch_add(if on { 3600 } else { -3600 }, Ordering::Relaxed),
                // Only when all have seen it: see the cautious replica for the other case.
                5 if seen_any => _ = cluster.http().delete(LEASE).await,
                _ => {
                    for (faults, _) in &replicas {
                        for fault in [&faults.hang, &faults.refuse, &faults.deafen, &faults.freeze] {
                            fault.store(false, Ordering::Relaxed);
                        }
                    }
                }
            }
            let resting = replicas.iter().all(|(faults, _)| {
                [&faults.hang, &faults.refuse, &faults.deafen, &faults.freeze]
                    .iter()
                    .all(|f| !f.load(Ordering::Relaxed))
            });
            let pause = if resting && step % 10 == 0 { 25_000 } else { chance.below(6_000) };
            for _ in 0..=pause / 200 {
                sleep(Duration::from_millis(200)).await;
                let leaders: Vec<&str> =
                    replicas.iter().filter(|(_, l)| l.is_leader()).map(|(_, l)| l.identity()).collect();
                assert!(leaders.len() <= 1, "seed {seed}, step {step}: {leaders:?}");
                leaders_seen.extend(leaders.iter().map(|leader| (*leader).to_owned()));
                seen_any = seen_any || replicas.iter().all(|(_, l)| !l.holder().is_empty());
            }
            if pause == 25_000 {
                assert!(
                    replicas.iter().any(|(_, l)| l.is_leader()),
                    "seed {seed}, step {step}: nobody leads"
                );
            }
        }
        assert!(leaders_seen.len() > 1, "seed {seed}: the trouble was too mild");
    }
}
