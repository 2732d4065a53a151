//! Several operators, all at work.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use serde_json::json;
use shoal_application::controller::{self, Settings};
use shoal_application::{Application, Phase};
use shoal_objects::Entropy;
use shoal_runtime::metrics::Metrics;
use shoal_runtime::{Manager, ShardingOptions};
use shoal_testkit::Cluster;

use crate::cluster::{api, cluster, edit, from_json, list, until, until_phase, web};

const APPLICATIONS: usize = 24;

/// An operator that shares the Applications with others.
pub async fn replica(cluster: &Cluster, name: &str, seed: u64) -> (Metrics, tokio::task::JoinHandle<()>) {
    let mut manager = Manager::builder("application-operator")
        .client(cluster.client())
        .clock(cluster.clock())
        .entropy(Entropy::seeded(seed))
        .sharded(ShardingOptions::new().name(name).slots(64))
        .embedded()
        .build()
        .await
        .unwrap();
    controller::register(&mut manager, Settings::default());
    let metrics = manager.metrics().clone();
    let running = tokio::spawn(async move {
        let _ = manager.run().await;
    });
    (metrics, running)
}

/// How many Applications a replica looks after.
pub fn looked_after(metrics: &Metrics) -> usize {
    let text = metrics.text();
    let counts = text.lines().filter_map(|line| line.strip_prefix("applications_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

#[tokio::test(start_paused = true)]
async fn sharded_operators_share_the_applications_and_take_over_from_each_other() {
    let cluster = cluster().await;
    let (first, dies) = replica(&cluster, "first", 11).await;
    let (second, _runs) = replica(&cluster, "second", 12).await;
    let all: Api<Application> = api(&cluster);
    for index in 0..APPLICATIONS {
        let name = if index == 0 { "web".to_owned() } else { format!("app-{index}") };
        let app = from_json(json!({"metadata": {"name": name}, "spec": web()}));
        all.create(&PostParams::default(), &app).await.unwrap();
    }
    let all_run = || async {
        let apps = all.list(&Default::default()).await.unwrap().items;
        let running =
            |app: &&Application| app.status.as_ref().and_then(|status| status.phase) == Some(Phase::Running);
        let count = apps.iter().filter(running).count();
        if count == APPLICATIONS { Ok(()) } else { Err(format!("{count} run")) }
    };
    until("all run", all_run).await;
    until("each looks after some", || async {
        let (a, b) = (looked_after(&first), looked_after(&second));
        if a > 0 && b > 0 && a + b == APPLICATIONS { Ok(()) } else { Err(format!("{a} and {b}")) }
    })
    .await;
    dies.abort();
    edit(&cluster, json!({"image": "web:2"})).await;
    let status = until_phase(&cluster, "Running").await;
    assert_eq!(status.image.as_deref(), Some("web:2"));
    until("the other has them all", || async {
        let count = looked_after(&second);
        if count == APPLICATIONS { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    assert_eq!(list::<Deployment>(&cluster).await.len(), APPLICATIONS);
}
