//! Clusters that behave like newer and older servers, and what tests do with them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part; what fails, fails"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use shoal_objects::Entropy;
use shoal_runtime::ObjectKey;
use shoal_runtime::cache::{Delta, Informer, InformerOptions, Informers, Subscription};
use shoal_runtime::watch::WatchOptions;
use shoal_testkit::{Abilities, Cluster, eventually};

/// A current server, and one for each thing that older ones cannot do.
pub fn variants() -> Vec<(&'static str, Abilities)> {
    let new = Abilities::default();
    let old = Abilities { watch_list: false, ..new };
    vec![
        ("new", new),
        ("no streamed lists", old),
        ("no bookmarks", Abilities { bookmarks: false, ..new }),
        ("no shards", Abilities { shard_selector: false, ..new }),
        ("stale reads", Abilities { stale_reads: 5, ..new }),
        ("old", Abilities { bookmarks: false, shard_selector: false, stale_reads: 5, ..old }),
    ]
}

/// A cluster for each variant.
pub async fn clusters() -> Vec<(&'static str, Cluster)> {
    let mut all = Vec::new();
    for (name, abilities) in variants() {
        all.push((name, Cluster::builder().seed(7).abilities(abilities).start().await));
    }
    all
}

pub fn options() -> InformerOptions {
    let watch = WatchOptions { entropy: Entropy::seeded(3), ..WatchOptions::default() };
    InformerOptions { watch, ..InformerOptions::default() }
}

pub fn informers(client: Client) -> Informers {
    Informers::new(client, options())
}

pub fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::default_namespaced(cluster.client())
}

pub fn map(name: &str, value: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "labels": {"v": value}}, "data": {"k": value}});
    serde_json::from_value(map).unwrap()
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

pub async fn create(cluster: &Cluster, name: &str, value: &str) -> ConfigMap {
    maps(cluster).create(&PostParams::default(), &map(name, value)).await.unwrap()
}

pub async fn change(cluster: &Cluster, name: &str, value: &str) -> ConfigMap {
    let patch = Patch::Merge(json!({"data": {"k": value}, "metadata": {"labels": {"v": value}}}));
    maps(cluster).patch(name, &PatchParams::default(), &patch).await.unwrap()
}

pub async fn delete(cluster: &Cluster, name: &str) {
    maps(cluster).delete(name, &DeleteParams::default()).await.unwrap();
}

/// Name → (uid, version, value) of everything on the server.
pub type Contents = BTreeMap<String, (String, String, String)>;

fn contents(objects: impl IntoIterator<Item = ConfigMap>) -> Contents {
    let line = |map: ConfigMap| {
        let value = map.data.unwrap_or_default().remove("k").unwrap_or_default();
        let meta = map.metadata;
        (meta.name.unwrap(), (meta.uid.unwrap(), meta.resource_version.unwrap(), value))
    };
    objects.into_iter().map(line).collect()
}

pub async fn on_server(cluster: &Cluster) -> Contents {
    contents(maps(cluster).list(&ListParams::default()).await.unwrap())
}

pub fn in_cache(informer: &Informer<ConfigMap>) -> Contents {
    contents(informer.lister().list_in("default").into_iter().map(Arc::unwrap_or_clone))
}

/// Waits until cache and server are equal.
pub async fn converge(what: &str, cluster: &Cluster, informer: &Informer<ConfigMap>) {
    eventually(&format!("{what}: cache and server are equal"), || async {
        (on_server(cluster).await == in_cache(informer)).then_some(())
    })
    .await;
}

/// What is told within some time of silence.
pub async fn told(subscription: &mut Subscription) -> Vec<Delta> {
    let mut all = Vec::new();
    while let Ok(Some(delta)) = tokio::time::timeout(Duration::from_secs(1), subscription.recv()).await {
        all.push(delta);
    }
    all
}

/// Deltas as short texts: `Added a`.
pub fn short(deltas: &[Delta]) -> Vec<String> {
    deltas.iter().map(|delta| format!("{:?} {}", delta.change, delta.key.name)).collect()
}
