//! A whole cluster in the test: API server, the built-in controllers, a scheduler, simulated nodes; and the operator. Time jumps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shoal_application::api::install;
use shoal_application::controller::{self, Settings};
use shoal_application::{Application, ApplicationStatus};
use shoal_controllers::{all, scheduler};
use shoal_node::simulated;
use shoal_objects::Entropy;
use shoal_runtime::{Manager, Object};
use shoal_testkit::Cluster;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long anything may take, in the cluster's time.
const PATIENCE: Duration = Duration::from_secs(150);

/// The cluster without the operator.
pub async fn cluster() -> Cluster {
    let cluster = Cluster::builder().seed(1).start().await;
    install(&cluster.client()).await.unwrap();
    let mut manager = Manager::builder("controllers")
        .client(cluster.client())
        .clock(cluster.clock())
        .entropy(Entropy::seeded(2))
        .embedded()
        .build()
        .await
        .unwrap();
    let settings = all::Settings {
        clock: cluster.clock(),
        entropy: Entropy::seeded(3),
        volumes: Some(std::env::temp_dir().join("shoal-application-test")),
        ..all::Settings::default()
    };
    all::register(&mut manager, &settings, |_| true);
    manager.add(scheduler::Scheduler::default());
    simulated::add(&mut manager, simulated::Options { nodes: 2, ..simulated::Options::default() });
    tokio::spawn(manager.run());
    cluster
}

/// An operator that runs.
pub struct Operator {
    pub running: JoinHandle<()>,
    pub metrics: shoal_runtime::metrics::Metrics,
}

/// Starts an operator that talks to the cluster by this client.
pub async fn operator(cluster: &Cluster, client: Client) -> Operator {
    let mut manager = Manager::builder("application")
        .client(client)
        .clock(cluster.clock())
        .entropy(Entropy::seeded(4))
        .embedded()
        .build()
        .await
        .unwrap();
    controller::register(&mut manager, Settings::default());
    let metrics = manager.metrics().clone();
    let running = tokio::spawn(async move {
        let _ = manager.run().await;
    });
    Operator { running, metrics }
}

/// The cluster with the operator.
pub async fn start() -> Cluster {
    let cluster = cluster().await;
    operator(&cluster, cluster.client()).await;
    cluster
}

/// The objects of a kind in the namespace `default`.
pub fn api<K>(cluster: &Cluster) -> Api<K>
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    Api::default_namespaced(cluster.client())
}

/// Creates the Application `web`.
pub async fn create(cluster: &Cluster, spec: Value) -> Application {
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    api::<Application>(cluster).create(&PostParams::default(), &object).await.unwrap()
}

/// Changes the specification of `web`.
pub async fn edit(cluster: &Cluster, spec: Value) -> Application {
    let patch = Patch::Merge(json!({"spec": spec}));
    api::<Application>(cluster).patch("web", &PatchParams::default(), &patch).await.unwrap()
}

/// Changes any object.
pub async fn patch<K>(cluster: &Cluster, name: &str, patch: Value)
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    api::<K>(cluster).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until something is so; gives it and how long it took.
pub async fn until<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> (T, Duration) {
    let begin = Instant::now();
    loop {
        match check().await {
            Ok(value) => return (value, begin.elapsed()),
            Err(seen) if begin.elapsed() > PATIENCE => {
                panic!("after {PATIENCE:?} still not: {what}; seen: {seen}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits until an object, as JSON, is as it should be; gives it. `Null` stands for an object that is not there.
pub async fn until_is<K>(cluster: &Cluster, name: &str, holds: impl Fn(&Value) -> bool) -> Value
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    let objects = api::<K>(cluster);
    let what = format!("{} {name} is as it should be", K::kind(&()));
    let check = || async {
        let object = as_json(&objects.get_opt(name).await.unwrap());
        if holds(&object) { Ok(object) } else { Err(object.to_string()) }
    };
    until(&what, check).await.0
}

/// Waits until `web` is in a phase that belongs to its current specification; gives its status.
pub async fn until_phase(cluster: &Cluster, phase: &str) -> ApplicationStatus {
    let app = until_is::<Application>(cluster, "web", |app| {
        app["status"]["phase"] == phase
            && app["status"]["observedGeneration"] == app["metadata"]["generation"]
    })
    .await;
    serde_json::from_value(app["status"].clone()).unwrap()
}

/// Whether an object exists.
pub async fn exists<K>(cluster: &Cluster, name: &str) -> bool
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    api::<K>(cluster).get_opt(name).await.unwrap().is_some()
}

/// All objects of a kind, as JSON.
pub async fn list<K>(cluster: &Cluster) -> Vec<Value>
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    api::<K>(cluster).list(&ListParams::default()).await.unwrap().items.iter().map(as_json).collect()
}

/// Writes down every value that a field of the objects of a kind has from now on.
pub async fn record<K>(cluster: &Cluster, field: &'static str) -> Arc<Mutex<Vec<Value>>>
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    use futures::StreamExt as _;
    let (objects, seen) = (api::<K>(cluster), Arc::new(Mutex::new(Vec::<Value>::new())));
    let mut version = objects.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let record = seen.clone();
    tokio::spawn(async move {
        loop {
            let mut events = objects.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) =
                    event
                else {
                    continue;
                };
                version = object.meta().resource_version.clone().unwrap();
                let value = as_json(&object).pointer(field).cloned().unwrap_or_default();
                let mut record = record.lock().unwrap();
                if !value.is_null() && record.last() != Some(&value) {
                    record.push(value);
                }
            }
        }
    });
    seen
}

/// The phases that Applications go through from now on.
pub async fn phases(cluster: &Cluster) -> Arc<Mutex<Vec<Value>>> {
    record::<Application>(cluster, "/status/phase").await
}

/// The reasons of all events about `web`, in the order of the alphabet.
pub async fn reasons(cluster: &Cluster) -> Vec<String> {
    let events = list::<Event>(cluster).await;
    let of_web = |event: &&Value| event["involvedObject"]["kind"] == "Application";
    let mut reasons: Vec<String> =
        events.iter().filter(of_web).map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    reasons.sort();
    reasons
}

/// Waits until an event of this reason was told about `web`.
pub async fn until_told(cluster: &Cluster, reason: &str) {
    until(reason, || async {
        let reasons = reasons(cluster).await;
        if reasons.iter().any(|told| told == reason) { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
}

/// The condition of this type.
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// Any object as JSON.
pub fn as_json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap()
}

/// An object from JSON.
pub fn from_json<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// A specification that runs.
pub fn web() -> Value {
    json!({"image": "web:1", "port": 8080, "replicas": 2})
}
