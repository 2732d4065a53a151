//! What a network and a server can do to a watch, and that nothing is lost, invented or told twice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod clusters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clusters::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use shoal_runtime::cache::{Delta, Informer, InformerOptions, Informers, Subscription};
use shoal_runtime::watch::{Scope, WatchOptions};
use shoal_testkit::{Abilities, Cluster, Effect, FaultLayer, Rule, eventually};

/// A cluster with some objects, and an informer behind faults that has told them.
struct Bench {
    cluster: Cluster,
    faults: FaultLayer,
    informer: Informer<ConfigMap>,
    subscription: Subscription,
}

impl Bench {
    async fn new(cluster: Cluster, names: &[&str], options: InformerOptions) -> Bench {
        for name in names {
            create(&cluster, name, "1").await;
        }
        let faults = FaultLayer::new(5);
        let informer =
            Informers::new(cluster.client_through(&faults), options).namespaced::<ConfigMap>("default");
        informer.synced().await;
        let mut subscription = informer.subscribe();
        assert_eq!(told(&mut subscription).await.len(), names.len());
        Bench { cluster, faults, informer, subscription }
    }

    /// What is told once cache and server are equal again.
    async fn told(&mut self, what: &str) -> Vec<String> {
        converge(what, &self.cluster, &self.informer).await;
        short(&told(&mut self.subscription).await)
    }

    /// Requests for whole lists, in pages or streamed.
    fn lists(&self) -> usize {
        let is_list =
            |request: &&String| !request.contains("watch=true") || request.contains("sendInitialEvents");
        self.faults.requests().iter().filter(is_list).count()
    }

    /// The network is down while something happens.
    async fn while_down(&self, happens: impl Future<Output = ()>) {
        self.faults.add(Rule::all(Effect::DropBefore));
        self.faults.disconnect();
        tokio::time::sleep(Duration::from_secs(5)).await;
        happens.await;
        tokio::time::sleep(Duration::from_secs(25)).await;
        self.faults.clear();
        // The longest pause between two tries.
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

/// Everything that can happen to objects while nobody is looking.
async fn everything_happens(cluster: &Cluster) {
    delete(cluster, "deleted").await;
    delete(cluster, "reborn").await;
    create(cluster, "reborn", "2").await;
    create(cluster, "new", "1").await;
    change(cluster, "changed", "2").await;
    create(cluster, "short-lived", "1").await;
    delete(cluster, "short-lived").await;
}

const BEFORE: [&str; 4] = ["changed", "deleted", "kept", "reborn"];
/// What a list tells of it.
const LISTED: [&str; 5] =
    ["Added new", "Added reborn", "Deleted deleted", "Deleted reborn", "Modified changed"];
/// What a watch tells of it: also of what came and went.
const WATCHED: [&str; 6] = [
    "Added new",
    "Added reborn",
    "Deleted deleted",
    "Deleted reborn",
    "Deleted short-lived",
    "Modified changed",
];

fn sorted(mut told: Vec<String>) -> Vec<String> {
    told.sort();
    told
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_a_watch_resumes_without_a_list() {
    for (variant, cluster) in clusters().await {
        let mut bench = Bench::new(cluster, &BEFORE, options()).await;
        let lists = bench.lists();
        let cluster = bench.cluster.clone();
        bench.while_down(everything_happens(&cluster)).await;
        assert_eq!(sorted(bench.told(variant).await), WATCHED, "{variant}");
        assert_eq!(bench.lists(), lists, "{variant}: listed again");
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_history_is_lost_a_list_tells_exactly_what_changed() {
    for (variant, abilities) in variants() {
        for page_size in [2, 500] {
            let cluster = Cluster::builder().seed(7).abilities(abilities).history_events(4).start().await;
            let watch = WatchOptions { page_size, ..options().watch };
            let mut bench = Bench::new(cluster, &BEFORE, InformerOptions { watch, ..options() }).await;
            let cluster = bench.cluster.clone();
            let lists = bench.informer.stats().lists.load(Relaxed);
            bench.while_down(everything_happens(&cluster)).await;
            assert_eq!(sorted(bench.told(variant).await), LISTED, "{variant}");
            assert_eq!(bench.informer.stats().lists.load(Relaxed), lists + 1, "{variant}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_incremental_sync_every_reconnect_lists_and_still_tells_only_changes() {
    for (variant, cluster) in clusters().await {
        let watch = WatchOptions { incremental: false, ..options().watch };
        let mut bench = Bench::new(cluster, &BEFORE, InformerOptions { watch, ..options() }).await;
        let lists = bench.informer.stats().lists.load(Relaxed);
        let cluster = bench.cluster.clone();
        bench.while_down(everything_happens(&cluster)).await;
        assert_eq!(sorted(bench.told(variant).await), LISTED, "{variant}");
        assert!(bench.informer.stats().lists.load(Relaxed) > lists, "{variant}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_version_is_noticed_in_answer_event_and_page() {
    for (variant, cluster) in clusters().await {
        let watch = WatchOptions { page_size: 2, streamed_lists: false, ..options().watch };
        let mut bench = Bench::new(cluster, &BEFORE, InformerOptions { watch, ..options() }).await;
        let pages =
            |parts: &http::request::Parts| parts.uri.query().is_some_and(|query| query.contains("continue="));
        let rules = [
            Rule::watches(Effect::answer(410)).times(3),
            Rule::watches(Effect::ErrorEvent { after: 0, code: 410 }).times(3),
            Rule::on(pages, Effect::answer(410)).times(1),
        ];
        for (n, rule) in rules.into_iter().enumerate() {
            bench.faults.add(Rule::watches(Effect::answer(410)).times(1));
            bench.faults.add(rule);
            bench.faults.disconnect();
            change(&bench.cluster, "changed", &n.to_string()).await;
            delete(&bench.cluster, "reborn").await;
            create(&bench.cluster, "reborn", "x").await;
            let told = sorted(bench.told(variant).await);
            assert_eq!(told, ["Added reborn", "Deleted reborn", "Modified changed"], "{variant} {n}");
        }
    }
}

/// Names and versions, as a subscriber knows them.
fn reflect(mirror: &mut BTreeMap<String, String>, delta: &Delta) {
    match &delta.new {
        Some(new) => mirror.insert(delta.key.name.to_string(), new.resource_version().to_string()),
        None => mirror.remove(&*delta.key.name),
    };
}

/// A life with a list, events, a reconnect, a refresh and a barrier, in which something is said to be lost. What the subscriber was
/// told is at last what the server has; how many requests it took.
async fn life_with(what: &str, abilities: Abilities, fault: Option<Rule>) -> Vec<String> {
    let cluster = Cluster::builder().seed(7).abilities(abilities).start().await;
    for name in BEFORE {
        create(&cluster, name, "1").await;
    }
    let faults = FaultLayer::new(5);
    if let Some(fault) = fault {
        faults.add(fault);
    }
    let watch = WatchOptions { page_size: 2, ..options().watch };
    let informer = Informers::new(cluster.client_through(&faults), InformerOptions { watch, ..options() })
        .namespaced::<ConfigMap>("default");
    let mut subscription = informer.subscribe();
    informer.synced().await;
    converge(what, &cluster, &informer).await;
    everything_happens(&cluster).await;
    converge(what, &cluster, &informer).await;
    faults.disconnect();
    change(&cluster, "kept", "2").await;
    converge(what, &cluster, &informer).await;
    informer.refresh();
    // It may be what fails.
    let _ = informer.barrier().await;
    change(&cluster, "kept", "3").await;
    delete(&cluster, "new").await;
    converge(what, &cluster, &informer).await;
    let mut mirror = BTreeMap::new();
    for delta in told(&mut subscription).await {
        reflect(&mut mirror, &delta);
    }
    let server: BTreeMap<String, String> =
        on_server(&cluster).await.into_iter().map(|(name, (_, version, _))| (name, version)).collect();
    assert_eq!(mirror, server, "{what}: what was told");
    faults.requests()
}

/// Lives a life in a time of its own.
fn lived<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(life)
}

#[test]
fn a_version_that_is_lost_at_any_request_and_at_any_line_is_got_over() {
    for (variant, abilities) in variants().into_iter().filter(|(name, _)| matches!(*name, "new" | "old")) {
        let requests = lived(life_with(variant, abilities, None));
        let streamed = requests.iter().filter(|request| request.contains("sendInitialEvents")).count();
        let pages = requests.iter().filter(|request| request.contains("continue=")).count();
        assert!(if variant == "new" { streamed >= 2 } else { pages >= 2 }, "{requests:?}");
        std::thread::scope(|threads| {
            for (n, request) in requests.iter().enumerate() {
                // Once the request itself is refused, and once for each line at which a watch can end.
                let lines = if request.contains("watch=true") { 0..8 } else { 0..0 };
                let ends = lines.map(|after| Effect::ErrorEvent { after, code: 410 });
                let effects: Vec<Effect> = std::iter::once(Effect::answer(410)).chain(ends).collect();
                threads.spawn(move || {
                    for effect in effects {
                        let what = format!("{variant}: {effect:?} to request {n}, {request}");
                        let counted = AtomicUsize::new(0);
                        let nth = move |_: &http::request::Parts| counted.fetch_add(1, Relaxed) == n;
                        lived(life_with(&what, abilities, Some(Rule::on(nth, effect))));
                    }
                });
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_a_thousand_times_loses_nothing() {
    for (variant, cluster) in clusters().await {
        let cuts = if variant == "new" { 1000 } else { 100 };
        let mut bench = Bench::new(cluster, &[], options()).await;
        bench.faults.add(Rule::watches(Effect::CutWithin(3000)));
        bench.faults.disconnect();
        let begun = bench.faults.requests().len();
        let lists = bench.lists();
        let mut mirror = BTreeMap::new();
        let mut alive = BTreeSet::new();
        for n in 0.. {
            let name = format!("m{}", n % 7);
            if alive.insert(name.clone()) {
                create(&bench.cluster, &name, "new").await;
            } else if n % 11 == 10 {
                alive.remove(&name);
                delete(&bench.cluster, &name).await;
            } else {
                change(&bench.cluster, &name, &n.to_string()).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            bench.faults.disconnect();
            while let Some(delta) = bench.subscription.try_recv() {
                reflect(&mut mirror, &delta);
            }
            if bench.faults.requests().len() - begun >= cuts {
                break;
            }
        }
        bench.faults.clear();
        bench.faults.disconnect();
        converge(variant, &bench.cluster, &bench.informer).await;
        for delta in told(&mut bench.subscription).await {
            reflect(&mut mirror, &delta);
        }
        let server: BTreeMap<String, String> = on_server(&bench.cluster)
            .await
            .into_iter()
            .map(|(name, (_, version, _))| (name, version))
            .collect();
        assert_eq!(mirror, server, "{variant}: what was told");
        assert_eq!(bench.lists(), lists, "{variant}: listed again");
    }
}

#[tokio::test(start_paused = true)]
async fn lines_that_come_twice_reversed_or_in_pieces_change_nothing() {
    for (variant, cluster) in clusters().await {
        let effects = [Effect::DoubleLines, Effect::ReverseLines, Effect::Pieces(7), Effect::EndAfter(700)];
        let mut bench = Bench::new(cluster, &BEFORE, options()).await;
        for (n, effect) in effects.into_iter().enumerate() {
            bench.faults.clear();
            bench.faults.add(Rule::watches(effect.clone()));
            bench.faults.disconnect();
            // All of it is waiting when the watch opens, so that it comes in one chunk.
            for name in BEFORE {
                change(&bench.cluster, name, &format!("{n}")).await;
            }
            delete(&bench.cluster, "deleted").await;
            create(&bench.cluster, "deleted", "again").await;
            let told = sorted(bench.told(&format!("{variant} {effect:?}")).await);
            let expected =
                ["Added deleted", "Deleted deleted", "Modified changed", "Modified kept", "Modified reborn"];
            assert_eq!(told, expected, "{variant} {effect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_megabyte_come_through_even_in_pieces() {
    let (variant, cluster) = clusters().await.remove(0);
    let bench = Bench::new(cluster, &[], options()).await;
    bench.faults.add(Rule::all(Effect::Pieces(1000)));
    bench.faults.disconnect();
    let large = |letter: &str| {
        let map =
            json!({"metadata": {"name": format!("large-{letter}")}, "data": {"k": letter.repeat(1_000_000)}});
        serde_json::from_value::<ConfigMap>(map).unwrap()
    };
    for letter in ["a", "b"] {
        maps(&bench.cluster).create(&PostParams::default(), &large(letter)).await.unwrap();
    }
    converge(variant, &bench.cluster, &bench.informer).await;
    bench.informer.refresh();
    bench.informer.barrier().await.unwrap();
    assert_eq!(
        bench.informer.lister().get(&key("large-b")).unwrap().data.as_ref().unwrap()["k"].len(),
        1_000_000
    );
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_megabyte_are_held_by_typed_metadata_and_dynamic_caches() {
    let large = |letter: &str| {
        let map = json!({"metadata": {"name": format!("large-{letter}"), "annotations": {"a": letter.repeat(200_000)}},
            "data": {"k": letter.repeat(800_000)}});
        serde_json::from_value::<ConfigMap>(map).unwrap()
    };
    for (variant, cluster) in clusters().await.into_iter().filter(|(name, _)| matches!(*name, "new" | "old"))
    {
        let put =
            async |letter| drop(maps(&cluster).create(&PostParams::default(), &large(letter)).await.unwrap());
        put("a").await;
        let faults = FaultLayer::new(1);
        let all = informers(cluster.client_through(&faults));
        let scope = || Scope::namespace("default");
        let typed = all.scoped::<ConfigMap>(scope());
        let meta = all.metadata_scoped::<ConfigMap>(scope());
        let dynamic = all.dynamic(&ApiResource::erase::<ConfigMap>(&()), scope());
        let dynamic_meta = all.dynamic_metadata(&ApiResource::erase::<ConfigMap>(&()), scope());
        all.synced().await;
        // One is listed, one is an event, and one comes after the watch was cut in the middle of it.
        put("b").await;
        faults.add(Rule::watches(Effect::CutAfter(500_000)).times(4));
        faults.disconnect();
        put("c").await;
        for letter in ["a", "b", "c"] {
            let key = key(&format!("large-{letter}"));
            eventually(&format!("{variant}: {letter} everywhere"), || async {
                let all = [typed.lister().meta(&key), meta.lister().meta(&key), dynamic.lister().meta(&key)];
                all.into_iter()
                    .chain([dynamic_meta.lister().meta(&key)])
                    .all(|meta| meta.is_some())
                    .then_some(())
            })
            .await;
            let bodies = [
                typed.lister().get(&key).unwrap().data.as_ref().unwrap()["k"].clone(),
                dynamic.lister().get(&key).unwrap().data["data"]["k"].as_str().unwrap().to_owned(),
            ];
            assert!(bodies.iter().all(|body| *body == letter.repeat(800_000)), "{variant} {letter}");
            for annotation in [
                meta.lister().get(&key).unwrap().annotations()["a"].clone(),
                dynamic_meta.lister().get(&key).unwrap().annotations()["a"].clone(),
            ] {
                assert_eq!(annotation.len(), 200_000, "{variant} {letter}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_over_the_limit_is_got_around_by_a_list() {
    for (variant, cluster) in clusters().await {
        let watch = WatchOptions { max_frame: 10_000, streamed_lists: false, ..options().watch };
        let bench = Bench::new(cluster, &["a"], InformerOptions { watch, ..options() }).await;
        let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(20_000)}});
        let large: ConfigMap = serde_json::from_value(large).unwrap();
        maps(&bench.cluster).create(&PostParams::default(), &large).await.unwrap();
        converge(variant, &bench.cluster, &bench.informer).await;
        change(&bench.cluster, "a", "2").await;
        converge(variant, &bench.cluster, &bench.informer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_429_is_waited_out_with_few_requests() {
    for (variant, cluster) in clusters().await {
        let mut bench = Bench::new(cluster, &BEFORE, options()).await;
        let before = bench.faults.requests().len();
        bench.faults.add(Rule::all(Effect::answer_later(429, 7)));
        bench.faults.disconnect();
        everything_happens(&bench.cluster).await;
        tokio::time::sleep(Duration::from_secs(70)).await;
        let asked = bench.faults.requests().len() - before;
        assert!((3..=11).contains(&asked), "{variant}: {asked} requests in 70 s, told to wait 7 s each time");
        assert!(bench.informer.trouble().is_some());
        bench.faults.clear();
        bench.faults.add(Rule::all(Effect::answer(429)).percent(60).times(20));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(sorted(bench.told(variant).await), WATCHED, "{variant}");
        assert!(bench.informer.trouble().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silently_dead_is_left_after_its_time() {
    for (variant, cluster) in clusters().await {
        let bench = Bench::new(cluster, &["a"], options()).await;
        bench.faults.add(Rule::watches(Effect::StallAfter(0)).times(1));
        bench.faults.disconnect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        change(&bench.cluster, "a", "2").await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        converge(variant, &bench.cluster, &bench.informer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_answer_is_given_up_and_tried_again() {
    for (variant, cluster) in clusters().await {
        create(&cluster, "a", "1").await;
        let faults = FaultLayer::new(1);
        faults.add(Rule::all(Effect::Delay(Duration::from_secs(3600))).times(1));
        let informer = Informers::new(cluster.client_through(&faults), options()).of::<ConfigMap>();
        let begun = tokio::time::Instant::now();
        informer.synced().await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(80), "{variant}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn days_of_silence_are_passed_without_lists_and_without_trouble() {
    for (variant, cluster) in clusters().await {
        let mut bench = Bench::new(cluster, &["a"], options()).await;
        let lists = bench.lists();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        change(&bench.cluster, "a", "2").await;
        assert_eq!(bench.told(variant).await, ["Modified a"]);
        assert_eq!(bench.lists(), lists, "{variant}");
        assert_eq!(bench.informer.stats().troubles.load(Relaxed), 0, "{variant}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_lists_is_asked_once() {
    for (variant, cluster) in clusters().await {
        let mut bench = Bench::new(cluster, &BEFORE, options()).await;
        for _ in 0..3 {
            bench.informer.refresh();
            bench.informer.barrier().await.unwrap();
            assert!(bench.told(variant).await.is_empty(), "{variant}: phantom changes");
        }
        let asked =
            bench.faults.requests().iter().filter(|request| request.contains("sendInitialEvents")).count();
        let streams = matches!(variant, "new" | "no shards" | "stale reads");
        assert_eq!(asked > 1, streams, "{variant}: asked {asked} times");
    }
}

/// A client whose server can be exchanged under it.
fn switchable(first: &Cluster, faults: &FaultLayer) -> (Client, Arc<Mutex<Client>>) {
    let current = Arc::new(Mutex::new(first.client_through(faults)));
    let seen = current.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = seen.lock().unwrap().clone();
        async move { client.send(request).await }
    });
    (Client::new(service, "default"), current)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_from_an_older_backup_is_believed() {
    for (variant, abilities) in variants() {
        let start = || Cluster::builder().seed(7).abilities(abilities).start();
        let (today, backup) = (start().await, start().await);
        // The same seed gives the same objects: the backup was made after `a` and `b`.
        for cluster in [&today, &backup] {
            create(cluster, "a", "1").await;
            create(cluster, "b", "1").await;
        }
        create(&today, "c", "1").await;
        change(&today, "a", "2").await;
        delete(&today, "b").await;
        for n in 0..20 {
            change(&today, "c", &n.to_string()).await;
        }
        let faults = FaultLayer::new(1);
        let (client, current) = switchable(&today, &faults);
        let informer = Informers::new(client, options()).namespaced::<ConfigMap>("default");
        informer.synced().await;
        converge(variant, &today, &informer).await;
        let mut subscription = informer.subscribe();
        assert_eq!(told(&mut subscription).await.len(), 2);
        *current.lock().unwrap() = backup.client_through(&faults);
        // Who restores a cluster tells it that its history is not the one that clients know.
        faults.add(Rule::watches(Effect::answer(410)).times(1));
        faults.disconnect();
        tokio::time::sleep(Duration::from_secs(60)).await;
        converge(variant, &backup, &informer).await;
        let deltas = sorted(short(&told(&mut subscription).await));
        assert_eq!(deltas, ["Added b", "Deleted c", "Modified a"], "{variant}");
        change(&backup, "a", "3").await;
        converge(variant, &backup, &informer).await;
    }
}

fn definition() -> serde_json::Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fish.sea.example.com"},
        "spec": {"group": "sea.example.com", "scope": "Namespaced",
            "names": {"plural": "fish", "singular": "fish", "kind": "Fish"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_deleted_and_defined_anew_is_followed() {
    for (variant, cluster) in clusters().await {
        let resource = ApiResource {
            group: "sea.example.com".into(),
            version: "v1".into(),
            api_version: "sea.example.com/v1".into(),
            kind: "Fish".into(),
            plural: "fish".into(),
        };
        let definitions = ApiResource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
            plural: "customresourcedefinitions".into(),
        };
        let definitions: Api<DynamicObject> = Api::all_with(cluster.client(), &definitions);
        let fish: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &resource);
        let define = || async {
            definitions
                .create(&PostParams::default(), &serde_json::from_value(definition()).unwrap())
                .await
                .unwrap();
        };
        let spawn = |name: &'static str| {
            let (fish, object) = (fish.clone(), DynamicObject::new(name, &resource));
            async move {
                eventually("the kind is served", || async {
                    fish.create(&PostParams::default(), &object).await.ok()
                })
                .await
            }
        };
        let informer = informers(cluster.client()).dynamic(&resource, Scope::all());
        let names =
            || -> Vec<String> { informer.lister().list().iter().map(|fish| fish.name_any()).collect() };
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!informer.has_synced(), "{variant}: synced with a kind that does not exist");
        define().await;
        spawn("one").await;
        spawn("two").await;
        eventually("two fish", || async { (names() == ["one", "two"]).then_some(()) }).await;
        definitions.delete("fish.sea.example.com", &DeleteParams::default()).await.unwrap();
        eventually("the definition is gone", || async {
            definitions.get_opt("fish.sea.example.com").await.unwrap().is_none().then_some(())
        })
        .await;
        define().await;
        spawn("three").await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        eventually(&format!("{variant}: only the new fish"), || async {
            (names() == ["three"]).then_some(())
        })
        .await;
    }
}
