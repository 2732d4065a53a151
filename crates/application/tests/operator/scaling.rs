//! Replicas that belong to the autoscaler, and back.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use shoal_application::Application;
use shoal_testkit::Cluster;

use crate::cluster::{
    api, cluster, condition, create, edit, list, operator, patch, record, start, until, until_is,
    until_phase, until_told, web,
};

fn scaled() -> Value {
    let mut spec = web();
    spec["resources"] = json!({"requests": {"cpu": "500m"}});
    spec["scaling"] = json!({"minReplicas": 2, "maxReplicas": 6, "targetCPUUtilizationPercentage": 50});
    spec
}

#[tokio::test(start_paused = true)]
async fn replicas_go_to_the_autoscaler_and_come_back_without_a_fall() {
    let cluster = start().await;
    let counts = record::<Deployment>(&cluster, "/spec/replicas").await;
    let mut spec = scaled();
    spec["replicas"] = json!(4);
    spec["scaling"] = json!(null);
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"scaling": {"minReplicas": 2, "maxReplicas": 6}})).await;
    until_is::<Deployment>(&cluster, "web", |it| {
        it["metadata"]["annotations"]["apps.example.com/replicas-from"] == "autoscaler"
    })
    .await;
    until_is::<HorizontalPodAutoscaler>(&cluster, "web", |it| !it.is_null()).await;
    // Somebody scales, as the autoscaler does: the operator leaves it.
    patch::<Deployment>(&cluster, "web", json!({"spec": {"replicas": 5}})).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "5/5").await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(until_phase(&cluster, "Running").await.scaling.as_deref(), Some("2-6"));
    edit(&cluster, json!({"scaling": null})).await;
    until_is::<HorizontalPodAutoscaler>(&cluster, "web", Value::is_null).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "4/4").await;
    assert_eq!(*counts.lock().unwrap(), [4, 5, 4], "never one");
    until_told(&cluster, "Deleted").await;
}

#[tokio::test(start_paused = true)]
async fn the_first_number_lies_within_the_bounds_and_a_suspended_application_comes_back() {
    let cluster = start().await;
    let counts = record::<Deployment>(&cluster, "/spec/replicas").await;
    let mut spec = scaled();
    spec["replicas"] = json!(1);
    create(&cluster, spec).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "2/2").await;
    edit(&cluster, json!({"replicas": 0})).await;
    until_phase(&cluster, "Suspended").await;
    until_is::<HorizontalPodAutoscaler>(&cluster, "web", Value::is_null).await;
    edit(&cluster, json!({"replicas": 3})).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "3/3").await;
    until_is::<HorizontalPodAutoscaler>(&cluster, "web", |it| !it.is_null()).await;
    assert_eq!(*counts.lock().unwrap(), [2, 0, 3]);
}

/// Serves the resource metrics API with custom objects: each pod uses one core.
async fn measure(cluster: &Cluster) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "pods", "kind": "PodMetrics"}}
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let metrics: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &resource);
    for pod in list::<Pod>(cluster).await {
        let metric = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": pod["metadata"]["name"], "labels": pod["metadata"]["labels"]},
            "timestamp": "2099-01-01T00:00:00Z", "window": "15s",
            "containers": [{"name": "web", "usage": {"cpu": "1", "memory": "1Mi"}}]
        });
        until("the metrics API is served", || async {
            let metric = serde_json::from_value(metric.clone()).unwrap();
            metrics.create(&PostParams::default(), &metric).await.map_err(|error| error.to_string())
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn load_scales_the_application_and_is_shown_in_its_metrics() {
    let cluster = cluster().await;
    let operator = operator(&cluster, cluster.client()).await;
    create(&cluster, scaled()).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "2/2").await;
    let app = until_is::<Application>(&cluster, "web", |app| {
        condition(app, "AutoscalerReady")["status"] == "False"
    })
    .await;
    assert!(
        condition(&app, "AutoscalerReady")["message"]
            .as_str()
            .unwrap()
            .starts_with("FailedGetResourceMetric")
    );
    assert_eq!(condition(&app, "Ready")["status"], "True", "without metrics it runs all the same");
    measure(&cluster).await;
    until_is::<Application>(&cluster, "web", |app| {
        app["status"]["ready"] == "6/6" && app["status"]["phase"] == "Running"
    })
    .await;
    until_told(&cluster, "ScalingStarted").await;
    until_told(&cluster, "ScalingComplete").await;
    assert_eq!(
        api::<Application>(&cluster).get("web").await.unwrap().spec.replicas,
        2,
        "the specification is the user's"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let text = operator.metrics.text();
    for line in [
        "applications_total{phase=\"Running\"} 1",
        "application_resource_usage_cpu{namespace=\"default\",application=\"web\"} 2",
        "application_resource_usage_memory{namespace=\"default\",application=\"web\"} 2097152",
        "application_rollouts_total{outcome=\"complete\"} 1",
        "application_children_applied_total{kind=\"HorizontalPodAutoscaler\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing from\n{text}");
    }
    assert!(text.contains("application_reconcile_duration_seconds_count"));
}
