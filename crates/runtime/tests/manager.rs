//! The life of a manager: order, needs, failures, stops. Time is paused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use shoal_runtime::config::{Config, Source};
use shoal_runtime::manager::{Component, Error, Manager, Phase, Stop};
use shoal_runtime::{Action, Context, Controller, ObjectKey};
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule, eventually};
use tokio::time::{Instant, sleep};

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().push(text.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn at(&self, text: &str) -> usize {
        self.lines()
            .iter()
            .position(|line| line == text)
            .unwrap_or_else(|| panic!("{text} not in {:?}", self.lines()))
    }
}

/// A component that notes what happens to it; ready `warm_up` after its start, and takes `drain` to end.
fn component(log: &Log, name: &'static str, warm_up: u64, drain: u64) -> Component {
    let (log, ready) = (log.clone(), Arc::new(AtomicBool::new(false)));
    let asked = ready.clone();
    Component::new(name, move |stop: Stop| async move {
        log.note(format!("{name} starts"));
        sleep(Duration::from_secs(warm_up)).await;
        ready.store(true, Ordering::Relaxed);
        log.note(format!("{name} is ready"));
        stop.quiet().await;
        log.note(format!("{name} is quiet"));
        stop.requested().await;
        log.note(format!("{name} drains"));
        sleep(Duration::from_secs(drain)).await;
        log.note(format!("{name} ends"));
        Ok(())
    })
    .ready(move || asked.load(Ordering::Relaxed))
}

async fn manager() -> Manager {
    let cluster = Cluster::start().await;
    Manager::builder("test")
        .client(cluster.client())
        .config(Config::default())
        .embedded()
        .build()
        .await
        .unwrap()
}

async fn reach(manager: &Manager, phase: Phase) -> impl Future<Output = ()> + use<> {
    let mut phases = manager.phase();
    async move {
        phases.wait_for(|now| *now >= phase).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn components_start_in_the_order_of_their_needs_and_stop_in_the_opposite_one() {
    let log = Log::default();
    let mut manager = manager().await;
    manager
        .add(component(&log, "deployment", 0, 1).needs("replicaset"))
        .add(component(&log, "replicaset", 5, 1).needs("pods"))
        .add(component(&log, "pods", 3, 0).cache())
        .add(component(&log, "other", 0, 0));
    let (stopper, running) = (manager.stopper(), reach(&manager, Phase::Running).await);
    let run = tokio::spawn(manager.run());
    running.await;
    stopper.stop();
    run.await.unwrap().unwrap();
    for name in ["deployment", "replicaset", "pods", "other"] {
        assert!(
            log.at(&format!("{name} is quiet")) < log.at("other ends"),
            "all are quiet before any has drained"
        );
    }
    let lines: Vec<String> = log.lines().into_iter().filter(|line| !line.ends_with("quiet")).collect();
    assert_eq!(
        lines,
        [
            "pods starts",
            "pods is ready",
            "replicaset starts",
            "other starts",
            "other is ready",
            "replicaset is ready",
            "deployment starts",
            "deployment is ready",
            "deployment drains",
            "other drains",
            "other ends",
            "deployment ends",
            "replicaset drains",
            "replicaset ends",
            "pods drains",
            "pods ends",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_nothing_before_what_it_needs_is_ready() {
    let log = Log::default();
    let mut manager = manager().await;
    let controller = |name: &'static str, needs: &[&str]| {
        let log = log.clone();
        let builder = Controller::of::<Namespace>(name).with_labels("kubernetes.io/metadata.name=default");
        needs.iter().fold(builder, |builder, need| builder.needs(need)).reconcile(
            move |_: Context<Namespace>| {
                log.note(format!("{name} reconciles"));
                async { Ok(Action::done()) }
            },
        )
    };
    manager
        .add(controller("third", &["second"]))
        .add(controller("second", &["schema"]))
        .add(controller("free", &[]))
        .add(component(&log, "schema", 20, 3));
    let (stopper, running) = (manager.stopper(), reach(&manager, Phase::Running).await);
    let run = tokio::spawn(manager.run());
    running.await;
    eventually("the last one works", || async {
        log.lines().contains(&"third reconciles".to_owned()).then_some(())
    })
    .await;
    stopper.stop();
    run.await.unwrap().unwrap();
    let order =
        ["free reconciles", "schema is ready", "second reconciles", "third reconciles", "schema drains"];
    assert!(order.windows(2).all(|two| log.at(two[0]) < log.at(two[1])), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_life_goes_through_its_phases_in_order() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "cache", 1, 1).cache()).add(component(&log, "controller", 1, 1));
    let (stopper, health, mut phases) = (manager.stopper(), manager.health().clone(), manager.phase());
    assert_eq!(
        *phases.borrow(),
        Phase::Client,
        "settings are checked and the client is made before anything runs"
    );
    let run = tokio::spawn(manager.run());
    phases.wait_for(|phase| *phase == Phase::Running).await.unwrap();
    stopper.stop();
    run.await.unwrap().unwrap();
    let history = health.inspection()["manager"]["history"].clone();
    let names: Vec<&str> =
        history.as_array().unwrap().iter().filter_map(|entry| entry["phase"].as_str()).collect();
    assert_eq!(
        names,
        [
            "Config",
            "Client",
            "Informers",
            "Queue",
            "Health",
            "Running",
            "Quiet",
            "Draining",
            "Cleaning",
            "Waiting",
            "Stopped"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn probes_tell_alive_while_caches_fill_ready_when_queues_accept_and_neither_while_stopping() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "pods", 30, 0).cache()).add(component(&log, "web", 1, 5));
    let (stopper, health) = (manager.stopper(), manager.health().clone());
    let failing = |checks: Vec<shoal_runtime::health::Check>| -> Vec<String> {
        checks.into_iter().filter_map(|check| Some(format!("{}: {}", check.name, check.problem?))).collect()
    };
    let run = tokio::spawn(manager.run());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(failing(health.alive_checks()), [""; 0]);
    assert_eq!(
        failing(health.ready_checks()),
        ["manager: starting", "pods: not synced", "web: waits for what it needs"]
    );
    sleep(Duration::from_secs(30)).await;
    assert_eq!(failing(health.ready_checks()), [""; 0]);
    stopper.stop();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(failing(health.alive_checks()), ["manager: stopping"]);
    assert_eq!(failing(health.ready_checks())[0], "manager: stopping");
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_component_that_fails_ends_or_panics_stops_the_manager_and_is_named() {
    for (case, wanted) in [
        ("fails", "component \"bad\" failed: out of cake"),
        ("ends", "component \"bad\" ended before it was asked to"),
        ("panics", "component \"bad\" panicked: cake fell"),
        ("panics at once", "component \"bad\" panicked: no plate"),
    ] {
        let log = Log::default();
        let mut manager = manager().await;
        manager.add(component(&log, "good", 0, 1)).add(Component::new("bad", move |_| {
            assert!(case != "panics at once", "no plate");
            async move {
                sleep(Duration::from_secs(3)).await;
                match case {
                    "fails" => Err("out of cake".into()),
                    "panics" => panic!("cake fell"),
                    _ => Ok(()),
                }
            }
        }));
        let error = manager.run().await.unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert_eq!(log.lines().last().unwrap(), "good ends", "the others end in good order");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_takes_too_long_drops_what_is_left_and_names_it() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "slow", 0, 3600)).add(component(&log, "quick", 0, 1));
    let (stopper, running) = (manager.stopper(), reach(&manager, Phase::Running).await);
    let run = tokio::spawn(manager.run());
    running.await;
    let begun = Instant::now();
    stopper.stop();
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "after 25s these components had not stopped and were dropped: slow");
    assert_eq!(begun.elapsed().as_secs(), 25);
    assert!(log.lines().contains(&"quick ends".to_owned()));
    assert!(!log.lines().contains(&"slow ends".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_second_request_does_not_wait() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "slow", 0, 3600));
    let (stopper, running) = (manager.stopper(), reach(&manager, Phase::Running).await);
    let run = tokio::spawn(manager.run());
    running.await;
    stopper.stop();
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    stopper.abort();
    assert!(matches!(run.await.unwrap(), Err(Error::Aborted)));
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_starts_nothing_more() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "pods", 3600, 0).cache()).add(component(&log, "web", 0, 0));
    let stopper = manager.stopper();
    let run = tokio::spawn(manager.run());
    sleep(Duration::from_secs(1)).await;
    stopper.stop();
    // The cache does not listen while it warms up, so it is dropped at the deadline.
    assert!(matches!(run.await.unwrap(), Err(Error::Deadline { names, .. }) if names == ["pods"]));
    assert_eq!(log.lines(), ["pods starts"]);
}

#[tokio::test(start_paused = true)]
async fn needs_that_cannot_be_met_are_refused_before_anything_starts() {
    let log = Log::default();
    let mut manager = manager().await;
    manager.add(component(&log, "a", 0, 0).needs("b")).add(component(&log, "b", 0, 0).needs("a"));
    let error = manager.run().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "components wait for each other and none could start: a needs b needs a; drop one of these needs"
    );
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_be_used_are_refused_before_there_is_a_client() {
    let mut config = Config::default();
    config.state.renew_deadline = Duration::from_secs(60);
    let cluster = Cluster::start().await;
    let built = Manager::builder("test").client(cluster.client()).config(config).embedded().build().await;
    let text = built.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("state.leaseDuration (15s) must be longer than renewDeadline (1m)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_works_and_the_other_takes_over_when_it_stops() {
    let cluster = Cluster::builder().seed(7).start().await;
    let log = Log::default();
    let replica = async |name: &'static str| {
        let mut manager = Manager::builder("web")
            .client(cluster.client())
            .config(Config::default())
            .embedded()
            .identity(name)
            .leader_election()
            .build()
            .await
            .unwrap();
        manager.add(component(&log, name, 0, 4).elected()).add(component(
            &Log::default(),
            "everywhere",
            0,
            0,
        ));
        manager
    };
    let (one, two) = (replica("one").await, replica("two").await);
    let (leader_one, leader_two) = (one.leadership().unwrap(), two.leadership().unwrap());
    let (stop_one, stop_two, health_two) = (one.stopper(), two.stopper(), two.health().clone());
    let run_one = tokio::spawn(one.run());
    leader_one.gained().await;
    let run_two = tokio::spawn(two.run());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.lines(), ["one starts", "one is ready"]);
    assert!(health_two.ready_checks().iter().all(|check| check.problem.is_none()), "standing by is ready");
    stop_one.stop();
    leader_two.gained().await;
    assert!(!leader_one.is_leader());
    run_one.await.unwrap().unwrap();
    eventually("two works", || async { log.lines().contains(&"two is ready".to_owned()).then_some(()) })
        .await;
    assert!(log.at("one ends") < log.at("two starts"), "the lease is given back after the work has ended");
    stop_two.stop();
    run_two.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_loses_the_lease_drops_its_work_at_once_and_says_why() {
    let cluster = Cluster::builder().seed(7).start().await;
    let log = Log::default();
    let mut manager = Manager::builder("web")
        .client(cluster.client())
        .config(Config::default())
        .embedded()
        .identity("one")
        .leader_election()
        .build()
        .await
        .unwrap();
    let leader = manager.leadership().unwrap();
    manager.add(component(&log, "elected", 0, 10).elected()).add(component(&log, "everywhere", 0, 1));
    let run = tokio::spawn(manager.run());
    leader.gained().await;
    eventually("it works", || async { log.lines().contains(&"elected is ready".to_owned()).then_some(()) })
        .await;
    let patch = serde_json::json!({"spec": {"holderIdentity": "thief"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/web";
    assert_eq!(cluster.http().merge(path, &patch).await.status, 200);
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "component \"leader-election\" failed: the lease default/web was taken by \"thief\""
    );
    assert!(!log.lines().contains(&"elected drains".to_owned()));
    assert!(log.lines().contains(&"everywhere ends".to_owned()));
    let lease = cluster.http().get(path).await.json();
    assert_eq!(lease["spec"]["holderIdentity"], "thief", "what is not ours is not released");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_change_of_settings_is_seen_in_inspection_metrics_and_events() {
    let cluster = Cluster::builder().seed(7).start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, "workers: 2").unwrap();
    let source = Source::file(&file).unwrap();
    let manager = Manager::builder("test")
        .client(cluster.client())
        .config_source(source.clone())
        .embedded()
        .build()
        .await
        .unwrap();
    let (stopper, health, metrics) = (manager.stopper(), manager.health().clone(), manager.metrics().clone());
    let run = tokio::spawn(manager.run());
    std::fs::write(&file, "wokers: 3").unwrap();
    let mistake = "wokers is not a key: did you mean workers?";
    eventually("rejected", || async {
        (health.inspection()["config"]["rejected"][0] == mistake).then_some(())
    })
    .await;
    assert_eq!(source.current().workers.0, 2);
    assert!(metrics.text().contains("config_rejected_total 1"));
    assert!(metrics.text().contains("config_last_reload_successful 0"));
    std::fs::write(&file, "workers: 3").unwrap();
    eventually("applied", || async { (source.current().workers.0 == 3).then_some(()) }).await;
    assert!(metrics.text().contains("config_last_reload_successful 1"));
    stopper.stop();
    run.await.unwrap().unwrap();
    let events = cluster.http().get("/api/v1/namespaces/default/events").await.json();
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect();
    assert!(reasons.contains(&"ConfigRejected") && reasons.contains(&"ConfigApplied"), "{events}");
}

/// A manager with these settings behind a network that can fail.
async fn set(yaml: &str, environment: &[(&str, &str)], faults: &FaultLayer, cluster: &Cluster) -> Manager {
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    let config = Config::parse(yaml, &variable).unwrap();
    let builder = Manager::builder("test").client(cluster.client_through(faults)).config(config);
    builder.embedded().build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_environment_sets_the_caches_of_the_manager() {
    let (cluster, faults) = (Cluster::builder().seed(7).start().await, FaultLayer::new(1));
    let environment =
        [("INFORMER_CACHE_SIZE", "2"), ("LIST_TIMEOUT", "5s"), ("ENABLE_INCREMENTAL_SYNC", "false")];
    let manager = set("", &environment, &faults, &cluster).await;
    faults.add(Rule::all(Effect::Delay(Duration::from_secs(3600))).times(1));
    let begun = Instant::now();
    let namespaces = manager.informers().of::<Namespace>();
    namespaces.synced().await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(10), "LIST_TIMEOUT: {took:?}");
    assert!(namespaces.lister().list().len() > 2);
    assert_eq!(namespaces.lister().decoded_len(), 2, "INFORMER_CACHE_SIZE");
    let lists = namespaces.stats().lists.load(Ordering::Relaxed);
    faults.disconnect();
    sleep(Duration::from_secs(60)).await;
    assert!(namespaces.stats().lists.load(Ordering::Relaxed) > lists, "ENABLE_INCREMENTAL_SYNC");
}

#[tokio::test(start_paused = true)]
async fn settings_of_workers_queue_and_reconcile_are_those_of_every_controller() {
    let (cluster, faults) = (Cluster::builder().seed(7).start().await, FaultLayer::new(1));
    let yaml = "{workers: 3, queueConfig: {maxRetries: 2, baseDelay: 1s, maxDelay: 2s, rateLimiterQPS: 100},
        reconcileConfig: {timeout: 10s, resyncPeriod: 0s, maxConcurrent: 2}}";
    let mut manager = set(yaml, &[], &faults, &cluster).await;
    let (runs, at_once) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new((0, 0))));
    let (noted, counted, start) = (runs.clone(), at_once.clone(), Instant::now());
    let reconcile = move |context: Context<Namespace>| {
        let (runs, at_once) = (noted.clone(), counted.clone());
        async move {
            let _end = enter(&at_once);
            if &*context.key().name == "default" {
                runs.lock().push(start.elapsed().as_secs());
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_secs(1)).await;
            Ok(Action::done())
        }
    };
    manager.add(Controller::of::<Namespace>("spaces").reconcile(reconcile));
    let stopper = manager.stopper();
    let run = tokio::spawn(manager.run());
    sleep(Duration::from_secs(300)).await;
    // Ten seconds each, after a pause of one and of two; then it is parked, and there is no resync.
    assert_eq!(*runs.lock(), [0, 11, 23]);
    assert_eq!(*at_once.lock(), (0, 2), "maxConcurrent is below workers");
    stopper.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_file_reaches_controllers_that_run() {
    let cluster = Cluster::builder().seed(7).start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let yaml = |timeout: &str, delay: &str| {
        let queue =
            format!("{{maxRetries: 1000, baseDelay: {delay}, maxDelay: {delay}, rateLimiterQPS: 100}}");
        std::fs::write(&file, format!("{{queueConfig: {queue}, reconcileConfig: {{timeout: {timeout}}}}}"))
            .unwrap();
    };
    yaml("10s", "1s");
    let builder =
        Manager::builder("test").client(cluster.client()).config_source(Source::file(&file).unwrap());
    let mut manager = builder.embedded().build().await.unwrap();
    let (runs, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let noted = runs.clone();
    let controller = Controller::of::<Namespace>("spaces").with_labels("kubernetes.io/metadata.name=default");
    manager.add(controller.reconcile(move |_: Context<Namespace>| {
        noted.lock().push(start.elapsed().as_secs());
        std::future::pending()
    }));
    let stopper = manager.stopper();
    let run = tokio::spawn(manager.run());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(*runs.lock(), [0, 11]);
    yaml("2s", "5s");
    sleep(Duration::from_secs(600)).await;
    let runs = runs.lock().clone();
    let pauses: Vec<u64> = runs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[3..].iter().all(|pause| *pause == 7), "two seconds of work, five of waiting: {pauses:?}");
    stopper.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn workers_limits_and_resyncs_follow_the_file_without_a_restart() {
    let cluster = Cluster::builder().seed(7).start().await;
    for index in 0..24 {
        let space =
            serde_json::json!({"metadata": {"name": format!("space-{index}"), "labels": {"app": "test"}}});
        assert_eq!(cluster.http().post("/api/v1/namespaces", &space).await.status, 201);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let write = |workers: usize, at_once: usize, resync: &str| {
        let reconcile = format!("{{maxConcurrent: {at_once}, resyncPeriod: {resync}}}");
        std::fs::write(&file, format!("{{workers: {workers}, reconcileConfig: {reconcile}}}")).unwrap();
    };
    write(2, 64, "60s");
    let builder =
        Manager::builder("test").client(cluster.client()).config_source(Source::file(&file).unwrap());
    let mut manager = builder.embedded().build().await.unwrap();
    // How many run now, and how many ran at most since somebody looked.
    let running = Arc::new(Mutex::new((0, 0)));
    let runs = Arc::new(Mutex::new(0));
    for name in ["one", "two"] {
        let (running, runs) = (running.clone(), runs.clone());
        let controller = Controller::of::<Namespace>(name).with_labels("app=test");
        manager.add(controller.reconcile(move |_: Context<Namespace>| {
            let (running, runs) = (running.clone(), runs.clone());
            async move {
                *runs.lock() += 1;
                let _leaving = enter(&running);
                sleep(Duration::from_secs(1)).await;
                Ok(Action::done())
            }
        }));
    }
    let stopper = manager.stopper();
    let health = manager.health().clone();
    let run = tokio::spawn(manager.run());
    // Each resync is a round of 48 reconciles of one second.
    let round = async || {
        running.lock().1 = 0;
        sleep(Duration::from_secs(70)).await;
        running.lock().1
    };
    assert_eq!(round().await, 4, "two workers of each");
    write(8, 64, "60s");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(round().await, 16, "more workers");
    write(8, 5, "60s");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(round().await, 5, "fewer at once, all controllers together");
    write(3, 64, "60s");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(round().await, 6, "fewer workers, and the limit is lifted");
    let shown = health.inspection()["manager"]["components"].clone();
    let one = shown.as_array().unwrap().iter().find(|component| component["name"] == "one").unwrap();
    assert_eq!(one["details"]["workers"], 3, "{one}");

    write(3, 64, "0s");
    sleep(Duration::from_secs(60)).await;
    *runs.lock() = 0;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(*runs.lock(), 0, "no resync");
    write(3, 64, "10s");
    sleep(Duration::from_secs(60)).await;
    *runs.lock() = 0;
    sleep(Duration::from_secs(100)).await;
    let runs = *runs.lock();
    assert!((470..=490).contains(&runs), "ten rounds of 48, one every ten seconds: {runs}");
    stopper.stop();
    run.await.unwrap().unwrap();
}

/// Counts a reconcile in.
fn enter(running: &Arc<Mutex<(usize, usize)>>) -> Leaving {
    let mut counts = running.lock();
    counts.0 += 1;
    counts.1 = counts.1.max(counts.0);
    drop(counts);
    Leaving(running.clone())
}

/// Counts a reconcile out, however it ends.
struct Leaving(Arc<Mutex<(usize, usize)>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.lock().0 -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn caches_that_were_asked_for_are_full_before_a_controller_starts() {
    let cluster = Cluster::builder().seed(7).start().await;
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(cluster.http().post("/api/v1/namespaces/default/configmaps", &map).await.status, 201);
    let mut manager = Manager::builder("test")
        .client(cluster.client())
        .config(Config::default())
        .embedded()
        .build()
        .await
        .unwrap();
    let maps = manager.informers().of::<k8s_openapi::api::core::v1::ConfigMap>().lister();
    let seen = Arc::new(Mutex::new(None));
    let note = seen.clone();
    manager.add(Component::new("web", move |stop: Stop| async move {
        *note.lock() = Some(maps.get(&ObjectKey::new("default", "a")).is_some());
        stop.requested().await;
        Ok(())
    }));
    let (stopper, running) = (manager.stopper(), reach(&manager, Phase::Running).await);
    let run = tokio::spawn(manager.run());
    running.await;
    stopper.stop();
    run.await.unwrap().unwrap();
    assert_eq!(*seen.lock(), Some(true));
}
