//! The watcher of kube-runtime in both modes, and what is built on it.

use std::collections::BTreeSet;
use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::api::config_map;
use crate::{Use, shown_by};

pub const USES: &[Use] = &[
    ("a watcher that lists first follows all changes", shown_by!(list_watch)),
    ("a watcher with a streamed list follows all changes", shown_by!(streaming_list)),
    ("a watcher of metadata alone sees no more", shown_by!(metadata)),
    ("a reflector's store is what the server has", shown_by!(reflected)),
    ("one can wait for a condition", shown_by!(condition)),
];

async fn list_watch(client: Client, namespace: String) -> Result<()> {
    follow(client, &namespace, watcher::Config::default().page_size(2)).await
}

async fn streaming_list(client: Client, namespace: String) -> Result<()> {
    follow(client, &namespace, watcher::Config::default().streaming_lists()).await
}

async fn follow(client: Client, namespace: &str, config: watcher::Config) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name, &[])).await?;
    }
    let mut events = pin!(watcher(maps.clone(), config.labels("!hidden")));
    ensure!(matches!(next(&mut events).await?, Event::Init));
    let mut initial = BTreeSet::new();
    loop {
        match next(&mut events).await? {
            Event::InitApply(map) => initial.insert(map.name_any()),
            Event::InitDone => break,
            other => anyhow::bail!("{other:?} in the initial list"),
        };
    }
    ensure!(initial == ["a", "b", "c"].map(str::to_owned).into(), "{initial:?}");

    maps.create(&PostParams::default(), &config_map("d", &[])).await?;
    expect_applied(&mut events, "d").await?;
    let change = Patch::Merge(json!({"data": {"k": "v"}}));
    maps.patch("a", &PatchParams::default(), &change).await?;
    expect_applied(&mut events, "a").await?;
    maps.delete("b", &DeleteParams::default()).await?;
    expect_deleted(&mut events, "b").await?;
    // What the selector does not want any more is gone, as far as this watcher is concerned.
    let hide = Patch::Merge(json!({"metadata": {"labels": {"hidden": "yes"}}}));
    maps.patch("c", &PatchParams::default(), &hide).await?;
    expect_deleted(&mut events, "c").await
}

async fn next<T>(events: &mut (impl Stream<Item = watcher::Result<T>> + Unpin)) -> Result<T> {
    Ok(events.try_next().await?.context("the watcher ended")?)
}

type Maps = Event<ConfigMap>;

async fn expect_applied(
    events: &mut (impl Stream<Item = watcher::Result<Maps>> + Unpin),
    name: &str,
) -> Result<()> {
    let event = next(events).await?;
    ensure!(matches!(&event, Event::Apply(map) if map.name_any() == name), "{event:?}");
    Ok(())
}

async fn expect_deleted(
    events: &mut (impl Stream<Item = watcher::Result<Maps>> + Unpin),
    name: &str,
) -> Result<()> {
    let event = next(events).await?;
    ensure!(matches!(&event, Event::Delete(map) if map.name_any() == name), "{event:?}");
    Ok(())
}

async fn metadata(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    maps.create(&PostParams::default(), &config_map("a", &[("k", "v")])).await?;
    let partial: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client, &namespace);
    let mut seen = pin!(watcher(partial, watcher::Config::default()).applied_objects());
    let first = next(&mut seen).await?;
    ensure!(
        first.name_any() == "a" && first.types.is_some_and(|types| types.kind == "PartialObjectMetadata")
    );
    let change = Patch::Merge(json!({"metadata": {"labels": {"l": "1"}}}));
    maps.patch("a", &PatchParams::default(), &change).await?;
    ensure!(next(&mut seen).await?.labels()["l"] == "1");
    Ok(())
}

async fn reflected(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    maps.create(&PostParams::default(), &config_map("a", &[])).await?;
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let stream = watcher(maps.clone(), config).default_backoff().reflect(writer).touched_objects();
    let running = tokio::spawn(stream.for_each(|_| async {}));
    store.wait_until_ready().await?;
    ensure!(store.len() == 1);
    maps.create(&PostParams::default(), &config_map("b", &[])).await?;
    maps.delete("a", &DeleteParams::default()).await?;
    let key = reflector::ObjectRef::new("b").within(&namespace);
    crate::until("the store", async || Ok((store.len() == 1 && store.get(&key).is_some()).then_some(())))
        .await?;
    running.abort();
    Ok(())
}

async fn condition(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let waiting = tokio::spawn(await_condition(maps.clone(), "a", |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref()).is_some_and(|data| data.contains_key("ready"))
    }));
    maps.create(&PostParams::default(), &config_map("a", &[])).await?;
    let change = Patch::Merge(json!({"data": {"ready": "yes"}}));
    maps.patch("a", &PatchParams::default(), &change).await?;
    ensure!(waiting.await??.is_some_and(|map| map.name_any() == "a"));
    Ok(())
}
