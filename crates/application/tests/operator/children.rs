//! What is made, kept as it should be, and left alone.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use shoal_application::Application;
use shoal_testkit::FaultLayer;
use tokio::time::Instant;

use crate::cluster::{
    api, cluster, condition, create, edit, exists, from_json, list, operator, patch, reasons, start, until,
    until_is, until_phase, until_told, web,
};

fn everything() -> Value {
    json!({
        "image": "web:1", "port": 8080, "replicas": 2,
        "resources": {"requests": {"cpu": "0.1", "memory": "64Mi"}},
        "configFiles": [{"path": "/etc/web/conf", "content": "a=1"}],
        "storage": {"persistentVolumeClaims": [{"name": "data", "size": "1Gi", "accessModes": ["ReadWriteMany"]}]},
        "network": {"ingress": {"host": "web.example.com"}, "networkPolicy": {}},
        "security": {"serviceAccount": "web-account"},
        "podDisruptionBudget": {"minAvailable": 1},
    })
}

#[tokio::test(start_paused = true)]
async fn every_child_is_made_labelled_and_owned() {
    let cluster = start().await;
    create(&cluster, everything()).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!(status.ready, "2/2");
    let kinds: Vec<&str> = status.children.iter().map(|child| child.kind.as_str()).collect();
    let expected = [
        "ConfigMap",
        "Deployment",
        "Ingress",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(kinds, expected);
    let app = api::<Application>(&cluster).get("web").await.unwrap();
    let check = |object: &Value, owned: bool| {
        let meta = &object["metadata"];
        assert_eq!(meta["labels"]["app"], "web", "kubectl get all -l app=web shows it: {meta}");
        let owner = &meta["ownerReferences"][0];
        assert_eq!(owner["uid"] == json!(app.metadata.uid), owned, "{meta}");
    };
    check(&list::<Deployment>(&cluster).await[0], true);
    check(&list::<Ingress>(&cluster).await[0], true);
    check(&list::<NetworkPolicy>(&cluster).await[0], true);
    check(&list::<PodDisruptionBudget>(&cluster).await[0], true);
    check(&list::<PersistentVolumeClaim>(&cluster).await[0], false);
    check(&until_is::<Service>(&cluster, "web", |it| !it.is_null()).await, true);
    check(&until_is::<ServiceAccount>(&cluster, "web-account", |it| !it.is_null()).await, true);
    until_told(&cluster, "Created").await;

    // What is not asked for any more goes; a volume stays.
    let nothing = json!({"port": null, "network": null, "security": null, "podDisruptionBudget": null,
        "configFiles": null, "storage": null});
    edit(&cluster, nothing).await;
    until_is::<Service>(&cluster, "web", Value::is_null).await;
    until_is::<ServiceAccount>(&cluster, "web-account", Value::is_null).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!(status.children.len(), 1);
    assert!(list::<Ingress>(&cluster).await.is_empty() && list::<NetworkPolicy>(&cluster).await.is_empty());
    assert!(list::<PodDisruptionBudget>(&cluster).await.is_empty());
    until("the files are gone with the last template that had them", || async {
        match list::<ConfigMap>(&cluster).await.iter().any(|map| map["metadata"]["labels"]["app"] == "web") {
            true => Err(String::new()),
            false => Ok(()),
        }
    })
    .await;
    assert!(exists::<PersistentVolumeClaim>(&cluster, "web-data").await);
}

#[tokio::test(start_paused = true)]
async fn what_others_change_or_delete_is_set_right_within_a_second() {
    let cluster = start().await;
    create(&cluster, everything()).await;
    until_phase(&cluster, "Running").await;
    let begin = Instant::now();
    patch::<Deployment>(&cluster, "web", json!({"spec": {"replicas": 7}})).await;
    until_is::<Deployment>(&cluster, "web", |it| it["spec"]["replicas"] == 2).await;
    patch::<Service>(&cluster, "web", json!({"spec": {"selector": {"app": "other"}}})).await;
    until_is::<Service>(&cluster, "web", |it| it["spec"]["selector"]["app"] == "web").await;
    api::<Service>(&cluster).delete("web", &DeleteParams::default()).await.unwrap();
    until_is::<Service>(&cluster, "web", |it| !it.is_null()).await;
    api::<Deployment>(&cluster).delete("web", &DeleteParams::default()).await.unwrap();
    until_is::<Deployment>(&cluster, "web", |it| !it.is_null()).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    until_told(&cluster, "DriftCorrected").await;
    // What others add stays.
    patch::<Deployment>(&cluster, "web", json!({"metadata": {"annotations": {"someone": "else"}}})).await;
    until_phase(&cluster, "Running").await;
    tokio::time::sleep(Duration::from_secs(2000)).await;
    let live = until_is::<Deployment>(&cluster, "web", |it| !it.is_null()).await;
    assert_eq!(live["metadata"]["annotations"]["someone"], "else");
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_and_nothing_told() {
    let cluster = cluster().await;
    let faults = FaultLayer::new(1);
    operator(&cluster, cluster.client_through(&faults)).await;
    let mut spec = everything();
    spec["scaling"] = json!({"maxReplicas": 3});
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let writes =
        |requests: Vec<String>| requests.iter().filter(|request| !request.starts_with("GET")).count();
    let (before, told) = (writes(faults.requests()), reasons(&cluster).await);
    // Longer than three resyncs.
    tokio::time::sleep(Duration::from_secs(1900)).await;
    let after: Vec<String> =
        faults.requests().into_iter().filter(|request| !request.starts_with("GET")).collect();
    assert_eq!(after.len(), before, "{:#?}", &after[before..]);
    assert_eq!(reasons(&cluster).await, told);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_not_touched() {
    let cluster = start().await;
    let theirs: Deployment = from_json(json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "theirs"}}, "template": {"metadata": {"labels": {"app": "theirs"}},
        "spec": {"containers": [{"name": "c", "image": "theirs"}]}}}}));
    let made = api::<Deployment>(&cluster).create(&PostParams::default(), &theirs).await.unwrap();
    create(&cluster, web()).await;
    let app = until_is::<Application>(&cluster, "web", |app| app["status"]["phase"] == "Failed").await;
    assert_eq!(condition(&app, "Stalled")["reason"], "NameTaken");
    let message = condition(&app, "Ready")["message"].as_str().unwrap();
    assert!(message.starts_with("Deployment web exists and belongs to somebody else: rename"), "{message}");
    until_told(&cluster, "NameTaken").await;
    let live = api::<Deployment>(&cluster).get("web").await.unwrap();
    assert_eq!((live.metadata.generation, live.metadata.uid), (made.metadata.generation, made.metadata.uid));
    assert_eq!(live.metadata.labels, made.metadata.labels);
    // Deleting the Application does not touch it either.
    api::<Deployment>(&cluster).delete("web", &DeleteParams::default()).await.unwrap();
    until_phase(&cluster, "Running").await;
    until_told(&cluster, "Recovered").await;
}

#[tokio::test(start_paused = true)]
async fn an_account_that_exists_is_used_and_kept() {
    let cluster = start().await;
    let account: ServiceAccount = from_json(json!({"metadata": {"name": "shared"}}));
    api::<ServiceAccount>(&cluster).create(&PostParams::default(), &account).await.unwrap();
    let mut spec = web();
    spec["security"] = json!({"serviceAccount": "shared"});
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    let live = api::<ServiceAccount>(&cluster).get("shared").await.unwrap();
    assert_eq!((live.metadata.owner_references, live.metadata.labels), (None, None));
    api::<Application>(&cluster).delete("web", &DeleteParams::default()).await.unwrap();
    until_is::<Application>(&cluster, "web", Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(exists::<ServiceAccount>(&cluster, "shared").await);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_told_and_the_rest_is_done() {
    let cluster = start().await;
    let mut spec = web();
    spec["podLabels"] = json!({"not a label": "x"});
    create(&cluster, spec).await;
    let app = until_is::<Application>(&cluster, "web", |app| app["status"]["phase"] == "Failed").await;
    assert_eq!(condition(&app, "Stalled")["reason"], "Refused");
    assert!(exists::<Service>(&cluster, "web").await);
    until_told(&cluster, "ApplyRefused").await;
    edit(&cluster, json!({"podLabels": null})).await;
    until_phase(&cluster, "Running").await;
    assert!(!exists::<HorizontalPodAutoscaler>(&cluster, "web").await);
}

#[tokio::test(start_paused = true)]
async fn what_others_add_to_children_is_no_reason_to_write_them() {
    let cluster = cluster().await;
    let record = FaultLayer::new(1);
    operator(&cluster, cluster.client_through(&record)).await;
    let mut spec = everything();
    // What the server does not keep as it is said.
    spec["environment"] = json!([{"name": "EMPTY", "value": ""}]);
    spec["healthCheck"] = json!({"readinessProbe": {"httpGet": {"path": "/"}, "initialDelaySeconds": 0}});
    spec["scaling"] = json!({"minReplicas": 2, "maxReplicas": 4, "targetCPUUtilizationPercentage": 70});
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    let quiet = || tokio::time::sleep(Duration::from_secs(10));
    quiet().await;

    let before = record.requests().len();
    let seen = json!({"metadata": {"annotations": {"example.com/seen": "yes"}}});
    patch::<Deployment>(&cluster, "web", seen.clone()).await;
    patch::<Service>(&cluster, "web", seen.clone()).await;
    patch::<HorizontalPodAutoscaler>(&cluster, "web", seen.clone()).await;
    patch::<Ingress>(&cluster, "web", seen.clone()).await;
    patch::<NetworkPolicy>(&cluster, "web", seen.clone()).await;
    patch::<PodDisruptionBudget>(&cluster, "web", seen.clone()).await;
    patch::<ServiceAccount>(&cluster, "web-account", seen.clone()).await;
    patch::<PersistentVolumeClaim>(&cluster, "web-data", seen).await;
    quiet().await;
    let requests = record.requests();
    let written: Vec<&String> = requests[before..].iter().filter(|line| !line.starts_with("GET ")).collect();
    assert!(written.is_empty(), "{written:#?}");
    assert!(!reasons(&cluster).await.contains(&"DriftCorrected".to_owned()));
}
