use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};

use super::{WebApp, WebAppStatus};

#[tokio::test(start_paused = true)]
async fn a_web_app_has_its_children_shows_their_state_and_goes_after_its_clean_up() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let builder = Manager::builder("test").client(client.clone()).embedded().leader_election();
    let mut manager = builder.build().await.unwrap();
    super::install(&manager).await.unwrap();
    manager.add(super::controller());
    let (stopper, metrics) = (manager.stopper(), manager.metrics().clone());
    let running = tokio::spawn(manager.run());

    let apps: Api<WebApp> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let app = json!({"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "shop"},
        "spec": {"image": "nginx", "replicas": 2, "port": 8080}});
    apps.create(&PostParams::default(), &serde_json::from_value(app).unwrap()).await.unwrap();
    eventually("children", || async {
        services.get_opt("shop").await.unwrap()?;
        deployments.get_opt("shop").await.unwrap()?.owner_references().first().cloned()
    })
    .await;

    // There is no kubelet here: the test plays one.
    let status = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": 2}}));
    deployments.patch_status("shop", &PatchParams::default(), &status).await.unwrap();
    let expected = WebAppStatus { observed_generation: 1, ready_replicas: 2 };
    eventually("the status", || async {
        apps.get("shop").await.unwrap().status.filter(|status| *status == expected)
    })
    .await;

    services.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("another Service", || async { services.get_opt("shop").await.unwrap() }).await;

    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("the end", || async { apps.get_opt("shop").await.unwrap().is_none().then_some(()) }).await;
    assert!(metrics.text().contains("controller_reconcile_errors_total{controller=\"web-app\"} 0"));
    stopper.stop();
    running.await.unwrap().unwrap();

    let events: Api<Event> = Api::default_namespaced(client);
    let events = events.list(&Default::default()).await.unwrap();
    let of_app = |event: &&Event| event.involved_object.kind.as_deref() == Some(&*WebApp::kind(&()));
    let reasons: Vec<_> = events.iter().filter(of_app).filter_map(|event| event.reason.clone()).collect();
    assert!(
        reasons.contains(&"RolledOut".to_owned()) && reasons.contains(&"CleanedUp".to_owned()),
        "{reasons:?}"
    );
}

#[test]
fn the_how_to_shows_this_program_and_all_of_it() {
    let (page, program) = (include_str!("../../../docs/how-to/write-an-operator.md"), include_str!("main.rs"));
    let pieces: Vec<&str> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let shown: String = pieces.iter().filter(|piece| !piece.contains("#[cfg(test)]")).copied().collect();
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let whole = program.split_once("mod tests;").map(|(_, rest)| bare(rest));
    assert_eq!(Some(bare(&shown)), whole);
}
