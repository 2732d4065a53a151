//! The operator with a controller beside it, as its extension guide shows it.

use serde_json::json;
use shoal_application::Application;
use shoal_application::controller::{self, Settings};
use shoal_objects::Entropy;
use shoal_runtime::Manager;

use crate::cluster::{api, cluster, from_json, patch, until_is, until_told};
use crate::promotion;

#[tokio::test(start_paused = true)]
async fn a_controller_and_a_metric_are_added_through_the_public_api() {
    let cluster = cluster().await;
    let mut manager = Manager::builder("application-operator")
        .client(cluster.client())
        .clock(cluster.clock())
        .entropy(Entropy::seeded(4))
        .embedded()
        .build()
        .await
        .unwrap();
    controller::register(&mut manager, Settings::default());
    promotion::register(&mut manager);
    let metrics = manager.metrics().clone();
    tokio::spawn(manager.run());

    let follows = json!({"example.com/follows": "staging"});
    for (name, annotations) in [("staging", json!({})), ("web", follows)] {
        let metadata = json!({"name": name, "annotations": annotations});
        let app = from_json(
            json!({"metadata": metadata, "spec": {"image": "web:1", "progressDeadlineSeconds": 5}}),
        );
        api::<Application>(&cluster).create(&Default::default(), &app).await.unwrap();
    }
    let runs = |image: &'static str| {
        move |app: &serde_json::Value| app["status"]["phase"] == "Running" && app["status"]["image"] == image
    };
    for name in ["staging", "web"] {
        until_is::<Application>(&cluster, name, runs("web:1")).await;
    }
    patch::<Application>(&cluster, "staging", json!({"spec": {"image": "web:2"}})).await;
    until_is::<Application>(&cluster, "web", runs("web:2")).await;
    until_told(&cluster, "Promoted").await;
    assert!(metrics.text().contains("application_promotions_total 1"), "{}", metrics.text());

    // One that never runs is not taken over.
    let never = json!({"simulated.shoal.dev/waiting": "ErrImagePull"});
    patch::<Application>(&cluster, "staging", json!({"spec": {"image": "web:3", "podAnnotations": never}}))
        .await;
    until_is::<Application>(&cluster, "staging", |app| app["status"]["phase"] == "Failed").await;
    until_is::<Application>(&cluster, "web", runs("web:2")).await;
    assert!(metrics.text().contains("application_promotions_total 1"));
}

#[test]
fn the_extension_guide_shows_this_controller_and_all_of_it() {
    let page = include_str!("../../../../docs/how-to/extend-the-application.md");
    let section = page.split("\n## ").find(|section| section.starts_with("A controller")).unwrap();
    let shown = section.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let (_, program) = include_str!("promotion.rs").split_once("\n\n").unwrap();
    assert_eq!(bare(shown), bare(program));
}
