//! The scheduler on a whole API server, with paused time.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_controllers::scheduler::Scheduler;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};

async fn start() -> Cluster {
    let cluster = Cluster::builder().seed(1).start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let client = cluster.client();
    let mut manager = Manager::builder("scheduler").client(client).embedded().build().await.unwrap();
    manager.add(Scheduler::default());
    tokio::spawn(manager.run());
    cluster
}

async fn add_node(cluster: &Cluster, name: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = json!({"metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    // The controller of nodes would do this when the node is ready.
    let patch = json!({"spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn pod(name: &str, cpu: &str, extra: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    });
    for (key, value) in extra.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

async fn create(pods: &Api<Pod>, pod: Pod) {
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn node_of(pods: &Api<Pod>, name: &str) -> String {
    eventually(&format!("{name} has a node"), || async {
        pods.get(name).await.unwrap().spec.unwrap().node_name
    })
    .await
}

async fn condition(pods: &Api<Pod>, name: &str, reason: &str) -> PodCondition {
    eventually(&format!("{name} is {reason}"), || async {
        let conditions = pods.get(name).await.unwrap().status?.conditions?;
        conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some(reason))
    })
    .await
}

async fn event(cluster: &Cluster, pod: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    eventually(&format!("{pod} has an event {reason}"), || async {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.into_iter().find(|event| {
            event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason)
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_with_room_and_are_told_so() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for name in ["one", "two", "three"] {
        add_node(&cluster, name, "4").await;
    }
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..12 {
        create(&pods, pod(&format!("p{index}"), "1", json!({}))).await;
    }
    for index in 0..12 {
        *count.entry(node_of(&pods, &format!("p{index}")).await).or_default() += 1;
    }
    assert_eq!(count.values().copied().collect::<Vec<_>>(), [4, 4, 4]);
    let event = event(&cluster, "p0", "Scheduled").await;
    assert!(event.message.unwrap().starts_with("Successfully assigned default/p0 to "));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("default-scheduler"));
    create(&pods, pod("foreign", "1", json!({"schedulerName": "other"}))).await;
    create(&pods, pod("thirteenth", "1", json!({}))).await;
    let told = condition(&pods, "thirteenth", "Unschedulable").await;
    let text = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: \
                3 No preemption victims found for incoming pod.";
    assert_eq!(told.message.as_deref(), Some(text));
    let event = self::event(&cluster, "thirteenth", "FailedScheduling").await;
    assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some(text)));
    let foreign = pods.get("foreign").await.unwrap();
    assert!(foreign.spec.unwrap().node_name.is_none() && foreign.status.unwrap().conditions.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_parked_pod_is_bound_after_a_node_joins_or_room_is_made() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(&pods, pod("first", "2", json!({}))).await;
    let told = condition(&pods, "first", "Unschedulable").await;
    assert_eq!(told.message.as_deref(), Some("no nodes available to schedule pods"));
    add_node(&cluster, "late", "2").await;
    assert_eq!(node_of(&pods, "first").await, "late");
    create(&pods, pod("second", "2", json!({}))).await;
    condition(&pods, "second", "Unschedulable").await;
    pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(node_of(&pods, "second").await, "late");
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_waits_for_its_gates() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    add_node(&cluster, "n", "4").await;
    create(&pods, pod("gated", "1", json!({"schedulingGates": [{"name": "example.com/go"}]}))).await;
    create(&pods, pod("free", "1", json!({}))).await;
    node_of(&pods, "free").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    condition(&pods, "gated", "SchedulingGated").await;
    let patch = json!({"spec": {"schedulingGates": null}});
    pods.patch("gated", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(node_of(&pods, "gated").await, "n");
}

#[tokio::test(start_paused = true)]
async fn an_important_pod_takes_the_place_of_a_lesser_one() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let classes: Api<PriorityClass> = Api::all(cluster.client());
    let class = serde_json::from_value(json!({"metadata": {"name": "high"}, "value": 1000})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    add_node(&cluster, "n", "2").await;
    create(&pods, pod("low", "2", json!({"terminationGracePeriodSeconds": 30}))).await;
    node_of(&pods, "low").await;
    create(&pods, pod("high", "1", json!({"priorityClassName": "high"}))).await;
    let nominated = eventually("a place is being made", || async {
        pods.get("high").await.unwrap().status?.nominated_node_name
    })
    .await;
    assert_eq!(nominated, "n");
    let low = pods.get("low").await.unwrap();
    assert!(low.metadata.deletion_timestamp.is_some(), "asked to go, in its own time");
    let target = low.status.unwrap().conditions.unwrap().into_iter().find(|c| c.type_ == "DisruptionTarget");
    assert_eq!(target.unwrap().reason.as_deref(), Some("PreemptionByScheduler"));
    event(&cluster, "low", "Preempted").await;
    // A lesser pod does not slip into the place that is being made.
    create(&pods, pod("slippery", "2", json!({}))).await;
    condition(&pods, "slippery", "Unschedulable").await;
    pods.delete("low", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(node_of(&pods, "high").await, "n");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_stateful_set_are_spread_over_zones_without_being_told() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    for name in ["a1", "a2", "b1"] {
        add_node(&cluster, name, "400").await;
        let labels = json!({"topology.kubernetes.io/zone": &name[..1], "kubernetes.io/hostname": name});
        let patch = json!({"metadata": {"labels": labels}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client());
    let template =
        json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "db"}, "spec": {"serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}}, "template": template}});
    let set = sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true,
        "uid": set.metadata.uid});
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for name in ["db-0", "db-1", "db-2", "db-3"] {
        let mut one = pod(name, "1m", json!({}));
        one.metadata = serde_json::from_value(json!({"name": name, "ownerReferences": [owner],
            "labels": {"app": "db", "statefulset.kubernetes.io/pod-name": name}}))
        .unwrap();
        create(&pods, one).await;
        *count.entry(node_of(&pods, name).await).or_default() += 1;
    }
    let expected = BTreeMap::from([("a1".to_owned(), 1), ("a2".to_owned(), 1), ("b1".to_owned(), 2)]);
    assert_eq!(count, expected);
}
