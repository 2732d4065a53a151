//! Nodes that fall silent, on a whole API server in simulated time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_objects::clock::Clock;
use shoal_objects::{Entropy, Timestamp};
use shoal_runtime::Manager;
use shoal_testkit::Cluster;
use tokio::time::Instant;

const NODE_CONTROLLERS: [&str; 3] = ["node-lifecycle", "pod-garbage-collector", "taint-eviction"];

async fn start() -> Cluster {
    start_with(Arc::default()).await
}

/// With a clock that can be set forward and back, by seconds.
async fn start_with(set: Arc<AtomicI64>) -> Cluster {
    let cluster = Cluster::builder().seed(1).start().await;
    let begin = Instant::now();
    let clock = Clock::from_fn(move || {
        let since = i64::try_from(begin.elapsed().as_micros()).unwrap();
        Timestamp(1_767_225_600_000_000 + since + set.load(Ordering::Relaxed) * 1_000_000)
    });
    let builder = Manager::builder("controllers").client(cluster.client()).clock(clock.clone());
    let mut manager = builder.embedded().build().await.unwrap();
    let settings = Settings { clock, entropy: Entropy::seeded(1), ..Settings::default() };
    all::register(&mut manager, &settings, |name| NODE_CONTROLLERS.contains(&name));
    tokio::spawn(manager.run());
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    create(&accounts, json!({"metadata": {"name": "default"}})).await;
    cluster
}

async fn create<T>(api: &Api<T>, object: Value) -> T
where
    T: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// A node that says that it is ready, in a zone.
async fn join(cluster: &Cluster, name: &str, zone: &str) {
    let nodes: Api<Node> = Api::all(cluster.client());
    create(&nodes, json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}}))
        .await;
    let status = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    create(
        &leases,
        json!({"metadata": {"name": name}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}),
    )
    .await;
}

/// Renews the lease of a node every ten seconds, for ever.
fn keep_alive(cluster: &Cluster, name: &'static str) -> tokio::task::JoinHandle<()> {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    tokio::spawn(async move {
        for beat in 1_u32.. {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let (hours, minutes, seconds) = (beat / 360, beat / 6 % 60, beat % 6 * 10);
            let time = format!("2026-01-01T{hours:02}:{minutes:02}:{seconds:02}.000001Z");
            let renew = json!({"spec": {"renewTime": time}});
            leases.patch(name, &PatchParams::default(), &Patch::Merge(renew)).await.unwrap();
        }
    })
}

fn pod(name: &str, node: &str, tolerations: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "tolerations": tolerations, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}]}})
}

async fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let taints = nodes.get(node).await.unwrap().spec.and_then(|spec| spec.taints).unwrap_or_default();
    let mut shown: Vec<String> = taints
        .iter()
        .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
        .collect();
    shown.sort();
    shown
}

async fn ready(cluster: &Cluster, node: &str) -> String {
    let nodes: Api<Node> = Api::all(cluster.client());
    let conditions = nodes.get(node).await.unwrap().status.unwrap().conditions.unwrap();
    conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().status
}

/// When it first became so, in seconds since `begin`; looked at every second.
async fn when<F: Future<Output = bool>>(begin: Instant, mut check: impl FnMut() -> F) -> u64 {
    for _ in 0..1000 {
        if check().await {
            return begin.elapsed().as_secs();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("never");
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_tainted_and_loses_the_pods_that_do_not_tolerate_it() {
    let cluster = start().await;
    join(&cluster, "a", "z").await;
    join(&cluster, "b", "z").await;
    let (_a, b) = (keep_alive(&cluster, "a"), keep_alive(&cluster, "b"));
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(&pods, pod("usual", "b", json!([]))).await;
    create(&pods, pod("patient", "b", json!([{"operator": "Exists"}]))).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ready(&cluster, "b").await, "True", "leases are enough");
    assert!(taints(&cluster, "b").await.is_empty());

    b.abort();
    let begin = Instant::now();
    let silent = when(begin, || async { ready(&cluster, "b").await == "Unknown" }).await;
    assert!((40..=52).contains(&silent), "{silent}");
    let tainted = when(begin, || async { taints(&cluster, "b").await.len() == 2 }).await;
    assert!(tainted <= silent + 11, "{tainted}");
    assert_eq!(taints(&cluster, "b").await, ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    let evicted = when(begin, || async {
        pods.get_opt("usual").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    })
    .await;
    assert!((tainted + 299..=tainted + 302).contains(&evicted), "tainted {tainted}, evicted {evicted}");
    assert!(pods.get("patient").await.unwrap().metadata.deletion_timestamp.is_none());

    let nodes: Api<Node> = Api::all(cluster.client());
    let back = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T02:00:00Z"}]}});
    nodes.patch_status("b", &PatchParams::default(), &Patch::Strategic(back)).await.unwrap();
    when(Instant::now(), || async { taints(&cluster, "b").await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn when_no_node_is_ready_nobody_is_evicted() {
    let cluster = start().await;
    join(&cluster, "a", "y").await;
    join(&cluster, "b", "z").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(&pods, pod("p", "a", json!([]))).await;
    let begin = Instant::now();
    when(begin, || async {
        ready(&cluster, "a").await == "Unknown" && ready(&cluster, "b").await == "Unknown"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(taints(&cluster, "a").await, ["unreachable:NoSchedule"]);
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_is_tainted_and_a_new_one_is_given_time() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    create(&nodes, json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}})).await;
    let begin = Instant::now();
    when(begin, || async { taints(&cluster, "n").await.contains(&"unschedulable:NoSchedule".to_owned()) })
        .await;
    let told = when(begin, || async {
        nodes
            .get("n")
            .await
            .unwrap()
            .status
            .and_then(|status| status.conditions)
            .is_some_and(|conditions| !conditions.is_empty())
    })
    .await;
    assert!((59..=62).contains(&told), "{told}");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_removed_after_a_while() {
    let cluster = start().await;
    join(&cluster, "a", "z").await;
    let _a = keep_alive(&cluster, "a");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(&pods, pod("stays", "a", json!([]))).await;
    create(&pods, pod("goes", "gone", json!([]))).await;
    let begin = Instant::now();
    let removed = when(begin, || async { pods.get_opt("goes").await.unwrap().is_none() }).await;
    assert!((40..=62).contains(&removed), "{removed}");
    assert!(pods.get_opt("stays").await.unwrap().is_some());
    let nodes: Api<Node> = Api::all(cluster.client());
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    when(Instant::now(), || async { pods.get_opt("stays").await.unwrap().is_none() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_kills_no_node_and_drives_nobody_away_early_or_late() {
    let set = Arc::new(AtomicI64::new(0));
    let cluster = start_with(set.clone()).await;
    join(&cluster, "a", "z").await;
    join(&cluster, "b", "z").await;
    // This node's clock is set back by an hour: it renews with times that were before.
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let back = json!({"spec": {"renewTime": "2026-01-01T01:00:00.000000Z"}});
    leases.patch("a", &PatchParams::default(), &Patch::Merge(back)).await.unwrap();
    let _a = keep_alive(&cluster, "a");
    let b = keep_alive(&cluster, "b");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(&pods, pod("usual", "b", json!([]))).await;
    for jump in [3600, -3600, 0] {
        set.store(jump, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!((ready(&cluster, "a").await, ready(&cluster, "b").await), ("True".into(), "True".into()));
    }
    b.abort();
    let begin = Instant::now();
    let tainted = when(begin, || async { taints(&cluster, "b").await.len() == 2 }).await;
    set.store(3600, Ordering::Relaxed);
    // Another change of the node, so that its pods are looked at under the new time.
    let nodes: Api<Node> = Api::all(cluster.client());
    let label = json!({"metadata": {"labels": {"looked": "at"}}});
    nodes.patch("b", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    set.store(-3600, Ordering::Relaxed);
    let evicted = when(begin, || async {
        pods.get_opt("usual").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    })
    .await;
    assert!((tainted + 299..=tainted + 302).contains(&evicted), "tainted {tainted}, evicted {evicted}");
}
