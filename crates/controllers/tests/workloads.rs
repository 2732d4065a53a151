//! Deployments and ReplicaSets on a whole API server, with a node that only says that pods run.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_controllers::{deployment, replicaset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::{Action, Context, Controller, Manager, Result};
use shoal_testkit::{Cluster, eventually};

async fn start() -> Cluster {
    let cluster = Cluster::start().await;
    // Without the account that pods run as, none is admitted.
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let mut manager =
        Manager::builder("controllers").client(cluster.client()).embedded().build().await.unwrap();
    manager.add(deployment::controller(Clock::system()));
    manager.add(replicaset::controller(Clock::system(), Entropy::system()));
    manager.add(Controller::of::<Pod>("kubelet").reconcile(run_pod));
    tokio::spawn(manager.run());
    cluster
}

/// Plays the node: every pod runs unless its image is bad, and one that is deleted ends at once.
async fn run_pod(context: Context<Pod>) -> Result<Action> {
    let Some(pod) = context.object() else { return Ok(Action::done()) };
    let pods: Api<Pod> = Api::namespaced(context.client().clone(), &context.key().namespace);
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&context.key().name, &DeleteParams::default().grace_period(0)).await;
        return Ok(Action::done());
    }
    let image = pod.spec.as_ref().unwrap().containers[0].image.clone();
    let ready = if image.as_deref() == Some("bad") { "False" } else { "True" };
    let time = "2024-01-01T00:00:00Z";
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": time}]}});
    pods.patch_status(&context.key().name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(Action::done())
}

fn web(replicas: i32, strategy: Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "strategy": strategy, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "1"}]}}
        }
    }))
    .unwrap()
}

/// Waits until it is so.
async fn until<F: Future<Output = bool>>(mut check: impl FnMut() -> F) {
    eventually("the controllers are done", || {
        let check = check();
        async { check.await.then_some(()) }
    })
    .await;
}

async fn images(pods: &Api<Pod>) -> Vec<String> {
    let pods = pods.list(&ListParams::default()).await.unwrap();
    let mut images: Vec<String> = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.spec?.containers.into_iter().next()?.image)
        .collect();
    images.sort();
    images
}

async fn set_image(deployments: &Api<Deployment>, image: &str) {
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_rolls_out_changes_and_goes_back() {
    let cluster = start().await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    deployments.create(&PostParams::default(), &web(3, json!({}))).await.unwrap();
    until(|| async {
        {
            let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
            status.available_replicas == Some(3) && status.updated_replicas == Some(3)
        }
    })
    .await;
    set_image(&deployments, "2").await;
    until(|| async { images(&pods).await == ["2", "2", "2"] }).await;
    set_image(&deployments, "1").await;
    until(|| async { images(&pods).await == ["1", "1", "1"] }).await;
    until(|| async {
        {
            let annotations = deployments.get("web").await.unwrap().metadata.annotations.unwrap();
            annotations["deployment.kubernetes.io/revision"] == "3"
        }
    })
    .await;
    assert_eq!(
        sets.list(&ListParams::default()).await.unwrap().items.len(),
        2,
        "the old template was used again"
    );
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    until(|| async {
        {
            let events = events.list(&ListParams::default()).await.unwrap();
            events.iter().any(|event| event.reason.as_deref() == Some("ScalingReplicaSet"))
                && events.iter().any(|event| event.reason.as_deref() == Some("SuccessfulCreate"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_image_stops_the_rollout_with_most_pods_serving() {
    let cluster = start().await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    deployments.create(&PostParams::default(), &web(3, strategy)).await.unwrap();
    until(|| async { images(&pods).await.len() == 3 }).await;
    set_image(&deployments, "bad").await;
    until(|| async { images(&pods).await == ["1", "1", "1", "bad"] }).await;
    set_image(&deployments, "1").await;
    until(|| async { images(&pods).await == ["1", "1", "1"] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_as_many_pods_as_asked_for_are_made_whatever_the_haste() {
    let cluster = start().await;
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "many"},
        "spec": {"replicas": 40, "selector": {"matchLabels": {"app": "many"}},
            "template": {"metadata": {"labels": {"app": "many"}}, "spec": {"containers": [{"name": "c", "image": "1"}]}}}
    }))
    .unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    for note in 0..30 {
        // Every change of the set is a reason to look again, while the cache is behind.
        let patch = json!({"metadata": {"annotations": {"note": note.to_string()}}});
        sets.patch("many", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    until(|| async {
        sets.get("many").await.unwrap().status.is_some_and(|status| status.available_replicas == Some(40))
    })
    .await;
    let created: Api<Event> = Api::default_namespaced(cluster.client());
    until(|| async { !created.list(&ListParams::default()).await.unwrap().items.is_empty() }).await;
    let all = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 40, "none was made and deleted again");
    tokio::time::timeout(Duration::from_secs(30), async {
        sets.patch("many", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}})))
            .await
            .unwrap();
        until(|| async { images(&pods).await.len() == 3 }).await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_adopts_orphans_and_releases_what_matches_no_more() {
    let cluster = start().await;
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let orphan: Pod = serde_json::from_value(json!({
        "metadata": {"name": "orphan", "labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "1"}]}
    }))
    .unwrap();
    pods.create(&PostParams::default(), &orphan).await.unwrap();
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "r"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "r"}},
            "template": {"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "1"}]}}}
    }))
    .unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    until(|| async { images(&pods).await.len() == 2 }).await;
    until(|| async { pods.get("orphan").await.unwrap().metadata.owner_references.is_some() }).await;
    let patch = json!({"metadata": {"labels": {"app": "quarantine"}}});
    pods.patch("orphan", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until(|| async { pods.get("orphan").await.unwrap().metadata.owner_references.is_none() }).await;
    until(|| async { images(&pods).await.len() == 3 }).await;
}
