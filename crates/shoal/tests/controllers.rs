//! A controller of the framework against the program, over TLS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use process::Cluster;
use serde_json::json;
use shoal_runtime::{Action, Context, Controller, Manager, Result};

/// Runs of each key.
type Runs = Arc<Mutex<BTreeMap<String, usize>>>;

fn start(data: &Path, port: u16) -> Cluster {
    Cluster::start(&["up", "--port", &port.to_string(), "--data-dir", data.to_str().unwrap()])
}

async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A Secret for each ConfigMap, which goes when the ConfigMap goes.
async fn mirror(context: Context<ConfigMap>) -> Result<Action> {
    let writer = context.writer();
    if context.object().is_some() {
        let secret = json!({"metadata": {"name": context.key().name.to_string(), "namespace": "default"}});
        writer.apply::<Secret>(&serde_json::from_value(secret).unwrap(), None).await?;
    } else if let Some(secret) = writer.get::<Secret>(context.key()).await? {
        writer.delete(&secret).await?;
    }
    Ok(Action::done())
}

/// Asks again and again: processes take real time to start.
async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still not: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_goes_on_after_its_server_was_killed_and_started_again() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = start(data.path(), 0);
    let port = cluster.port();
    let runs = Runs::default();
    let counted = runs.clone();
    let mut manager = Manager::builder("mirror")
        .client(client(&cluster).await)
        .embedded()
        .leader_election()
        .build()
        .await
        .unwrap();
    let controller = Controller::of::<ConfigMap>("mirror").with_labels("mine=yes").reconcile(
        move |context: Context<ConfigMap>| {
            *counted.lock().unwrap().entry(context.key().name.to_string()).or_default() += 1;
            mirror(context)
        },
    );
    manager.add(controller);
    let stopper = manager.stopper();
    let running = tokio::spawn(manager.run());

    let outside = client(&cluster).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(outside.clone());
    let secrets: Api<Secret> = Api::default_namespaced(outside);
    let map = |name: &str| {
        let map = json!({"metadata": {"name": name, "labels": {"mine": "yes"}}});
        serde_json::from_value::<ConfigMap>(map).unwrap()
    };
    for name in ["kept", "deleted"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
        until("its copy", async || secrets.get_opt(name).await.unwrap()).await;
    }
    for round in 0..2 {
        cluster.kill();
        cluster = start(data.path(), port);
        let name = format!("new-{round}");
        until("a write after the restart", async || {
            maps.create(&PostParams::default(), &map(&name)).await.ok()
        })
        .await;
        until("the copy of the new one", async || secrets.get_opt(&name).await.ok()?).await;
    }
    maps.delete("deleted", &DeleteParams::default()).await.unwrap();
    until("the end of the copy", async || secrets.get_opt("deleted").await.ok()?.is_none().then_some(()))
        .await;
    let copies = secrets.list(&Default::default()).await.unwrap();
    let names: Vec<String> = copies.iter().map(|secret| secret.name_any()).collect();
    assert_eq!(names, ["kept", "new-0", "new-1"]);
    assert_eq!(runs.lock().unwrap()["kept"], 1, "nothing happened to it");
    stopper.stop();
    running.await.unwrap().unwrap();
}
