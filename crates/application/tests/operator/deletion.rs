//! The end of an Application, and what outlives it.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use shoal_application::Application;
use shoal_testkit::Cluster;

use crate::cluster::{
    api, create, edit, exists, from_json, list, phases, start, until, until_is, until_phase, until_told, web,
};

fn with_volumes() -> Value {
    let mut spec = web();
    spec["replicas"] = json!(1);
    spec["resources"] = json!({"requests": {"cpu": "1"}});
    spec["storage"] = json!({"persistentVolumeClaims": [
        {"name": "kept", "size": "2Gi"}, {"name": "gone", "size": "1Gi", "retention": "Delete"}]});
    spec
}

async fn delete(cluster: &Cluster, params: DeleteParams) {
    api::<Application>(cluster).delete("web", &params).await.unwrap();
    until_is::<Application>(cluster, "web", Value::is_null).await;
}

async fn until_no_pods(cluster: &Cluster) {
    until("no pods are left", || async {
        let pods = list::<Pod>(cluster).await.len();
        if pods == 0 { Ok(()) } else { Err(pods.to_string()) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn children_go_with_the_application_and_volumes_as_they_are_asked_to() {
    let cluster = start().await;
    let phases = phases(&cluster).await;
    create(&cluster, with_volumes()).await;
    until_phase(&cluster, "Running").await;
    let kept = api::<PersistentVolumeClaim>(&cluster).get("web-kept").await.unwrap();
    delete(&cluster, DeleteParams::default()).await;
    until_no_pods(&cluster).await;
    assert!(!exists::<Deployment>(&cluster, "web").await && !exists::<Service>(&cluster, "web").await);
    until_is::<PersistentVolumeClaim>(&cluster, "web-gone", Value::is_null).await;
    assert!(exists::<PersistentVolumeClaim>(&cluster, "web-kept").await);
    assert_eq!(*phases.lock().unwrap(), ["Creating", "Running", "Deleting"]);
    until_told(&cluster, "Deleting").await;
    until_told(&cluster, "Deleted").await;

    // A new Application of that name takes the volume up again, as large as it is.
    let mut spec = with_volumes();
    spec["storage"]["persistentVolumeClaims"][0]["size"] = json!("1Gi");
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    let again = api::<PersistentVolumeClaim>(&cluster).get("web-kept").await.unwrap();
    assert_eq!(again.metadata.uid, kept.metadata.uid);
    assert_eq!(again.spec, kept.spec);
    until_told(&cluster, "VolumeReused").await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_can_change_its_retention() {
    let cluster = start().await;
    create(&cluster, with_volumes()).await;
    until_phase(&cluster, "Running").await;
    let claims =
        json!([{"name": "kept", "size": "2Gi", "retention": "Delete"}, {"name": "gone", "size": "1Gi"}]);
    edit(&cluster, json!({"storage": {"persistentVolumeClaims": claims}})).await;
    let owned = |it: &Value| it["metadata"]["ownerReferences"][0]["kind"] == "Application";
    until_is::<PersistentVolumeClaim>(&cluster, "web-kept", owned).await;
    until_is::<PersistentVolumeClaim>(&cluster, "web-gone", |it| !owned(it)).await;
    delete(&cluster, DeleteParams::default()).await;
    until_is::<PersistentVolumeClaim>(&cluster, "web-kept", Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(exists::<PersistentVolumeClaim>(&cluster, "web-gone").await);
}

#[tokio::test(start_paused = true)]
async fn orphans_run_on_and_a_new_application_takes_them_up() {
    for params in [DeleteParams::default(), DeleteParams::orphan()] {
        let cluster = start().await;
        let mut spec = with_volumes();
        if params.propagation_policy.is_none() {
            spec["deletionPolicy"] = json!("Orphan");
        }
        create(&cluster, spec.clone()).await;
        until_phase(&cluster, "Running").await;
        let before = api::<Deployment>(&cluster).get("web").await.unwrap();
        let pods =
            |pods: Vec<Value>| pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>();
        let running = pods(list::<Pod>(&cluster).await);
        delete(&cluster, params).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let orphan = api::<Deployment>(&cluster).get("web").await.unwrap();
        assert_eq!(orphan.metadata.uid, before.metadata.uid);
        assert!(orphan.metadata.owner_references.unwrap_or_default().is_empty());
        assert!(
            exists::<Service>(&cluster, "web").await
                && exists::<PersistentVolumeClaim>(&cluster, "web-gone").await
        );
        create(&cluster, spec).await;
        until_phase(&cluster, "Running").await;
        let adopted = api::<Deployment>(&cluster).get("web").await.unwrap();
        assert_eq!(adopted.metadata.uid, before.metadata.uid);
        assert_eq!(adopted.metadata.owner_references.unwrap_or_default().len(), 1);
        assert_eq!(pods(list::<Pod>(&cluster).await), running, "no pod has noticed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_application_can_be_deleted_in_the_middle_of_a_rollout() {
    let cluster = start().await;
    let mut spec = with_volumes();
    spec["scaling"] = json!({"maxReplicas": 1});
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"image": "web:2", "podAnnotations": {"simulated.shoal.dev/start-delay": "1h"}}))
        .await;
    until_phase(&cluster, "Updating").await;
    delete(&cluster, DeleteParams::default()).await;
    until_no_pods(&cluster).await;
    until("no sets are left", || async {
        let left = list::<ReplicaSet>(&cluster).await.len();
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    assert!(!exists::<HorizontalPodAutoscaler>(&cluster, "web").await);
}

#[tokio::test(start_paused = true)]
async fn a_paused_application_can_be_deleted() {
    let cluster = start().await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"paused": true})).await;
    until_phase(&cluster, "Paused").await;
    delete(&cluster, DeleteParams::default()).await;
    until_no_pods(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_applications() {
    let cluster = start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let namespace = from_json(json!({"metadata": {"name": "shop"}}));
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let all: Api<Application> = Api::namespaced(cluster.client(), "shop");
    let app: Application = from_json(json!({"metadata": {"name": "web"}, "spec": with_volumes()}));
    until("the namespace takes objects", || async {
        all.create(&PostParams::default(), &app).await.map_err(|error| error.to_string())
    })
    .await;
    until("it runs", || async {
        let app = all.get("web").await.unwrap();
        let phase = app.status.and_then(|status| status.phase);
        if phase == Some(shoal_application::Phase::Running) { Ok(()) } else { Err(format!("{phase:?}")) }
    })
    .await;
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", || async {
        match namespaces.get_opt("shop").await.unwrap() {
            None => Ok(()),
            Some(namespace) => Err(format!("{:?}", namespace.status)),
        }
    })
    .await;
}
