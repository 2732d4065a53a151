//! HorizontalPodAutoscalers, with metrics that are custom objects here.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use shoal_controllers::{autoscaler, deployment, replicaset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_testkit::eventually;

use crate::cluster::{api, condition, create, start, template, until, until_all, until_told};

async fn start_web() -> Client {
    let (clock, entropy) = (Clock::system(), Entropy::system());
    let client = start(vec![
        deployment::controller(clock.clone()),
        replicaset::controller(clock.clone(), entropy),
        autoscaler::controller(clock, autoscaler::Options::default()),
    ])
    .await;
    let mut made_of = template("web", "run");
    made_of["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": made_of});
    create::<Deployment>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    until(&api::<Deployment>(&client), "web", |web| web["status"]["availableReplicas"] == 2).await;
    client
}

async fn autoscale(client: &Client) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": [cpu]});
    create::<HorizontalPodAutoscaler>(client, json!({"metadata": {"name": "h"}, "spec": spec})).await;
}

/// Serves the resource metrics API: each pod uses one core.
async fn measure(client: &Client, pods: &[Value]) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "pods", "kind": "PodMetrics"}}
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let metrics: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    for pod in pods {
        let metric = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": pod["metadata"]["name"], "labels": pod["metadata"]["labels"]},
            "timestamp": "2099-01-01T00:00:00Z", "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": "1", "memory": "1Mi"}}]
        });
        eventually("the metrics API is served", || async {
            let metric = serde_json::from_value(metric.clone()).unwrap();
            metrics.create(&PostParams::default(), &metric).await.ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_metrics_nothing_is_scaled_and_the_conditions_say_why() {
    let client = start_web().await;
    autoscale(&client).await;
    let all = api::<HorizontalPodAutoscaler>(&client);
    let told = until(&all, "h", |h| condition(h, "ScalingActive")["status"] == "False").await;
    assert_eq!(condition(&told, "AbleToScale")["reason"], "SucceededGetScale");
    assert_eq!(condition(&told, "ScalingActive")["reason"], "FailedGetResourceMetric");
    assert_eq!(told["status"]["currentReplicas"], 2);
    assert_eq!(told["status"]["desiredReplicas"], 0);
    until_told(&client, "FailedGetResourceMetric", "get pods.metrics.k8s.io").await;
    assert_eq!(api::<Deployment>(&client).get("web").await.unwrap().spec.unwrap().replicas, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn load_above_the_target_scales_up_to_the_maximum() {
    let client = start_web().await;
    let pods = until_all(&api::<Pod>(&client), |pods| pods.len() == 2).await;
    measure(&client, &pods).await;
    autoscale(&client).await;
    until(&api::<Deployment>(&client), "web", |web| web["spec"]["replicas"] == 5).await;
    let all = api::<HorizontalPodAutoscaler>(&client);
    let told = until(&all, "h", |h| h["status"]["desiredReplicas"] == 5).await;
    assert_eq!(condition(&told, "AbleToScale")["reason"], "SucceededRescale");
    assert_eq!(condition(&told, "ScalingActive")["reason"], "ValidMetricFound");
    assert_eq!(condition(&told, "ScalingLimited")["reason"], "TooManyReplicas");
    assert_eq!(told["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 200);
    until_told(&client, "SuccessfulRescale", "New size: 5; reason: cpu resource utilization").await;
    until_all(&api::<Pod>(&client), |pods| pods.len() == 5).await;
}
