//! Expectations against a cache that is behind, writes that are lost, and answers that are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

mod clusters;

use std::time::Duration;

use clusters::*;
use k8s_openapi::api::core::v1::ConfigMap;
use shoal_runtime::cache::Informer;
use shoal_runtime::{Expectations, Informers, ObjectKey, Writer};
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};

/// A parent whose children are watched through one network and written through another.
struct Bench {
    cluster: Cluster,
    watching: FaultLayer,
    writing: FaultLayer,
    informer: Informer<ConfigMap>,
    writer: Writer,
    expectations: Expectations,
    parent: ObjectKey,
}

impl Bench {
    async fn new() -> Bench {
        let cluster = Cluster::builder().seed(7).start().await;
        let (watching, writing) = (FaultLayer::new(1), FaultLayer::new(2));
        let informer =
            Informers::new(cluster.client_through(&watching), options()).namespaced::<ConfigMap>("default");
        informer.synced().await;
        let writer = Writer::new(cluster.client_through(&writing), "parents");
        let (expectations, parent) = (Expectations::default(), key("parent"));
        Bench { cluster, watching, writing, informer, writer, expectations, parent }
    }

    /// The cache learns nothing more.
    async fn blind(&self) {
        self.watching.add(Rule::all(Effect::DropBefore));
        self.watching.disconnect();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    /// The cache learns everything.
    async fn see(&self) {
        self.watching.clear();
        tokio::time::sleep(Duration::from_secs(60)).await;
        converge("seen", &self.cluster, &self.informer).await;
    }

    async fn create(&self, name: &str) -> bool {
        let mut child = map(name, "1");
        child.metadata.namespace = Some("default".into());
        self.expectations.created(&self.parent, &child);
        self.writer.create(&child).await.is_ok()
    }

    async fn delete(&self, name: &str) -> bool {
        let child = self.informer.lister().get(&key(name)).unwrap();
        self.expectations.deleted(&self.parent, &*child);
        self.writer.delete(&*child).await.is_ok()
    }

    async fn is_seen(&self) -> bool {
        self.expectations.is_seen(&self.parent, &self.informer.lister(), &self.writer).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_waits_until_its_own_writes_are_seen() {
    let bench = Bench::new().await;
    assert!(bench.is_seen().await, "nothing was written");
    bench.blind().await;
    assert!(bench.create("a").await && bench.create("b").await);
    assert!(!bench.is_seen().await);
    bench.see().await;
    assert!(bench.is_seen().await);
    bench.blind().await;
    assert!(bench.delete("a").await);
    assert!(!bench.is_seen().await);
    bench.see().await;
    assert!(bench.is_seen().await);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_others_removed_is_not_waited_for() {
    let bench = Bench::new().await;
    bench.blind().await;
    assert!(bench.create("a").await);
    delete(&bench.cluster, "a").await;
    assert!(bench.is_seen().await, "it will never come");
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answer_is_lost_are_waited_for_and_those_that_never_arrived_are_not() {
    let bench = Bench::new().await;
    create(&bench.cluster, "old", "1").await;
    converge("old", &bench.cluster, &bench.informer).await;
    bench.blind().await;
    bench.writing.add(Rule::writes(Effect::DropAfter).times(2));
    assert!(!bench.create("made").await && !bench.delete("old").await);
    assert!(!bench.is_seen().await);
    bench.see().await;
    assert!(bench.is_seen().await);
    bench.writing.clear();
    bench.blind().await;
    bench.writing.add(Rule::writes(Effect::DropBefore).times(2));
    assert!(!bench.create("never").await && !bench.delete("made").await);
    assert!(bench.is_seen().await, "neither was done");
}

#[tokio::test(start_paused = true)]
async fn an_error_while_asking_forgets_nothing() {
    let bench = Bench::new().await;
    bench.blind().await;
    assert!(bench.create("a").await);
    bench.writing.add(Rule::lists(Effect::answer(500)));
    let asked = bench.expectations.is_seen(&bench.parent, &bench.informer.lister(), &bench.writer).await;
    assert!(asked.is_err());
    bench.writing.clear();
    assert!(!bench.is_seen().await, "still expected");
    bench.expectations.forget(&bench.parent);
    assert!(bench.is_seen().await);
}
