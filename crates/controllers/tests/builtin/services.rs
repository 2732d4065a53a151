//! Endpoints, EndpointSlices and PodDisruptionBudgets.

use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shoal_controllers::{deployment, disruption, endpoints, replicaset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;

use crate::cluster::{api, condition, create, patch, start, template, until, until_all};

fn of_services() -> Vec<shoal_runtime::Controller> {
    vec![
        endpoints::controller(),
        endpoints::slice_controller(Entropy::system()),
        endpoints::mirroring_controller(Entropy::system()),
    ]
}

fn pod(name: &str, image: &str) -> Value {
    let mut pod = template("web", image);
    pod["metadata"]["name"] = json!(name);
    pod
}

fn ready(slice: &Value) -> Vec<bool> {
    let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.iter().map(|endpoint| endpoint["conditions"]["ready"] == true).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_and_slices_follow_the_pods_of_a_service() {
    let client = start(of_services()).await;
    let (slices, legacy) = (api::<EndpointSlice>(&client), api::<Endpoints>(&client));
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let spec = json!({"selector": {"app": "web"}, "ports": ports});
    create::<Service>(&client, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    let none = until_all(&slices, |slices| slices.len() == 1).await;
    assert!(ready(&none[0]).is_empty(), "none is not the same as not yet");
    create::<Pod>(&client, pod("a", "run")).await;
    create::<Pod>(&client, pod("b", "run")).await;
    let two = until_all(&slices, |slices| slices.len() == 1 && ready(&slices[0]) == [true, true]).await;
    assert_eq!(two[0]["ports"][0]["port"], 8080);
    let full = |endpoints: &Value| {
        endpoints["subsets"][0]["addresses"].as_array().is_some_and(|addresses| addresses.len() == 2)
    };
    until(&legacy, "s", full).await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    api::<Pod>(&client)
        .patch_status("b", &Default::default(), &kube::api::Patch::Merge(unready))
        .await
        .unwrap();
    until_all(&slices, |slices| slices.len() == 1 && ready(&slices[0]) == [true, false]).await;
    until(&legacy, "s", |endpoints| endpoints["subsets"][0]["notReadyAddresses"][0]["ip"].is_string()).await;
    api::<Pod>(&client).delete("b", &DeleteParams::default()).await.unwrap();
    until_all(&slices, |slices| slices.len() == 1 && ready(&slices[0]) == [true]).await;
    api::<Service>(&client).delete("s", &DeleteParams::default()).await.unwrap();
    until(&legacy, "s", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_found_by_services_that_select_it_by_other_labels_and_by_ones_that_change_their_mind() {
    let client = start(of_services()).await;
    let ports = json!([{"port": 80}]);
    let services = [("wide", json!({"app": "web"})), ("narrow", json!({"app": "web", "tier": "front"}))];
    let other = ("other", json!({"app": "db"}));
    for (name, selector) in services.iter().chain([&other]) {
        let spec = json!({"selector": selector, "ports": ports});
        create::<Service>(&client, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let behind = |slices: &[Value], service: &str| {
        let of = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
        slices.iter().filter(of).map(|slice| ready(slice).len()).sum::<usize>()
    };
    let counts = |slices: &[Value]| ["wide", "narrow", "other"].map(|service| behind(slices, service));
    let slices = api::<EndpointSlice>(&client);
    create::<Pod>(&client, pod("a", "run")).await;
    let mut front = pod("b", "run");
    front["metadata"]["labels"]["tier"] = json!("front");
    create::<Pod>(&client, front).await;
    until_all(&slices, |slices| counts(slices) == [2, 1, 0]).await;
    patch(&api::<Service>(&client), "other", json!({"spec": {"selector": {"app": "web", "tier": "back"}}}))
        .await;
    patch(&api::<Pod>(&client), "a", json!({"metadata": {"labels": {"tier": "back"}}})).await;
    until_all(&slices, |slices| counts(slices) == [2, 1, 1]).await;
    patch(&api::<Pod>(&client), "b", json!({"metadata": {"labels": {"tier": null}}})).await;
    until_all(&slices, |slices| counts(slices) == [2, 0, 1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_made_by_hand_are_mirrored() {
    let client = start(of_services()).await;
    let spec = json!({"ports": [{"port": 5432}]});
    create::<Service>(&client, json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let subset = json!({"addresses": [{"ip": "192.168.0.7"}], "ports": [{"port": 5432}]});
    create::<Endpoints>(&client, json!({"metadata": {"name": "db"}, "subsets": [subset]})).await;
    let slices = api::<EndpointSlice>(&client);
    let mirrored = until_all(&slices, |slices| slices.len() == 1).await;
    assert_eq!(mirrored[0]["endpoints"][0]["addresses"], json!(["192.168.0.7"]));
    let moved = json!({"subsets": [{"addresses": [{"ip": "192.168.0.8"}], "ports": [{"port": 5432}]}]});
    patch(&api::<Endpoints>(&client), "db", moved).await;
    let followed =
        |slices: &[Value]| slices.len() == 1 && slices[0]["endpoints"][0]["addresses"][0] == "192.168.0.8";
    until_all(&slices, followed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_knows_how_many_pods_may_go() {
    let (clock, entropy) = (Clock::system(), Entropy::system());
    let client = start(vec![
        deployment::controller(clock.clone()),
        replicaset::controller(clock.clone(), entropy),
        disruption::controller(clock),
    ])
    .await;
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "run")});
    let web = json!({"metadata": {"name": "web"}, "spec": spec});
    create::<k8s_openapi::api::apps::v1::Deployment>(&client, web).await;
    let spec = json!({"minAvailable": "60%", "selector": {"matchLabels": {"app": "web"}}});
    create::<PodDisruptionBudget>(&client, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    let budgets = api::<PodDisruptionBudget>(&client);
    let told = until(&budgets, "b", |budget| budget["status"]["currentHealthy"] == 3).await;
    let told = if told["status"]["disruptionsAllowed"] == 1 {
        told
    } else {
        until(&budgets, "b", |budget| budget["status"]["disruptionsAllowed"] == 1).await
    };
    assert_eq!((&told["status"]["desiredHealthy"], &told["status"]["expectedPods"]), (&json!(2), &json!(3)));
    patch(&budgets, "b", json!({"spec": {"minAvailable": 3}})).await;
    let strict = until(&budgets, "b", |budget| budget["status"]["observedGeneration"] == 2).await;
    assert_eq!(strict["status"]["disruptionsAllowed"], 0);
    assert_eq!(condition(&strict, "DisruptionAllowed")["reason"], "InsufficientPods");
    // Events are told under the names that people know from kube-controller-manager.
    let none = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "none"}}});
    create::<PodDisruptionBudget>(&client, json!({"metadata": {"name": "none"}, "spec": none})).await;
    let is_it = |event: &Value| event["involvedObject"]["name"] == "none" && event["reason"] == "NoPods";
    let events = until_all(&api::<Event>(&client), |events| events.iter().any(is_it)).await;
    let told = events.iter().find(|event| is_it(event)).unwrap();
    assert_eq!(told["source"]["component"], "controllermanager");
}
