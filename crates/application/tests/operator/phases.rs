//! Phases in their order, rollouts that fail, and what is told of it.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use shoal_application::{Application, crd};

use crate::cluster::{
    api, cluster, condition, create, edit, exists, list, operator, patch, phases, reasons, start, until,
    until_is, until_phase, until_told, web,
};

/// Pods with this annotation on simulated nodes never start, for this reason.
const WAITING: &str = "simulated.shoal.dev/waiting";
/// Pods with this annotation end with this code as soon as they have started.
const EXIT_CODE: &str = "simulated.shoal.dev/exit-code";

#[tokio::test(start_paused = true)]
async fn phases_follow_each_other_as_the_application_lives() {
    let cluster = start().await;
    let phases = phases(&cluster).await;
    let mut spec = web();
    // Long enough for every phase to be seen.
    spec["podAnnotations"] = json!({"simulated.shoal.dev/start-delay": "2s"});
    create(&cluster, spec).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!((status.ready.as_str(), status.image.as_deref()), ("2/2", Some("web:1")));
    assert_eq!(status.url.as_deref(), Some("http://web.default.svc:8080"));
    edit(&cluster, json!({"image": "web:2"})).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!(status.image.as_deref(), Some("web:2"));
    edit(&cluster, json!({"replicas": 4})).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"replicas": 0})).await;
    until_phase(&cluster, "Suspended").await;
    edit(&cluster, json!({"replicas": 1})).await;
    let app = until_is::<Application>(&cluster, "web", |app| {
        app["status"]["phase"] == "Running" && app["status"]["ready"] == "1/1"
    })
    .await;
    assert_eq!(condition(&app, "Ready")["status"], "True");
    assert_eq!(condition(&app, "Ready")["observedGeneration"], app["metadata"]["generation"]);
    let expected = [
        "Creating",
        "Running",
        "Updating",
        "Running",
        "Scaling",
        "Running",
        "Scaling",
        "Suspended",
        "Scaling",
        "Running",
    ];
    assert_eq!(*phases.lock().unwrap(), expected);
    for reason in [
        "Creating",
        "Running",
        "RolloutStarted",
        "RolloutComplete",
        "ScalingStarted",
        "ScalingComplete",
        "Suspended",
    ] {
        until_told(&cluster, reason).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_makes_no_progress_is_rolled_back_and_not_tried_again() {
    let cluster = start().await;
    let mut spec = web();
    spec["progressDeadlineSeconds"] = json!(30);
    create(&cluster, spec).await;
    let good = until_phase(&cluster, "Running").await.last_good_revision.unwrap();
    assert!(exists::<ControllerRevision>(&cluster, &format!("web-{good}")).await);
    // Pods that never start, and do not say why.
    edit(&cluster, json!({"image": "web:bad", "podAnnotations": {WAITING: "ContainerCreating"}})).await;
    let status = until_phase(&cluster, "Failed").await;
    let failed = status.failed_revision.clone().unwrap();
    assert!(status.failed_reason.unwrap().starts_with("ProgressDeadlineExceeded"));
    let live = until_is::<Deployment>(&cluster, "web", |it| {
        it["spec"]["template"]["metadata"]["labels"]["apps.example.com/revision"] == good.as_str()
            && it["status"]["updatedReplicas"] == 2
            && it["status"]["replicas"] == 2
    })
    .await;
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");
    let app = until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "2/2").await;
    for (type_, expected) in
        [("RolledBack", "True"), ("Stalled", "True"), ("Ready", "False"), ("Available", "True")]
    {
        assert_eq!(condition(&app, type_)["status"], expected, "{type_}");
    }
    until_told(&cluster, "RolledBack").await;
    let generation = live["metadata"]["generation"].clone();
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let later = until_is::<Deployment>(&cluster, "web", |it| !it.is_null()).await;
    assert_eq!(later["metadata"]["generation"], generation, "it is left alone");
    // More pods can be had all the same.
    edit(&cluster, json!({"replicas": 3})).await;
    until_is::<Application>(&cluster, "web", |app| app["status"]["ready"] == "3/3").await;
    // A specification that works recovers.
    edit(&cluster, json!({"image": "web:2", "podAnnotations": null})).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!(status.failed_revision, None);
    assert_ne!(status.last_good_revision, Some(failed));
    until_told(&cluster, "Recovered").await;
    until("only the last good template is kept", || async {
        let kept = list::<ControllerRevision>(&cluster).await.len();
        if kept == 1 { Ok(()) } else { Err(kept.to_string()) }
    })
    .await;
    let told = reasons(&cluster).await;
    assert_eq!(told.iter().filter(|reason| *reason == "RolledBack").count(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_is_rolled_back_long_before_the_deadline() {
    let cluster = start().await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    let begin = tokio::time::Instant::now();
    edit(&cluster, json!({"image": "web:bad", "podAnnotations": {EXIT_CODE: "1"}})).await;
    let status = until_phase(&cluster, "Failed").await;
    assert!(status.failed_reason.as_ref().unwrap().starts_with("CrashLoop: "), "{:?}", status.failed_reason);
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    until_is::<Deployment>(&cluster, "web", |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
            && it["status"]["updatedReplicas"] == 2
    })
    .await;
    // Back to what worked, by hand.
    edit(&cluster, json!({"image": "web:1", "podAnnotations": null})).await;
    until_phase(&cluster, "Running").await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_fails_the_first_rollout_and_a_better_one_recovers() {
    let cluster = start().await;
    let mut spec = web();
    spec["podAnnotations"] = json!({WAITING: "ErrImagePull"});
    create(&cluster, spec).await;
    let status = until_phase(&cluster, "Failed").await;
    assert!(status.failed_reason.unwrap().starts_with("ImagePullFailed: image web:1 cannot be pulled"));
    let app = until_is::<Application>(&cluster, "web", |_| true).await;
    assert_eq!(condition(&app, "Stalled")["reason"], "RolloutFailed");
    assert_eq!(condition(&app, "RolledBack"), &Value::Null, "there is nothing to go back to");
    until_told(&cluster, "RolloutFailed").await;
    edit(&cluster, json!({"podAnnotations": null})).await;
    until_phase(&cluster, "Running").await;
}

#[tokio::test(start_paused = true)]
async fn rollback_can_be_switched_off() {
    let cluster = start().await;
    let mut spec = web();
    spec["rollback"] = json!({"enabled": false});
    create(&cluster, spec).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"image": "web:bad", "podAnnotations": {EXIT_CODE: "1"}})).await;
    until_phase(&cluster, "Failed").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let live = until_is::<Deployment>(&cluster, "web", |_| true).await;
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "web:bad");
}

#[tokio::test(start_paused = true)]
async fn a_paused_application_is_left_alone_until_it_is_resumed() {
    let cluster = start().await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, json!({"paused": true, "image": "web:2"})).await;
    until_phase(&cluster, "Paused").await;
    patch::<Deployment>(&cluster, "web", json!({"spec": {"replicas": 5}})).await;
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let live = until_is::<Deployment>(&cluster, "web", |_| true).await;
    assert_eq!(live["spec"]["replicas"], 5);
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");
    edit(&cluster, json!({"paused": false})).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!((status.image.as_deref(), status.desired_replicas), (Some("web:2"), 2));
    until_told(&cluster, "Resumed").await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_unready_are_told_once_and_told_when_well() {
    let cluster = start().await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    let pods = list::<Pod>(&cluster).await;
    let name = pods[0]["metadata"]["name"].as_str().unwrap();
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let set = |status: &'static str| {
        let pods = api::<Pod>(&cluster);
        async move {
            let params = kube::api::PatchParams::default();
            pods.patch_status(name, &params, &kube::api::Patch::Strategic(ready(status))).await.unwrap();
        }
    };
    // A machine that is well puts right what others say of its pods.
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client());
    let node = pods[0]["spec"]["nodeName"].as_str().unwrap();
    let dead = |dead: Value| {
        kube::api::Patch::Merge(json!({"metadata": {"labels": {"simulated.shoal.dev/dead": dead}}}))
    };
    nodes.patch(node, &kube::api::PatchParams::default(), &dead(json!("true"))).await.unwrap();
    // Of simulated time: it passes when everyone has seen that and has nothing to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    set("False").await;
    until_told(&cluster, "Unhealthy").await;
    nodes.patch(node, &kube::api::PatchParams::default(), &dead(Value::Null)).await.unwrap();
    set("True").await;
    until_told(&cluster, "Healthy").await;
    let app =
        until_is::<Application>(&cluster, "web", |app| condition(app, "Ready")["status"] == "True").await;
    assert_eq!(app["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn specifications_from_before_a_stricter_schema_are_told_and_change_nothing() {
    let cluster = cluster().await;
    // The kind as it may have been: anything goes.
    let mut lax = crd();
    let version = &mut lax.spec.versions[0];
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    version.schema = serde_json::from_value(json!({"openAPIV3Schema": any})).unwrap();
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(cluster.client());
    let current = definitions.get("applications.apps.example.com").await.unwrap();
    lax.metadata.resource_version = current.metadata.resource_version;
    definitions.replace("applications.apps.example.com", &PostParams::default(), &lax).await.unwrap();
    let all: Api<DynamicObject> =
        Api::default_namespaced_with(cluster.client(), &ApiResource::erase::<Application>(&()));
    for (name, spec) in [
        ("unreadable", json!({"image": 7})),
        ("empty", json!({})),
        ("impossible", json!({"image": "a", "port": 80, "scaling": {"minReplicas": 5, "maxReplicas": 2}})),
    ] {
        let object = json!({"apiVersion": "apps.example.com/v1alpha1", "kind": "Application",
            "metadata": {"name": name}, "spec": spec});
        until("the kind takes anything", || async {
            let object = serde_json::from_value(object.clone()).unwrap();
            all.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
        })
        .await;
    }
    operator(&cluster, cluster.client()).await;
    for (name, words) in [
        ("unreadable", "the stored specification cannot be read"),
        ("empty", "set spec.image"),
        ("impossible", "raise maxReplicas or lower minReplicas"),
    ] {
        let (app, _) = until("it is told", || async {
            let app = serde_json::to_value(all.get(name).await.unwrap()).unwrap();
            if app["status"]["phase"] == "Failed" { Ok(app) } else { Err(app.to_string()) }
        })
        .await;
        assert_eq!(condition(&app, "Stalled")["reason"], "InvalidSpec");
        let message = condition(&app, "Stalled")["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    assert!(list::<Deployment>(&cluster).await.is_empty());
    let params = kube::api::DeleteParams::default();
    all.delete("unreadable", &params).await.unwrap();
    until("it can go", || async {
        match all.get_opt("unreadable").await.unwrap() {
            None => Ok(()),
            Some(app) => Err(format!("{app:?}")),
        }
    })
    .await;
}
