use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use shoal_testkit::{Abilities, Cluster, Effect, FaultLayer, Rule, eventually};
use std::time::Duration;

async fn greet(client: Client) -> Result<(), kube::Error> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for map in maps.list(&ListParams::default()).await? {
        if !map.data.clone().unwrap_or_default().contains_key("greeting") {
            let greeting = Patch::Merge(json!({"data": {"greeting": "hello"}}));
            maps.patch(&map.name_any(), &PatchParams::default(), &greeting).await?;
        }
    }
    Ok(())
}

/// Over and over; what fails is tried again.
async fn greet_for_ever(client: Client) {
    loop {
        let _ = greet(client.clone()).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

async fn create(cluster: &Cluster, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
}

async fn greeting(cluster: &Cluster, name: &str) -> Option<String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.get(name).await.unwrap().data?.remove("greeting")
}

#[tokio::test(start_paused = true)]
async fn who_comes_is_greeted() {
    let cluster = Cluster::start().await;
    tokio::spawn(greet_for_ever(cluster.client()));
    create(&cluster, "anna").await;
    assert_eq!(eventually("a greeting", || greeting(&cluster, "anna")).await, "hello");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_got_over() {
    let cluster = Cluster::start().await;
    let faults = FaultLayer::new(7);
    faults.add(Rule::all(Effect::DropBefore));
    tokio::spawn(greet_for_ever(cluster.client_through(&faults)));
    create(&cluster, "anna").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(greeting(&cluster, "anna").await, None);
    faults.clear();
    // From now on every second write is made, and its answer lost.
    faults.add(Rule::writes(Effect::DropAfter).percent(50));
    assert_eq!(eventually("a greeting", || greeting(&cluster, "anna")).await, "hello");
}

async fn history(seed: u64) -> Vec<u8> {
    // An older server, too: one that does not stream lists.
    let abilities = Abilities { watch_list: false, ..Abilities::default() };
    let cluster = Cluster::builder().seed(seed).abilities(abilities).start().await;
    create(&cluster, "anna").await;
    greet(cluster.client()).await.unwrap();
    cluster.event_log(&["/api/v1/configmaps"]).await
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_repeated() {
    assert_eq!(history(7).await, history(7).await);
    assert_ne!(history(7).await, history(8).await);
}
