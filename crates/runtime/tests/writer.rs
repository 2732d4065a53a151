//! Writing against a real API server: what is sent, what is not, and what a stale writer cannot do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_objects::clock::Clock;
use shoal_runtime::events::Severity;
use shoal_runtime::reconcile::Class;
use shoal_runtime::{Action, Applied, Fence, ObjectKey, Permit, Recorder, Writer, finalizer};
use shoal_testkit::Cluster;

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        ..ConfigMap::default()
    }
}

fn from(value: Value) -> Deployment {
    serde_json::from_value(value).unwrap()
}

fn web(replicas: i32) -> Deployment {
    from(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1", "resources": {"limits": {"cpu": "1000m"}}}]}
            }
        }
    }))
}

fn written<T>(applied: Applied<T>) -> T {
    match applied {
        Applied::Written(object) => *object,
        Applied::InEffect => panic!("nothing was sent"),
    }
}

#[tokio::test]
async fn an_apply_that_is_in_effect_is_not_sent() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let first = written(writer.apply(&web(1), None).await.unwrap());
    assert_eq!(writer.apply(&web(1), Some(&first)).await.unwrap(), Applied::InEffect);
    // A change that is none of ours leaves it in effect.
    let patch = json!({"metadata": {"annotations": {"someone": "else"}}, "spec": {"minReadySeconds": 3}});
    let edited = deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let again = writer.apply(&web(1), Some(&edited)).await.unwrap();
    // Quantities are normalised by the server, so this may be sent; it must not change the object.
    if let Applied::Written(now) = again {
        assert_eq!(now.metadata.resource_version, edited.metadata.resource_version);
    }
    let drifted = deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 7}})))
        .await
        .unwrap();
    let mended = written(writer.apply(&web(1), Some(&drifted)).await.unwrap());
    assert_eq!(mended.spec.unwrap().replicas, Some(1));
}

#[tokio::test]
async fn a_field_left_out_of_the_next_apply_is_removed() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let first = written(writer.apply(&map("a", &[("x", "1"), ("y", "2")]), None).await.unwrap());
    let second = written(writer.apply(&map("a", &[("x", "1")]), Some(&first)).await.unwrap());
    assert_eq!(second.data.unwrap(), BTreeMap::from([("x".to_owned(), "1".to_owned())]));
}

#[tokio::test]
async fn only_the_status_is_written_by_apply_status() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let mut web = written(writer.apply(&web(1), None).await.unwrap());
    web.spec.as_mut().unwrap().replicas = Some(9);
    web.status = serde_json::from_value(json!({"replicas": 1, "observedGeneration": 1})).unwrap();
    let now = written(writer.apply_status(&web, None).await.unwrap());
    assert_eq!(now.spec.as_ref().unwrap().replicas, Some(1));
    assert_eq!(now.status.as_ref().unwrap().replicas, Some(1));
    assert_eq!(writer.apply_status(&web, Some(&now)).await.unwrap(), Applied::InEffect);
}

#[tokio::test]
async fn a_conflict_is_read_again_and_repeated() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let stale = writer.create(&map("a", &[])).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"other": "1"}}))).await.unwrap();
    let key = ObjectKey::new("default", "a");
    let set = |object: &mut ConfigMap| {
        object.data.get_or_insert_default().insert("mine".to_owned(), "2".to_owned());
    };
    let now = writer.modify(&key, Some(&stale), set).await.unwrap().unwrap();
    assert_eq!(now.data.as_ref().unwrap().len(), 2);
    let same = writer.modify(&key, Some(&now), set).await.unwrap().unwrap();
    assert_eq!(
        same.metadata.resource_version, now.metadata.resource_version,
        "nothing to change, nothing sent"
    );
    assert_eq!(writer.modify(&ObjectKey::new("default", "none"), None, set).await.unwrap(), None);
}

#[tokio::test]
async fn delete_spares_a_new_object_of_the_same_name() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let old = writer.create(&map("a", &[])).await.unwrap();
    assert!(writer.delete(&old).await.unwrap());
    assert!(!writer.delete(&old).await.unwrap());
    writer.create(&map("a", &[])).await.unwrap();
    assert!(!writer.delete(&old).await.unwrap());
    assert!(writer.get::<ConfigMap>(&ObjectKey::new("default", "a")).await.unwrap().is_some());
}

#[tokio::test]
async fn only_our_own_children_are_pruned() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let parent = written(writer.apply(&web(1), None).await.unwrap());
    let keep = written(writer.apply_child(&parent, &map("keep", &[]), None).await.unwrap());
    let drop = written(writer.apply_child(&parent, &map("drop", &[]), None).await.unwrap());
    let foreign = writer.create(&map("foreign", &[])).await.unwrap();
    let present = [keep.clone(), drop, foreign].map(Arc::new);
    let deleted = writer.prune(&parent, present, [ObjectKey::of(&keep)]).await.unwrap();
    assert_eq!(deleted, 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    assert!(maps.get_opt("drop").await.unwrap().is_none());
    assert!(maps.get_opt("keep").await.unwrap().is_some());
    assert!(maps.get_opt("foreign").await.unwrap().is_some());
}

#[tokio::test]
async fn a_fenced_writer_sends_nothing_once_its_permit_is_gone() {
    let cluster = Cluster::start().await;
    let owned = Arc::new(AtomicBool::new(true));
    let fence = Fence::new({
        let owned = owned.clone();
        move || {
            let permit = Permit { slot: 1, epoch: 3, remaining: Duration::from_secs(5) };
            owned.load(Ordering::Relaxed).then_some(permit)
        }
    });
    let writer = Writer::new(cluster.client(), "test").fenced(fence);
    let first = written(writer.apply(&map("a", &[("x", "1")]), None).await.unwrap());
    let mut unnamed = map("a", &[]);
    unnamed.metadata.name = None;
    unnamed.metadata.generate_name = Some("a-".to_owned());
    assert_eq!(writer.create(&unnamed).await.unwrap_err().class, Class::Permanent);

    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"y": "2"}}))).await.unwrap();
    let late = writer.apply(&map("a", &[("x", "3")]), Some(&first)).await.unwrap_err();
    assert_eq!(late.class, Class::Transient, "what was read is not what is there: {late}");

    owned.store(false, Ordering::Relaxed);
    let before = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version;
    assert!(writer.apply(&map("a", &[("x", "9")]), None).await.is_err());
    assert!(writer.create(&map("b", &[])).await.is_err());
    assert!(writer.delete(&first).await.is_err());
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().metadata.resource_version, before);
}

#[tokio::test]
async fn errors_name_the_action_and_the_object() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let error = writer.apply(&map("Not A Name", &[]), None).await.unwrap_err();
    assert_eq!(error.class, Class::Permanent);
    assert!(error.to_string().starts_with("cannot apply ConfigMap default/Not A Name: "), "{error}");
}

#[tokio::test]
async fn clean_up_runs_before_the_object_goes() {
    let cluster = Cluster::start().await;
    let writer = Writer::new(cluster.client(), "test");
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let name = "example.com/clean-up";
    let object = maps.create(&PostParams::default(), &map("a", &[])).await.unwrap();
    let run = async |object: &ConfigMap, cleaned: &AtomicBool| {
        finalizer::finalize(
            &writer,
            object,
            name,
            async |object: ConfigMap| {
                assert_eq!(object.metadata.finalizers.as_deref(), Some(&[name.to_owned()][..]));
                Ok(Action::done())
            },
            async |_| {
                cleaned.store(true, Ordering::Relaxed);
                Ok(())
            },
        )
        .await
        .unwrap()
    };
    let cleaned = AtomicBool::new(false);
    run(&object, &cleaned).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    // The cache may still show the object without its finalizer and alive.
    run(&object, &cleaned).await;
    assert!(!cleaned.load(Ordering::Relaxed));
    let dying = maps.get("a").await.unwrap();
    run(&dying, &cleaned).await;
    assert!(cleaned.load(Ordering::Relaxed));
    assert!(maps.get_opt("a").await.unwrap().is_none());
    finalizer::remove(&writer, &dying, name).await.unwrap();
    assert!(finalizer::ensure(&writer, &dying, "unqualified").await.is_err());
}

#[tokio::test]
async fn a_repeated_event_is_one_event_with_a_count() {
    let cluster = Cluster::start().await;
    let (recorder, sender) = Recorder::new(cluster.client(), "tester", "tester-0", Clock::system());
    tokio::spawn(sender);
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}})).unwrap();
    for _ in 0..3 {
        recorder.warning(&pod, "Failed", "it does not work");
    }
    recorder.normal(&pod, "Tried", "once");
    recorder.flush().await;
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let found = events.list(&ListParams::default().fields("involvedObject.name=p")).await.unwrap();
    let mut counts: Vec<_> =
        found.items.iter().map(|event| (event.reason.clone().unwrap(), event.count)).collect();
    counts.sort();
    assert_eq!(counts, [("Failed".to_owned(), Some(3)), ("Tried".to_owned(), Some(1))]);
    // An Event that has expired is told anew.
    events.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    recorder.warning(&pod, "Failed", "it does not work");
    recorder.flush().await;
    assert_eq!(events.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(recorder.dropped(), 0);
}

#[tokio::test]
async fn events_are_listed_in_the_order_in_which_they_happened() {
    let cluster = Cluster::start().await;
    let (recorder, sender) = Recorder::new(cluster.client(), "tester", "tester-0", Clock::system());
    tokio::spawn(sender);
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}})).unwrap();
    let chosen = Clock::system().now();
    recorder.normal(&pod, "Started", "it runs");
    recorder.record_at(chosen, pod.object_ref(&()), Severity::Normal, "Scheduled", "it has a place");
    recorder.flush().await;
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let found = events.list(&ListParams::default()).await.unwrap();
    let reasons: Vec<_> = found.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, ["Scheduled", "Started"]);
}
