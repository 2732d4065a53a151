//! StatefulSets and DaemonSets.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use shoal_controllers::{daemonset, statefulset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;

use crate::cluster::{api, create, names, patch, start, template, until, until_all, until_told};

fn stateful(replicas: i32, image: &str, extra: Value) -> Value {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let mut spec = json!({"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", image), "volumeClaimTemplates": [claim]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"metadata": {"name": "db"}, "spec": spec})
}

async fn with_stateful_sets() -> Client {
    start(vec![statefulset::controller(Clock::system())]).await
}

fn images(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect()
}

fn is_ready(count: i32) -> impl Fn(&Value) -> bool {
    move |set| set["status"]["readyReplicas"] == count && set["status"]["replicas"] == count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_makes_one_pod_after_the_other_with_its_claims() {
    let client = with_stateful_sets().await;
    let (sets, pods) = (api::<StatefulSet>(&client), api::<Pod>(&client));
    create::<StatefulSet>(&client, stateful(3, "wait", json!({}))).await;
    let first = until_all(&pods, |pods| pods.len() == 1).await;
    assert_eq!(names(&first), ["db-0"]);
    until(&sets, "db", |set| set["status"]["replicas"] == 1).await;
    let image = json!({"spec": {"containers": [{"name": "c", "image": "run"}]}});
    patch(&pods, "db-0", image.clone()).await;
    let two = until_all(&pods, |pods| pods.len() == 2).await;
    assert_eq!(names(&two), ["db-0", "db-1"]);
    patch(&pods, "db-1", image.clone()).await;
    until_all(&pods, |pods| pods.len() == 3).await;
    patch(&pods, "db-2", image).await;
    let done = until(&sets, "db", is_ready(3)).await;
    assert_eq!(done["status"]["currentRevision"], done["status"]["updateRevision"]);
    let claims = until_all(&api::<PersistentVolumeClaim>(&client), |_| true).await;
    assert_eq!(names(&claims), ["data-db-0", "data-db-1", "data-db-2"]);
    assert!(claims.iter().all(|claim| claim["metadata"]["ownerReferences"].is_null()));
    until_told(&client, "SuccessfulCreate", "create Pod db-0 in StatefulSet db successful").await;
    until_told(&client, "SuccessfulCreate", "create Claim data-db-2 Pod db-2 in StatefulSet db success").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_stops_at_the_partition_and_goes_on_without() {
    let client = with_stateful_sets().await;
    let (sets, pods) = (api::<StatefulSet>(&client), api::<Pod>(&client));
    let strategy = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}, "podManagementPolicy": "Parallel"});
    create::<StatefulSet>(&client, stateful(3, "1", strategy)).await;
    until(&sets, "db", is_ready(3)).await;
    patch(&sets, "db", json!({"spec": {"template": template("db", "2")}})).await;
    let half = until(&sets, "db", |set| is_ready(3)(set) && set["status"]["updatedReplicas"] == 1).await;
    assert_eq!(half["status"]["currentReplicas"], 2);
    let all = until_all(&pods, |pods| pods.len() == 3).await;
    assert_eq!(images(&all), ["1", "1", "2"]);
    patch(&sets, "db", json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})).await;
    let done = until(&sets, "db", |set| is_ready(3)(set) && set["status"]["currentReplicas"] == 3).await;
    assert_eq!(done["status"]["currentRevision"], done["status"]["updateRevision"]);
    assert_eq!(images(&until_all(&pods, |pods| pods.len() == 3).await), ["2", "2", "2"]);
    let revisions = until_all(&api::<ControllerRevision>(&client), |revisions| revisions.len() == 2).await;
    let mut numbers: Vec<i64> = revisions.iter().filter_map(|one| one["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_go_with_what_the_policy_says() {
    let client = with_stateful_sets().await;
    let (sets, pods) = (api::<StatefulSet>(&client), api::<Pod>(&client));
    let policy = json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"}});
    create::<StatefulSet>(&client, stateful(2, "run", policy)).await;
    until(&sets, "db", is_ready(2)).await;
    let claims = api::<PersistentVolumeClaim>(&client);
    let held_by =
        |kind: &'static str| move |claim: &Value| claim["metadata"]["ownerReferences"][0]["kind"] == kind;
    until(&claims, "data-db-1", held_by("StatefulSet")).await;
    patch(&sets, "db", json!({"spec": {"replicas": 1}})).await;
    until_all(&pods, |pods| pods.len() == 1).await;
    until(&claims, "data-db-1", held_by("Pod")).await;
    until(&claims, "data-db-0", held_by("StatefulSet")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_deleted_comes_back_as_itself() {
    let client = with_stateful_sets().await;
    let (sets, pods) = (api::<StatefulSet>(&client), api::<Pod>(&client));
    create::<StatefulSet>(&client, stateful(2, "run", json!({}))).await;
    until(&sets, "db", is_ready(2)).await;
    let before = pods.get("db-0").await.unwrap().metadata.uid;
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    let again =
        until(&pods, "db-0", |pod| !pod.is_null() && pod["metadata"]["uid"] != json!(before)).await;
    assert_eq!(again["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
    assert_eq!(again["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
}

async fn node(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let object = json!({"metadata": {"name": name, "labels": {"on": "yes"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    // A new node is tainted until somebody finds it ready.
    patch(&nodes, name, json!({"spec": {"taints": null}})).await;
}

fn on(pods: &[Value]) -> Vec<String> {
    let place = |pod: &Value| {
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap().to_owned()
    };
    let mut nodes: Vec<String> = pods.iter().map(place).collect();
    nodes.sort();
    nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_follows_its_nodes_and_rolls_out_changes() {
    let client = start(vec![daemonset::controller(Clock::system(), Entropy::system())]).await;
    let (sets, pods) = (api::<DaemonSet>(&client), api::<Pod>(&client));
    node(&client, "a").await;
    node(&client, "b").await;
    let mut made_of = template("agent", "1");
    made_of["spec"]["nodeSelector"] = json!({"on": "yes"});
    let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "template": made_of});
    create::<DaemonSet>(&client, json!({"metadata": {"name": "agent"}, "spec": spec})).await;
    until_all(&pods, |pods| on(pods) == ["a", "b"]).await;
    until(&sets, "agent", |set| set["status"]["numberAvailable"] == 2).await;
    node(&client, "c").await;
    until_all(&pods, |pods| on(pods) == ["a", "b", "c"]).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let taint = json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}});
    patch(&nodes, "b", taint).await;
    until_all(&pods, |pods| on(pods) == ["a", "c"]).await;
    patch(&nodes, "a", json!({"metadata": {"labels": {"on": "no"}}})).await;
    until_all(&pods, |pods| on(pods) == ["c"]).await;
    node(&client, "d").await;
    until(&sets, "agent", |set| set["status"]["numberAvailable"] == 2).await;
    made_of["spec"]["containers"][0]["image"] = json!("2");
    patch(&sets, "agent", json!({"spec": {"template": made_of}})).await;
    let is_new = |set: &Value| {
        set["status"]["updatedNumberScheduled"] == 2 && set["status"]["numberAvailable"] == 2
    };
    until(&sets, "agent", is_new).await;
    let all = until_all(&pods, |pods| on(pods) == ["c", "d"]).await;
    assert_eq!(images(&all), ["2", "2"]);
    nodes.delete("d", &DeleteParams::default()).await.unwrap();
    until_all(&pods, |pods| on(pods) == ["c"]).await;
    until_all(&api::<ControllerRevision>(&client), |revisions| revisions.len() == 2).await;
    until_told(&client, "SuccessfulCreate", "Created pod: agent-").await;
}
