use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};

async fn label(client: &Client, labels: serde_json::Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch("default", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_namespace_come_and_go_on_its_config_maps() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = json!({"metadata": {"name": "m", "labels": {"own": "stays"}}, "data": {"k": "v"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let mut manager = Manager::builder("test").client(client.clone()).embedded().build().await.unwrap();
    manager.add(super::controller());
    let stopper = manager.stopper();
    let running = tokio::spawn(manager.run());

    let has = async |team: Option<&str>| {
        eventually(&format!("team {team:?}"), || async {
            let map = maps.get("m").await.unwrap();
            let found = map.labels().get("mirror.example.com/team").map(String::as_str) == team;
            (found && map.labels()["own"] == "stays").then_some(())
        })
        .await;
    };
    label(&client, json!({"mirror.example.com/team": "blue", "other": "x"})).await;
    has(Some("blue")).await;
    label(&client, json!({"mirror.example.com/team": "red"})).await;
    has(Some("red")).await;
    label(&client, json!({"mirror.example.com/team": null})).await;
    has(None).await;
    stopper.stop();
    running.await.unwrap().unwrap();
}
