//! The operator that is built in, beside one that people run themselves.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use shoal_application::controller::{self, Settings};
use shoal_objects::Entropy;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, FaultLayer};

use crate::cluster::{cluster, create, edit, list, until, until_is, until_phase, web};
use crate::sharded::{looked_after, replica};

/// Starts the built-in one; what it asks for is recorded.
async fn built_in(cluster: &Cluster) -> FaultLayer {
    let record = FaultLayer::new(1);
    let mut manager = Manager::builder("controllers")
        .client(cluster.client_through(&record))
        .clock(cluster.clock())
        .entropy(Entropy::seeded(5))
        .embedded()
        .build()
        .await
        .unwrap();
    controller::register(&mut manager, Settings { stands_aside: true, ..Settings::default() });
    tokio::spawn(manager.run());
    record
}

/// How often the built-in one has written something; what it tells people aside.
fn writes(record: &FaultLayer) -> usize {
    let requests = record.requests();
    requests.iter().filter(|request| !request.starts_with("GET ") && !request.contains("/events")).count()
}

/// Gives the program another image and waits until it runs.
async fn update(cluster: &Cluster, image: &str) {
    edit(cluster, json!({"image": image})).await;
    assert_eq!(until_phase(cluster, "Running").await.image.as_deref(), Some(image));
}

async fn told(cluster: &Cluster) -> usize {
    list::<Event>(cluster).await.iter().filter(|event| event["reason"] == "BuiltInStandsAside").count()
}

#[tokio::test(start_paused = true)]
async fn the_built_in_operator_stands_aside_for_a_sharded_one_and_takes_over_when_that_dies() {
    let cluster = cluster().await;
    let record = built_in(&cluster).await;
    create(&cluster, web()).await;
    until_phase(&cluster, "Running").await;
    assert!(writes(&record) > 0, "alone, it works");

    let (metrics, other) = replica(&cluster, "other", 11).await;
    until("the other looks after it", || async {
        if looked_after(&metrics) == 1 { Ok(()) } else { Err(String::new()) }
    })
    .await;
    let before = writes(&record);
    update(&cluster, "web:2").await;
    update(&cluster, "web:3").await;
    assert_eq!(writes(&record), before, "{:#?}", record.requests());
    assert_eq!(told(&cluster).await, 1, "people are told once");

    other.abort();
    update(&cluster, "web:4").await;
    assert!(writes(&record) > before);
    assert_eq!(told(&cluster).await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_built_in_operator_stands_aside_for_one_that_leads_and_takes_over_when_that_leaves() {
    let cluster = cluster().await;
    let record = built_in(&cluster).await;
    let mut manager = Manager::builder("application-operator")
        .client(cluster.client())
        .clock(cluster.clock())
        .entropy(Entropy::seeded(6))
        .embedded()
        .leader_election()
        .build()
        .await
        .unwrap();
    controller::register(&mut manager, Settings::default());
    let stopper = manager.stopper();
    let leads = tokio::spawn(manager.run());
    let held =
        |lease: &serde_json::Value| lease["spec"]["holderIdentity"].as_str().is_some_and(|id| !id.is_empty());
    until_is::<Lease>(&cluster, "application-operator", held).await;
    create(&cluster, web()).await;
    update(&cluster, "web:2").await;
    assert_eq!(writes(&record), 0, "{:#?}", record.requests());
    assert_eq!(told(&cluster).await, 1);

    stopper.stop();
    leads.await.unwrap().unwrap();
    update(&cluster, "web:3").await;
    assert!(writes(&record) > 0);
}
