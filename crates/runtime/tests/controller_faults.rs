//! Whole controllers while network, server and their own reconcilers misbehave. Time is paused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use shoal_objects::{Clock, Entropy};
use shoal_runtime::config::Config;
use shoal_runtime::manager::Stopper;
use shoal_runtime::worker::{self, Patience};
use shoal_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, Result, finalizer};
use shoal_testkit::{Abilities, Cluster, Effect, FaultLayer, Rule, eventually};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A cluster and a manager that reaches it through faults.
struct Bench {
    cluster: Cluster,
    faults: FaultLayer,
    metrics: shoal_runtime::metrics::Metrics,
    stopper: Stopper,
    manager: JoinHandle<Result<(), shoal_runtime::manager::Error>>,
}

impl Bench {
    async fn run(cluster: Cluster, controller: Controller) -> Bench {
        let faults = FaultLayer::new(11);
        let mut config = Config::default();
        config.queue_config.rate_limiter_qps = 1000.0;
        let mut manager = Manager::builder("test")
            .client(cluster.client_through(&faults))
            .config(config)
            .entropy(Entropy::seeded(5))
            .embedded()
            .build()
            .await
            .unwrap();
        manager.add(controller);
        let (stopper, metrics) = (manager.stopper(), manager.metrics().clone());
        Bench { cluster, faults, metrics, stopper, manager: tokio::spawn(manager.run()) }
    }

    async fn start(controller: Controller) -> Bench {
        Bench::run(Cluster::builder().seed(7).start().await, controller).await
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.cluster.client())
    }

    async fn put(&self, name: &str, value: &str) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"mine": "yes"}},
            "data": {"k": value}});
        let params = PatchParams::apply("test").force();
        self.maps().patch(name, &params, &Patch::Apply(map)).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.maps().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Name and value of all that the test wants copied.
    async fn wanted(&self) -> BTreeMap<String, String> {
        let maps = self.maps().list(&ListParams::default().labels("mine=yes")).await.unwrap();
        maps.into_iter().map(|map| (map.name_any(), map.data.unwrap()["k"].clone())).collect()
    }

    /// Name and value of all copies.
    async fn copies(&self) -> BTreeMap<String, String> {
        let api: Api<Secret> = Api::default_namespaced(self.cluster.client());
        let secrets = api.list(&ListParams::default()).await.unwrap();
        let value =
            |secret: &Secret| String::from_utf8(secret.data.as_ref().unwrap()["k"].0.clone()).unwrap();
        secrets.iter().map(|secret| (secret.name_any(), value(secret))).collect()
    }

    async fn converge(&self, what: &str) {
        eventually(what, || async { (self.wanted().await == self.copies().await).then_some(()) }).await;
    }

    /// Many changes, while watches are cut again and again; in the end, without faults, everything is copied.
    async fn endure(self, seed: u64) {
        let chance = Entropy::seeded(seed);
        for n in 0..200 {
            let name = format!("m{}", chance.below(8));
            let there = self.maps().get_opt(&name).await.unwrap().is_some();
            match chance.below(4) {
                0 if there => self.delete(&name).await,
                _ => self.put(&name, &n.to_string()).await,
            }
            if chance.below(3) == 0 {
                self.faults.disconnect();
            }
            sleep(Duration::from_millis(chance.below(300))).await;
        }
        self.faults.clear();
        self.faults.disconnect();
        sleep(Duration::from_secs(60)).await;
        self.converge("after all that").await;
        self.stop().await;
    }

    fn writes(&self) -> usize {
        self.faults.requests().iter().filter(|request| !request.starts_with("GET")).count()
    }

    async fn stop(self) {
        self.stopper.stop();
        self.manager.await.unwrap().unwrap();
    }
}

fn secret(name: &str, value: &str) -> Secret {
    let secret = json!({"metadata": {"name": name, "namespace": "default"}, "stringData": {"k": value}});
    serde_json::from_value(secret).unwrap()
}

/// A Secret for each ConfigMap, of the same name and content, that goes when the ConfigMap goes.
async fn copy(context: Context<ConfigMap>) -> Result<Action> {
    match context.object() {
        Some(map) => {
            let value = map.data.as_ref().and_then(|data| data.get("k")).cloned().unwrap_or_default();
            context.writer().apply(&secret(&map.name_any(), &value), None).await?;
        }
        None => {
            if let Some(copy) = context.writer().get::<Secret>(context.key()).await? {
                context.writer().delete(&copy).await?;
            }
        }
    }
    Ok(Action::done())
}

fn copies() -> Controller {
    Controller::of::<ConfigMap>("copies").with_labels("mine=yes").reconcile(copy)
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_thirty_seconds_everything_is_done_and_nothing_was_given_up() {
    let bench = Bench::start(copies()).await;
    for n in 0..20 {
        bench.put(&format!("m{n}"), "1").await;
    }
    bench.converge("before").await;
    // Some keys are in the middle of a retry when the network goes, some events are missed altogether.
    bench.faults.add(Rule::writes(Effect::DropBefore));
    for n in 0..10 {
        bench.put(&format!("m{n}"), "2").await;
    }
    sleep(Duration::from_secs(1)).await;
    bench.faults.add(Rule::all(Effect::DropBefore));
    bench.faults.disconnect();
    for n in 5..15 {
        bench.put(&format!("m{n}"), "3").await;
    }
    for n in 15..20 {
        bench.delete(&format!("m{n}")).await;
    }
    sleep(Duration::from_secs(30)).await;
    let tried = bench.writes();
    bench.faults.clear();
    // The longest pause of a watch is 30 s, that of a retry is about as long as the outage.
    sleep(Duration::from_secs(90)).await;
    bench.converge("after").await;
    assert!(tried < 400, "{tried} writes were tried against a network that is down");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_429_delays_writes_and_loses_none() {
    let bench = Bench::start(copies()).await;
    bench.faults.add(Rule::writes(Effect::answer_later(429, 1)).percent(80));
    for n in 0..20 {
        bench.put(&format!("m{n}"), "1").await;
    }
    sleep(Duration::from_secs(60)).await;
    let tried = bench.writes();
    bench.faults.clear();
    sleep(Duration::from_secs(60)).await;
    bench.converge("after the storm").await;
    assert!(tried < 20 * 20, "{tried} writes for 20 objects");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_on_every_second_write_lose_no_update() {
    const COUNT: usize = 20;
    let tally = ObjectKey::new("default", "tally");
    let controller = Controller::of::<ConfigMap>("tally").with_labels("mine=yes").reconcile(
        move |context: Context<ConfigMap>| {
            let tally = tally.clone();
            async move {
                let Some(map) = context.object() else { return Ok(Action::done()) };
                let writer = context.writer();
                let map = finalizer::ensure(writer, &*map, "example.com/tally").await?;
                let name = map.name_any();
                let note = |tally: &mut ConfigMap| {
                    tally.data.get_or_insert_default().insert(name.clone(), "seen".to_owned());
                };
                writer.modify(&tally, None, note).await?;
                Ok(Action::done())
            }
        },
    );
    let bench = Bench::start(controller).await;
    let empty = serde_json::from_value(json!({"metadata": {"name": "tally"}})).unwrap();
    bench.maps().create(&PostParams::default(), &empty).await.unwrap();
    let count = AtomicUsize::new(0);
    let second = move |parts: &http::request::Parts| {
        parts.method != http::Method::GET && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    };
    bench.faults.add(Rule::on(second, Effect::answer(409)));
    for n in 0..COUNT {
        bench.put(&format!("m{n}"), "1").await;
    }
    eventually("all are noted", || async {
        let tally = bench.maps().get("tally").await.unwrap();
        (tally.data.unwrap_or_default().len() == COUNT).then_some(())
    })
    .await;
    for map in bench.maps().list(&ListParams::default().labels("mine=yes")).await.unwrap() {
        assert_eq!(map.finalizers(), ["example.com/tally"]);
    }
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_repeat_reverse_cut_and_end_their_lines_mislead_no_controller() {
    let bench = Bench::start(copies()).await;
    for effect in [
        Effect::DoubleLines,
        Effect::ReverseLines,
        Effect::Pieces(100),
        Effect::CutWithin(3000),
        Effect::EndAfter(500),
        Effect::ErrorEvent { after: 1, code: 410 },
    ] {
        bench.faults.add(Rule::watches(effect).percent(30));
    }
    bench.endure(3).await;
}

#[tokio::test(start_paused = true)]
async fn stale_lists_slow_watches_and_requests_that_overtake_each_other_mislead_no_controller() {
    // Without streamed lists, so that there are lists to be stale.
    let abilities = Abilities { watch_list: false, ..Abilities::default() };
    let cluster = Cluster::builder().seed(7).abilities(abilities).start().await;
    let bench = Bench::run(cluster, copies()).await;
    let lists = |parts: &http::request::Parts| {
        parts.method == http::Method::GET
            && parts.uri.path().ends_with("/configmaps")
            && !parts.uri.query().unwrap_or_default().contains("watch=true")
    };
    bench.faults.add(Rule::on(lists, Effect::Stale).percent(60));
    bench.faults.add(Rule::all(Effect::Overtaken).percent(20));
    bench.faults.add(Rule::watches(Effect::answer(410)).percent(40));
    bench.faults.add(Rule::watches(Effect::Drip { bytes: 50, pause: Duration::from_millis(20) }).percent(50));
    bench.endure(5).await;
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_lost_are_repeated_without_harm() {
    let bench = Bench::start(copies()).await;
    bench.faults.add(Rule::writes(Effect::DropAfter).percent(50));
    for round in 0..5 {
        for n in 0..10 {
            let name = format!("m{n}");
            match round {
                3 => bench.delete(&name).await,
                _ => bench.put(&name, &round.to_string()).await,
            }
        }
        sleep(Duration::from_secs(2)).await;
    }
    sleep(Duration::from_secs(30)).await;
    bench.converge("after all that").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reconcilers_that_panic_hang_or_ignore_their_cancellation_harm_no_other() {
    let runs: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counted = runs.clone();
    let settings = worker::Settings { max_concurrent: 4, timeout: Duration::from_secs(5), max_retries: 3 };
    let controller = Controller::of::<ConfigMap>("odd")
        .with_labels("mine=yes")
        .worker_settings(settings)
        .patience(Patience::within(Duration::from_secs(10)))
        .reconcile(move |context: Context<ConfigMap>| {
            let name = context.key().name.to_string();
            *counted.lock().entry(name.clone()).or_default() += 1;
            async move {
                match &*name {
                    "panics" => panic!("this one always panics"),
                    "hangs" => std::future::pending().await,
                    // Not even the end of the process moves it.
                    "ignores" => loop {
                        sleep(Duration::from_millis(100)).await;
                    },
                    "fails" => Err(Error::unknown("not today")),
                    _ => Ok(Action::done()),
                }
            }
        });
    let bench = Bench::start(controller).await;
    for name in ["panics", "hangs", "ignores", "fails"] {
        bench.put(name, "1").await;
    }
    for n in 0..60 {
        bench.put("good", &n.to_string()).await;
        let before = Instant::now();
        eventually("the good one", || async {
            (runs.lock().get("good").copied().unwrap_or_default() > n).then_some(())
        })
        .await;
        assert!(before.elapsed() < Duration::from_secs(1));
        sleep(Duration::from_secs(1)).await;
    }
    // Once, three retries, parked.
    for name in ["panics", "hangs", "ignores", "fails"] {
        assert_eq!(runs.lock()[name], 4, "{name}");
    }
    let metrics = bench.metrics.text();
    assert!(metrics.contains("controller_reconcile_errors_total{controller=\"odd\"} 16"), "{metrics}");
    // The next event begins anew, and a stop does not wait for those that do not end.
    bench.put("ignores", "2").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(runs.lock()["ignores"], 5);
    let begun = Instant::now();
    bench.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_time_of_day_move_no_timer_and_silence_no_event() {
    let cluster = Cluster::builder().seed(7).start().await;
    let (wall, right, runs) = (Arc::new(AtomicI64::new(0)), cluster.clock(), Arc::new(AtomicUsize::new(0)));
    let (jumped, counted) = (wall.clone(), runs.clone());
    let mut manager = Manager::builder("test")
        .client(cluster.client())
        .config(Config::default())
        .clock(Clock::from_fn(move || right.now().plus_seconds(jumped.load(Ordering::Relaxed))))
        .embedded()
        .leader_election()
        .build()
        .await
        .unwrap();
    let reconcile = move |context: Context<Namespace>| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if let Some(namespace) = context.object() {
                context.recorder().normal(&*namespace, "Looked", format!("for the {run}th time"));
            }
            Ok(Action::after(Duration::from_secs(10)))
        }
    };
    manager.add(
        Controller::of::<Namespace>("clock")
            .with_labels("kubernetes.io/metadata.name=default")
            .reconcile(reconcile),
    );
    let stopper = manager.stopper();
    let running = tokio::spawn(manager.run());
    sleep(Duration::from_secs(5)).await;
    for jump in [3600, -3600, -3600, 3600] {
        wall.fetch_add(jump, Ordering::Relaxed);
        let before = runs.load(Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(runs.load(Ordering::Relaxed) - before, 6, "after a jump of {jump} s");
    }
    stopper.stop();
    running.await.unwrap().unwrap();
    let events = cluster.http().get("/api/v1/namespaces/default/events").await.json();
    let looked: u64 =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["count"].as_u64()).sum();
    assert_eq!(looked, 25, "{events}");
}

#[tokio::test(start_paused = true)]
async fn events_that_the_server_does_not_take_hold_up_no_reconcile_and_no_stop() {
    const EACH: usize = 100;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let controller = Controller::of::<ConfigMap>("loud").with_labels("mine=yes").reconcile(
        move |context: Context<ConfigMap>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let Some(map) = context.object() else { return Ok(Action::done()) };
                for n in 0..EACH {
                    context.recorder().normal(&*map, &format!("Reason{n}"), "once more");
                }
                Ok(Action::done())
            }
        },
    );
    let bench = Bench::start(controller).await;
    let events = |parts: &http::request::Parts| parts.uri.path().contains("/events");
    bench.faults.add(Rule::on(events, Effect::Delay(Duration::from_secs(3600))));
    for n in 0..50 {
        bench.put(&format!("m{n}"), "1").await;
    }
    let begun = Instant::now();
    eventually("each was looked at", || async { (runs.load(Ordering::Relaxed) >= 50).then_some(()) }).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    bench.stopper.stop();
    let _ = bench.manager.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn thousands_of_finalizers_are_run_when_everything_is_deleted_at_once() {
    // Ten thousand in `cargo xtask soak`, which takes half a minute without optimization.
    let count = std::env::var("FINALIZERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    const FINALIZER: &str = "example.com/clean";
    let cluster = Cluster::builder().seed(7).start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for n in 0..count {
        let map = json!({"metadata": {"name": format!("m{n}"), "labels": {"mine": "yes"}, "finalizers": [FINALIZER]}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    let cleaned: Arc<Mutex<BTreeMap<ObjectKey, usize>>> = Arc::default();
    let counted = cleaned.clone();
    let controller = Controller::of::<ConfigMap>("clean").with_labels("mine=yes").reconcile(
        move |context: Context<ConfigMap>| {
            let cleaned = counted.clone();
            async move {
                let Some(map) = context.object() else { return Ok(Action::done()) };
                let clean_up = |map: ConfigMap| async move {
                    *cleaned.lock().entry(ObjectKey::of(&map)).or_default() += 1;
                    Ok(())
                };
                let keep = |_| async { Ok(Action::done()) };
                finalizer::finalize(context.writer(), &*map, FINALIZER, keep, clean_up).await
            }
        },
    );
    let bench = Bench::run(cluster, controller).await;
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("mine=yes"))
        .await
        .unwrap();
    eventually("all are gone", || async {
        let left = maps.list_metadata(&ListParams::default().labels("mine=yes").limit(1)).await.unwrap();
        left.items.is_empty().then_some(())
    })
    .await;
    assert_eq!(cleaned.lock().len(), count, "each was cleaned up before it went");
    assert!(bench.metrics.text().contains("controller_reconcile_errors_total{controller=\"clean\"} 0"));
    bench.stop().await;
}
