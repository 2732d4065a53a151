//! Each fault does what it says, to the requests that it is meant for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};
use tokio::time::Instant;

struct Bench {
    cluster: Cluster,
    faults: FaultLayer,
    /// Through the faults.
    maps: Api<ConfigMap>,
}

impl Bench {
    async fn new() -> Bench {
        let (cluster, faults) = (Cluster::builder().seed(7).start().await, FaultLayer::new(3));
        let maps = Api::default_namespaced(cluster.client_through(&faults));
        Bench { cluster, faults, maps }
    }

    async fn create(&self, name: &str) -> Result<ConfigMap, kube::Error> {
        let map = json!({"metadata": {"name": name}, "data": {"k": "1"}});
        self.maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await
    }

    async fn set(&self, name: &str, value: &str) {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.cluster.client());
        let patch = Patch::Merge(json!({"data": {"k": value}}));
        maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn value(&self, name: &str) -> String {
        self.maps.get(name).await.unwrap().data.unwrap()["k"].clone()
    }

    /// Name or code of everything that a watch from the beginning tells, and whether it broke.
    async fn watched(&self) -> (Vec<String>, bool) {
        let uri = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=1&timeoutSeconds=1";
        let client = self.cluster.client_through(&self.faults);
        let request = Request::get(uri).body(Vec::new()).unwrap();
        let mut lines = Box::pin(client.request_stream(request).await.unwrap().lines());
        let mut told = Vec::new();
        loop {
            match lines.try_next().await {
                Ok(Some(line)) => {
                    let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
                    let name = event["object"]["metadata"]["name"].as_str().map(str::to_owned);
                    told.push(name.unwrap_or_else(|| event["object"]["code"].to_string()));
                }
                Ok(None) => return (told, false),
                Err(_) => return (told, true),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_lost_before_or_after_its_effect() {
    let bench = Bench::new().await;
    bench.faults.add(Rule::writes(Effect::DropBefore).times(1));
    bench.create("a").await.unwrap_err();
    assert!(bench.maps.get_opt("a").await.unwrap().is_none());
    bench.faults.add(Rule::writes(Effect::DropAfter).times(1));
    bench.create("a").await.unwrap_err();
    assert!(bench.maps.get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_error_is_answered_with_its_reason_and_its_wish_to_be_left_alone() {
    let bench = Bench::new().await;
    for (code, reason) in
        [(409, "Conflict"), (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError")]
    {
        bench.faults.add(Rule::writes(Effect::answer_later(code, 7)).times(1));
        let Err(kube::Error::Api(status)) = bench.create("a").await else {
            panic!("{code} was not answered")
        };
        assert_eq!((status.code, &*status.reason), (code, reason));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);
    }
    bench.create("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_is_late_by_the_time_that_was_said() {
    let bench = Bench::new().await;
    bench.faults.add(Rule::all(Effect::Delay(Duration::from_secs(9))).times(1));
    let begun = Instant::now();
    bench.create("a").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn stale_reads_show_the_past_and_watches_and_writes_the_present() {
    let bench = Bench::new().await;
    bench.create("a").await.unwrap();
    bench.faults.add(Rule::all(Effect::Stale).times(4));
    assert_eq!(bench.value("a").await, "1", "the first time it is true");
    bench.set("a", "2").await;
    assert_eq!(bench.value("a").await, "1");
    assert_eq!(bench.maps.list(&ListParams::default()).await.unwrap().items.len(), 1, "another request");
    bench.set("a", "3").await;
    assert_eq!(bench.watched().await, (vec!["a".to_owned(); 3], false));
    assert_eq!(bench.value("a").await, "3", "the rule is used up");
    bench.set("a", "4").await;
    bench.faults.add(Rule::all(Effect::Stale).times(1));
    assert_eq!(bench.value("a").await, "3", "no older than the last true answer");
    assert_eq!(bench.value("a").await, "4");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_overtaken_by_the_next_or_goes_on_alone() {
    let bench = Bench::new().await;
    bench.faults.add(Rule::writes(Effect::Overtaken).times(1));
    let (first, second) = tokio::join!(biased; bench.create("first"), bench.create("second"));
    let version = |map: ConfigMap| map.metadata.resource_version.unwrap().parse::<u64>().unwrap();
    assert!(version(first.unwrap()) > version(second.unwrap()));
    bench.faults.add(Rule::writes(Effect::Overtaken).times(1));
    let begun = Instant::now();
    bench.create("alone").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_ended_repeated_reversed_and_given_errors() {
    let bench = Bench::new().await;
    for name in ["a", "b", "c"] {
        bench.create(name).await.unwrap();
    }
    let told = async |effect: Effect| {
        bench.faults.add(Rule::watches(effect).times(1));
        let (told, broke) = bench.watched().await;
        (told.join(" "), broke)
    };
    let length = bench.cluster.event_log(&["/api/v1/namespaces/default/configmaps"]).await.len();
    assert_eq!(told(Effect::Pieces(3)).await, ("a b c".to_owned(), false));
    let begun = Instant::now();
    let drip = Effect::Drip { bytes: length / 4, pause: Duration::from_secs(3) };
    assert_eq!(told(drip).await, ("a b c".to_owned(), false));
    assert!((12..=16).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(told(Effect::CutAfter(length - 5)).await, ("a b".to_owned(), true), "in the middle of a line");
    assert_eq!(told(Effect::EndAfter(length / 2)).await, ("a".to_owned(), false));
    assert_eq!(told(Effect::DoubleLines).await, ("a a b b c c".to_owned(), false));
    assert_eq!(told(Effect::ReverseLines).await, ("c b a".to_owned(), false));
    assert_eq!(told(Effect::ErrorEvent { after: 2, code: 410 }).await, ("a b 410".to_owned(), false));
    bench.faults.add(Rule::watches(Effect::StallAfter(0)).times(1));
    assert!(tokio::time::timeout(Duration::from_secs(3600), bench.watched()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_seed_hits_the_same_requests() {
    let hits = async |seed: u64| {
        let (cluster, faults) = (Cluster::builder().seed(7).start().await, FaultLayer::new(seed));
        faults.add(Rule::all(Effect::DropBefore).percent(50));
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_through(&faults));
        let mut hits = Vec::new();
        for _ in 0..32 {
            hits.push(maps.get_opt("a").await.is_err());
        }
        hits
    };
    let first = hits(1).await;
    assert_eq!(first, hits(1).await);
    assert_ne!(first, hits(2).await);
    assert!((6..26).contains(&first.iter().filter(|hit| **hit).count()), "{first:?}");
}
