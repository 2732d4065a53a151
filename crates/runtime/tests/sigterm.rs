//! SIGTERM in the middle of much work. One test, because signals belong to the whole process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use shoal_runtime::config::Config;
use shoal_runtime::{Action, Context, Controller, Manager};
use shoal_testkit::{Cluster, eventually};

#[tokio::test]
async fn a_signal_under_load_drains_the_queue_gives_the_lease_back_and_leaves_nothing_half_written() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = |name: &str| serde_json::from_value::<ConfigMap>(json!({"metadata": {"name": name}})).unwrap();
    for n in 0..200 {
        maps.create(&PostParams::default(), &map(&format!("m{n}"))).await.unwrap();
    }
    let mut manager = Manager::builder("pairs")
        .client(cluster.client())
        .config(Config::default())
        .listen(false)
        .leader_election()
        .build()
        .await
        .unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let reconcile = move |context: Context<ConfigMap>| {
        let count = count.clone();
        async move {
            let Some(map) = context.object() else { return Ok(Action::done()) };
            count.fetch_add(1, Ordering::SeqCst);
            for side in ["left", "right"] {
                let name = format!("{}-{side}", map.name_any());
                let secret = json!({"metadata": {"name": name, "namespace": map.namespace()}});
                context.writer().apply::<Secret>(&serde_json::from_value(secret).unwrap(), None).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(Action::done())
        }
    };
    manager.add(Controller::of::<ConfigMap>("pairs").in_namespace("default").reconcile(reconcile));
    let run = tokio::spawn(manager.run());
    eventually("work", || async { (begun.load(Ordering::SeqCst) > 10).then_some(()) }).await;
    kill_process(getpid(), Signal::TERM).unwrap();
    // Others go on meanwhile; what comes after the signal is left to the next leader.
    let others = cluster.client();
    let late = tokio::spawn(async move {
        let maps: Api<ConfigMap> = Api::default_namespaced(others);
        for n in 0..50 {
            let _ = maps.create(&PostParams::default(), &map(&format!("late-{n}"))).await;
        }
    });
    run.await.unwrap().unwrap();
    late.await.unwrap();

    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    let names: BTreeSet<String> =
        secrets.list(&ListParams::default()).await.unwrap().iter().map(|secret| secret.name_any()).collect();
    for name in &names {
        let (map, side) = name.rsplit_once('-').unwrap();
        let other = if side == "left" { "right" } else { "left" };
        assert!(names.contains(&format!("{map}-{other}")), "{name} is half of a pair");
    }
    assert!((0..200).all(|n| names.contains(&format!("m{n}-right"))), "what was queued has been done");
    let lease =
        cluster.http().get("/apis/coordination.k8s.io/v1/namespaces/default/leases/pairs").await.json();
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
}
