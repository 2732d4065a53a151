//! Whole controllers against a whole API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use shoal_runtime::gate::{Admission, Gate};
use shoal_runtime::manager::Stopper;
use shoal_runtime::trigger::generation_changed;
use shoal_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, ResourceHandler, Result};
use shoal_testkit::{Cluster, eventually};
use tokio::task::JoinHandle;

/// What reconcilers did, in order.
type Log = Arc<Mutex<Vec<String>>>;

struct Running {
    stopper: Stopper,
    manager: JoinHandle<Result<(), shoal_runtime::manager::Error>>,
}

impl Running {
    async fn stop(self) {
        self.stopper.stop();
        self.manager.await.unwrap().unwrap();
    }
}

async fn run(cluster: &Cluster, controller: Controller) -> Running {
    let mut manager = Manager::builder("test").client(cluster.client()).embedded().build().await.unwrap();
    manager.add(controller);
    let stopper = manager.stopper();
    Running { stopper, manager: tokio::spawn(manager.run()) }
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn secrets(client: Client) -> Api<Secret> {
    Api::default_namespaced(client)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "data": {"k": "v"}}))
        .unwrap()
}

async fn create(cluster: &Cluster, name: &str) {
    maps(cluster.client()).create(&PostParams::default(), &map(name)).await.unwrap();
}

async fn change(cluster: &Cluster, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"k": value}}));
    maps(cluster.client()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn delete(cluster: &Cluster, name: &str) {
    maps(cluster.client()).delete(name, &DeleteParams::default()).await.unwrap();
}

async fn logged(log: &Log, line: &str) {
    eventually(&format!("{line} in {:?}", log.lock()), || async {
        log.lock().iter().any(|known| known == line).then_some(())
    })
    .await;
}

/// Only what the test made: each namespace has a ConfigMap of its own.
fn made(key: &ObjectKey) -> bool {
    &*key.name != "kube-root-ca.crt"
}

#[tokio::test(start_paused = true)]
async fn objects_are_reconciled_when_they_are_there_when_they_change_and_when_they_are_gone() {
    let cluster = Cluster::start().await;
    create(&cluster, "early").await;
    let log = Log::default();
    let written = log.clone();
    let controller = Controller::of::<ConfigMap>("maps").reconcile(move |context: Context<ConfigMap>| {
        let log = written.clone();
        async move {
            let value = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("k").cloned());
            log.lock().push(match context.object() {
                Some(object) => format!("{} is {:?}", context.key().name, value(&object).unwrap_or_default()),
                None => {
                    let last = context.last_state().unwrap();
                    format!("{} was {:?}", context.key().name, value(&last).unwrap_or_default())
                }
            });
            Ok(Action::done())
        }
    });
    let running = run(&cluster, controller).await;
    logged(&log, "early is \"v\"").await;
    create(&cluster, "late").await;
    logged(&log, "late is \"v\"").await;
    change(&cluster, "late", "w").await;
    logged(&log, "late is \"w\"").await;
    delete(&cluster, "late").await;
    logged(&log, "late was \"w\"").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_reconciled_when_its_child_is_taken_away() {
    let cluster = Cluster::start().await;
    create(&cluster, "parent").await;
    let controller = Controller::of::<ConfigMap>("parents").owns::<Secret>().reconcile(
        |context: Context<ConfigMap>| async move {
            let Some(parent) = context.object().filter(|_| made(context.key())) else {
                return Ok(Action::done());
            };
            let child = json!({
                "metadata": {"name": "child", "namespace": parent.namespace()},
                "stringData": {"of": parent.name_any()},
            });
            let child: Secret =
                serde_json::from_value(child).map_err(|error| Error::permanent("child").because(error))?;
            let live = context.children::<Secret>().into_iter().find(|secret| secret.name_any() == "child");
            context.writer().apply_child(&*parent, &child, live.as_deref()).await?;
            context.recorder().normal(&*parent, "ChildMade", "the child is there");
            Ok(Action::done())
        },
    );
    let running = run(&cluster, controller).await;
    let secrets = secrets(cluster.client());
    let first = eventually("the child", || async { secrets.get("child").await.ok() }).await;
    assert_eq!(first.owner_references()[0].name, "parent");
    secrets.delete("child", &DeleteParams::default()).await.unwrap();
    eventually("another child", || async {
        secrets.get("child").await.ok().filter(|child| child.uid() != first.uid())
    })
    .await;
    running.stop().await;
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(cluster.client());
    let events = events.list(&Default::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("ChildMade")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn other_kinds_concern_what_the_map_says_before_and_after_the_change() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        create(&cluster, name).await;
    }
    let runs: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let count = runs.clone();
    let controller = Controller::of::<ConfigMap>("maps")
        .watches::<Secret>(|secret, listers| {
            let named = secret.labels().get("of").expect("a map that panics does no harm").clone();
            let key = ObjectKey::new("default", &named);
            listers.of::<ConfigMap>().get(&key).map(|_| key).into_iter().collect()
        })
        .reconcile(move |context: Context<ConfigMap>| {
            *count.lock().entry(context.key().name.to_string()).or_default() += 1;
            async { Ok(Action::done()) }
        });
    let running = run(&cluster, controller).await;
    let ran = |name: &'static str, times: usize| {
        let runs = runs.clone();
        async move {
            eventually(&format!("{name} {times} times"), || async {
                (runs.lock().get(name).copied() == Some(times)).then_some(())
            })
            .await;
        }
    };
    ran("a", 1).await;
    ran("c", 1).await;
    let secrets = secrets(cluster.client());
    let secret = |labels: serde_json::Value| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "s", "labels": labels}})).unwrap()
    };
    secrets.create(&PostParams::default(), &secret(json!({"of": "a"}))).await.unwrap();
    ran("a", 2).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"of": "b"}}}));
    secrets.patch("s", &PatchParams::default(), &patch).await.unwrap();
    ran("a", 3).await;
    ran("b", 2).await;
    let odd: Secret = serde_json::from_value(json!({"metadata": {"name": "odd"}})).unwrap();
    secrets.create(&PostParams::default(), &odd).await.unwrap();
    secrets.delete("s", &DeleteParams::default()).await.unwrap();
    ran("b", 3).await;
    assert_eq!(runs.lock()["c"], 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_status_alone_is_not_worth_a_reconcile_if_one_says_so() {
    let cluster = Cluster::start().await;
    let log = Log::default();
    let written = log.clone();
    let controller = Controller::of::<Deployment>("deployments").when(generation_changed()).reconcile(
        move |context: Context<Deployment>| {
            let log = written.clone();
            async move {
                let spec = context.object().and_then(|object| object.spec.clone());
                log.lock().push(format!("replicas {:?}", spec.and_then(|spec| spec.replicas)));
                Ok(Action::done())
            }
        },
    );
    let running = run(&cluster, controller).await;
    let api: Api<Deployment> = Api::default_namespaced(cluster.client());
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    logged(&log, "replicas Some(1)").await;
    let status = Patch::Merge(json!({"status": {"replicas": 1, "observedGeneration": 1}}));
    api.patch_status("d", &PatchParams::default(), &status).await.unwrap();
    let spec = Patch::Merge(json!({"spec": {"replicas": 2}}));
    api.patch("d", &PatchParams::default(), &spec).await.unwrap();
    logged(&log, "replicas Some(2)").await;
    assert_eq!(log.lock().len(), 2, "{:?}", log.lock());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_gate_denies_is_left_to_others() {
    let cluster = Cluster::start().await;
    let log = Log::default();
    let written = log.clone();
    let gate = Gate::new(|key, object| {
        assert_eq!(object.map(|object| object.key()), Some(key));
        if key.name.starts_with("mine") { Admission::Admitted(None) } else { Admission::Denied }
    });
    let controller =
        Controller::of::<ConfigMap>("maps").gate(gate).reconcile(move |context: Context<ConfigMap>| {
            written.lock().push(context.key().name.to_string());
            async { Ok(Action::done()) }
        });
    let running = run(&cluster, controller).await;
    for name in ["mine-1", "yours", "mine-2"] {
        create(&cluster, name).await;
    }
    logged(&log, "mine-2").await;
    assert_eq!(*log.lock(), ["mine-1", "mine-2"]);
    running.stop().await;
}

struct Handler {
    log: Log,
    failures: AtomicUsize,
}

impl ResourceHandler<ConfigMap> for Handler {
    async fn add(&self, object: Arc<ConfigMap>) -> Result<()> {
        self.log.lock().push(format!("add {}", object.name_any()));
        Ok(())
    }

    async fn update(&self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) -> Result<()> {
        if self.failures.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(Error::unknown("not yet"));
        }
        let value = |map: &ConfigMap| map.data.as_ref().unwrap()["k"].clone();
        self.log.lock().push(format!("update {} from {} to {}", new.name_any(), value(&old), value(&new)));
        Ok(())
    }

    async fn delete(&self, object: Arc<ConfigMap>) -> Result<()> {
        self.log.lock().push(format!("delete {}", object.name_any()));
        Ok(())
    }

    fn should_process(&self, object: &ConfigMap) -> bool {
        made(&ObjectKey::of(object))
    }

    fn key(&self, _object: &ConfigMap) -> ObjectKey {
        // One at a time, all of them.
        ObjectKey::cluster("all")
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_what_was_added_updated_and_deleted_and_told_again_after_a_failure() {
    let cluster = Cluster::start().await;
    create(&cluster, "a").await;
    let log = Log::default();
    let handler = Handler { log: log.clone(), failures: AtomicUsize::new(0) };
    let running = run(&cluster, Controller::of::<ConfigMap>("maps").handle(handler)).await;
    logged(&log, "add a").await;
    change(&cluster, "a", "w").await;
    logged(&log, "update a from v to w").await;
    delete(&cluster, "a").await;
    logged(&log, "delete a").await;
    create(&cluster, "a").await;
    eventually("a again", || async { (log.lock().len() == 4).then_some(()) }).await;
    assert_eq!(*log.lock(), ["add a", "update a from v to w", "delete a", "add a"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_load_drains_the_queue_and_leaves_nothing_half_written() {
    let cluster = Cluster::start().await;
    for n in 0..40 {
        create(&cluster, &format!("map-{n}")).await;
    }
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let controller = Controller::of::<ConfigMap>("pairs").reconcile(move |context: Context<ConfigMap>| {
        let count = count.clone();
        async move {
            let Some(object) = context.object().filter(|_| made(context.key())) else {
                return Ok(Action::done());
            };
            count.fetch_add(1, Ordering::SeqCst);
            for side in ["left", "right"] {
                let name = format!("{}-{side}", object.name_any());
                let secret = json!({"metadata": {"name": name, "namespace": "default"}});
                let secret: Secret = serde_json::from_value(secret).unwrap();
                context.writer().apply(&secret, None).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(Action::done())
        }
    });
    let running = run(&cluster, controller).await;
    eventually("work", || async { (begun.load(Ordering::SeqCst) > 5).then_some(()) }).await;
    running.stop().await;
    let secrets = secrets(cluster.client()).list(&Default::default()).await.unwrap();
    assert_eq!((begun.load(Ordering::SeqCst), secrets.items.len()), (40, 80));
}
