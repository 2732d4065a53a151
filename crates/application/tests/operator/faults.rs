//! An operator that dies at every write, that is cut off, and that is given no rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shoal_application::Application;
use shoal_objects::Entropy;
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};

use crate::cluster::{
    api, cluster, create, edit, exists, list, operator, start, until, until_is, until_phase, web,
};

fn first() -> Value {
    json!({
        "image": "web:1", "port": 8080, "replicas": 2,
        "resources": {"requests": {"cpu": "100m"}},
        "configFiles": [{"path": "/etc/web/conf", "content": "a=1"}],
        "storage": {"persistentVolumeClaims": [{"name": "data", "size": "1Gi", "accessModes": ["ReadWriteMany"]}]},
    })
}

/// A rollout, a hand-over to the autoscaler and other files, all at once.
fn second() -> Value {
    json!({"image": "web:2", "scaling": {"minReplicas": 2, "maxReplicas": 4},
        "configFiles": [{"path": "/etc/web/conf", "content": "a=2"}]})
}

/// What must be the same however often the operator has died: everything but what is drawn or counted.
async fn state(cluster: &Cluster) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    let mut add = |objects: Vec<Value>| {
        for object in objects {
            let key = format!("{} {}", object["kind"], object["metadata"]["name"]);
            let mut spec = object["spec"].clone();
            if let Some(fields) = spec.as_object_mut() {
                for drawn in ["clusterIP", "clusterIPs", "volumeName"] {
                    fields.remove(drawn);
                }
            }
            let (data, labels) = (object["data"].clone(), object["metadata"]["labels"].clone());
            state.insert(key, json!({"spec": spec, "data": data, "labels": labels}));
        }
    };
    let ours = |objects: Vec<Value>| {
        objects.into_iter().filter(|object| object["metadata"]["labels"]["app"] == "web").collect::<Vec<_>>()
    };
    add(ours(list::<Deployment>(cluster).await));
    add(ours(list::<Service>(cluster).await));
    add(ours(list::<HorizontalPodAutoscaler>(cluster).await));
    add(ours(list::<PersistentVolumeClaim>(cluster).await));
    add(ours(list::<ConfigMap>(cluster).await));
    add(ours(list::<ControllerRevision>(cluster).await));
    let app = api::<Application>(cluster).get("web").await.unwrap();
    let mut status = serde_json::to_value(app.status).unwrap();
    status.as_object_mut().unwrap().remove("conditions");
    state.insert("Application web".to_owned(), status);
    let sets = list::<ReplicaSet>(cluster).await.len();
    state.insert("counts".to_owned(), json!({"pods": list::<Pod>(cluster).await.len(), "replicaSets": sets}));
    state
}

/// Waits until `web` runs as `second` says, and the rest has come to rest.
async fn settled(cluster: &Cluster) -> BTreeMap<String, Value> {
    until_is::<Application>(cluster, "web", |app| {
        app["status"]["phase"] == "Running"
            && app["status"]["observedGeneration"] == app["metadata"]["generation"]
            && app["status"]["image"] == "web:2"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    state(cluster).await
}

/// A life with an edit in its middle, during which the operator dies at write number `death`: as it is sent, or when it was done but
/// not yet answered. Gives the end, and how many writes there were.
async fn life(death: usize, done: bool) -> (BTreeMap<String, Value>, usize) {
    let cluster = cluster().await;
    let (faults, count) = (FaultLayer::new(1), Arc::new(AtomicUsize::new(0)));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let is_write = |parts: &http::request::Parts| {
        parts.method != http::Method::GET
            && !parts.uri.path().ends_with("/events")
            && !parts.uri.path().contains("/events/")
    };
    let counted = count.clone();
    let last = move |parts: &http::request::Parts| {
        let hit = is_write(parts) && counted.fetch_add(1, Ordering::Relaxed) == death;
        if hit {
            let _ = tell.send(());
        }
        hit
    };
    faults.add(Rule::on(last, if done { Effect::DropAfter } else { Effect::DropBefore }));
    let passed = count.clone();
    // Rules are asked in their order: a write after the last one finds the count above it.
    faults.add(Rule::on(move |_| passed.load(Ordering::Relaxed) > death + 1, Effect::DropBefore));
    let dying = operator(&cluster, cluster.client_through(&faults)).await;
    let second_life = async {
        let _ = told.recv().await;
        // Whatever it was about to do, it does not do.
        dying.running.abort();
        faults.disconnect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        operator(&cluster, cluster.client()).await;
        std::future::pending::<()>().await;
    };
    let world = async {
        create(&cluster, first()).await;
        until_phase(&cluster, "Running").await;
        edit(&cluster, second()).await;
        settled(&cluster).await
    };
    tokio::select! {
        biased;
        () = second_life => unreachable!(),
        state = world => (state, count.load(Ordering::Relaxed)),
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_write_leaves_the_same_in_the_end() {
    let (expected, writes) = life(usize::MAX - 2, true).await;
    assert!((15..80).contains(&writes), "{writes}");
    assert_eq!(expected["counts"], json!({"pods": 2, "replicaSets": 2}));
    // Death before a write is sent is, for all who stay, death after the one before it was done.
    let deaths = std::iter::once((0, false)).chain((0..writes).map(|death| (death, true)));
    for (death, done) in deaths {
        let (state, _) = life(death, done).await;
        for (key, value) in &expected {
            assert_eq!(state.get(key), Some(value), "{key}, after death at write {death} (done: {done})");
        }
        assert_eq!(state.len(), expected.len(), "{:?}", state.keys());
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_nothing_is_lost_and_nothing_deleted() {
    let cluster = cluster().await;
    let faults = FaultLayer::new(1);
    operator(&cluster, cluster.client_through(&faults)).await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    for effect in [Effect::DropBefore, Effect::answer(500), Effect::answer(503), Effect::answer(404)] {
        let uid = api::<Deployment>(&cluster).get("web").await.unwrap().metadata.uid;
        faults.add(Rule::all(effect.clone()));
        faults.disconnect();
        let image = format!(
            "web:{}",
            api::<Application>(&cluster).get("web").await.unwrap().metadata.generation.unwrap()
        );
        edit(&cluster, json!({"image": image})).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let live = api::<Deployment>(&cluster).get("web").await.unwrap();
        assert_eq!(
            live.metadata.uid, uid,
            "{effect:?}: only a deletion that the server tells of starts clean-up"
        );
        faults.clear();
        let status = until_phase(&cluster, "Running").await;
        assert_eq!(status.image, Some(image), "{effect:?}");
        assert_eq!(api::<Deployment>(&cluster).get("web").await.unwrap().metadata.uid, uid);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_fail_now_and_then_are_made_up_for() {
    let cluster = cluster().await;
    let faults = FaultLayer::new(7);
    for effect in [Effect::DropBefore, Effect::DropAfter, Effect::answer(500), Effect::answer(409)] {
        faults.add(Rule::writes(effect).percent(10));
    }
    faults.add(Rule::watches(Effect::CutWithin(20_000)).percent(30));
    operator(&cluster, cluster.client_through(&faults)).await;
    create(&cluster, first()).await;
    until_phase(&cluster, "Running").await;
    edit(&cluster, second()).await;
    let state = settled(&cluster).await;
    assert_eq!(state["counts"], json!({"pods": 2, "replicaSets": 2}));
    api::<Application>(&cluster).delete("web", &DeleteParams::default()).await.unwrap();
    until_is::<Application>(&cluster, "web", Value::is_null).await;
    until("all is gone", || async {
        match exists::<Deployment>(&cluster, "web").await || exists::<Service>(&cluster, "web").await {
            true => Err(String::new()),
            false => Ok(()),
        }
    })
    .await;
    assert!(exists::<PersistentVolumeClaim>(&cluster, "web-data").await);
}

#[tokio::test(start_paused = true)]
async fn after_64_edits_in_a_row_things_are_as_the_last_says() {
    let cluster = start().await;
    let mut spec = web();
    spec["resources"] = json!({"requests": {"cpu": "100m"}});
    create(&cluster, spec).await;
    let entropy = Entropy::seeded(9);
    for step in 0..64_u64 {
        let scaling = match entropy.below(3) {
            0 => json!({"minReplicas": 1 + entropy.below(2), "maxReplicas": 3 + entropy.below(3)}),
            _ => Value::Null,
        };
        let port = if entropy.below(4) == 0 { Value::Null } else { json!(8000 + entropy.below(3)) };
        let budget = if entropy.below(2) == 0 { Value::Null } else { json!({"maxUnavailable": 1}) };
        edit(
            &cluster,
            json!({
                "image": format!("web:{}", entropy.below(5)),
                "replicas": 1 + entropy.below(4),
                "scaling": scaling,
                "port": port,
                "podDisruptionBudget": budget,
                "environment": [{"name": "STEP", "value": step.to_string()}],
                "paused": entropy.below(8) == 0,
            }),
        )
        .await;
        // From no time at all to enough for a rollout.
        tokio::time::sleep(Duration::from_millis(entropy.below(400))).await;
    }
    let last = edit(
        &cluster,
        json!({"paused": false, "scaling": null, "replicas": 3, "image": "web:end", "port": 8080}),
    )
    .await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!((status.image.as_deref(), status.ready.as_str()), (Some("web:end"), "3/3"));
    assert!(!exists::<HorizontalPodAutoscaler>(&cluster, "web").await);
    let live = api::<Deployment>(&cluster).get("web").await.unwrap();
    let (template, _) = shoal_application::build::template(&last);
    let have = serde_json::to_value(live.spec.unwrap().template).unwrap();
    let want = serde_json::to_value(template).unwrap();
    assert_eq!(have["metadata"]["labels"], want["metadata"]["labels"]);
    assert_eq!(have["spec"]["containers"][0]["env"], want["spec"]["containers"][0]["env"]);
    let service = until_is::<Service>(&cluster, "web", |it| it["spec"]["ports"][0]["port"] == 8080).await;
    assert_eq!(service["spec"]["selector"]["app"], "web");
    until("only the pods that are wanted are left", || async {
        let pods = list::<Pod>(&cluster).await.len();
        if pods == 3 { Ok(()) } else { Err(pods.to_string()) }
    })
    .await;
}
