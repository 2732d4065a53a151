//! Namespaces, owners and what every namespace has, on a whole API server.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};

async fn start() -> Cluster {
    let cluster = Cluster::start().await;
    let mut manager =
        Manager::builder("controllers").client(cluster.client()).embedded().build().await.unwrap();
    let settings = Settings { root_ca: Some("the certificate".to_owned()), ..Settings::default() };
    all::register(&mut manager, &settings, |_| true);
    tokio::spawn(manager.run());
    cluster
}

async fn create<T>(api: &Api<T>, object: Value) -> T
where
    T: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

async fn is_gone<T: Clone + DeserializeOwned + std::fmt::Debug>(api: &Api<T>, name: &str) -> Option<()> {
    api.get_metadata_opt(name).await.unwrap().is_none().then_some(())
}

fn owned_by(owner: &ConfigMap, name: &str, more: Value) -> Value {
    let mut metadata = json!({"name": name, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().unwrap()}]});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": metadata})
}

/// Defines the kind Thing of the group `group` and waits until it is served.
async fn define(client: &Client, group: &str) -> Api<DynamicObject> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    create(&definitions, definition).await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "Thing"), "things");
    let things: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    eventually("the kind is served", || async { things.list(&ListParams::default()).await.ok().map(drop) })
        .await;
    things
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_its_account_and_certificate_and_gets_them_back() {
    let cluster = start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, json!({"metadata": {"name": "a"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "a");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "a");
    eventually("there is an account", || async { accounts.get_opt("default").await.unwrap() }).await;
    let right = || async {
        let map = maps.get_opt("kube-root-ca.crt").await.unwrap()?;
        (map.data.as_ref()?["ca.crt"] == "the certificate").then_some(map)
    };
    let map = eventually("there is a certificate", right).await;
    assert!(map.annotations().contains_key("kubernetes.io/description"));
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    let wrong = json!({"data": {"ca.crt": "wrong"}});
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    eventually("the account is back", || async { accounts.get_opt("default").await.unwrap() }).await;
    eventually("the certificate is right again", right).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_account_goes_with_it_and_other_secrets_stay() {
    let cluster = start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    create(&accounts, json!({"metadata": {"name": "robot"}})).await;
    let token = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    create(&secrets, token).await;
    create(&secrets, json!({"metadata": {"name": "other"}})).await;
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    eventually("the token is gone", || is_gone(&secrets, "token")).await;
    assert!(secrets.get_opt("other").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_takes_everything_with_it_custom_kinds_included() {
    let cluster = start().await;
    let client = cluster.client();
    define(&client, "a.test").await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "a"}})).await;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("a.test", "v1", "Thing"), "things");
    let things: Api<DynamicObject> = Api::namespaced_with(client.clone(), "a", &resource);
    let thing = json!({"apiVersion": "a.test/v1", "kind": "Thing", "metadata": {"name": "t", "finalizers": ["a.test/hold"]}});
    create(&things, thing).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "a");
    for n in 0..1200 {
        create(&maps, json!({"metadata": {"name": format!("m{n}")}})).await;
    }
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    let told = eventually("what holds it is told", || async {
        let status = namespaces.get("a").await.unwrap().status?;
        let held = status.conditions?.into_iter().find(|c| c.type_ == "NamespaceContentRemaining")?;
        held.message.filter(|message| message.contains("things.a.test has 1 resource"))
    })
    .await;
    assert!(!told.contains("configmaps"), "{told}");
    let free = json!({"metadata": {"finalizers": null}});
    things.patch("t", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    eventually("it is gone", || is_gone(&namespaces, "a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_of_any_kind_follow_their_owner() {
    let cluster = start().await;
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let things = define(&client, "b.test").await;
    let owner = create(&maps, json!({"metadata": {"name": "owner"}})).await;
    create(&secrets, owned_by(&owner, "child", json!({}))).await;
    let mut thing = owned_by(&owner, "thing", json!({}));
    thing["apiVersion"] = json!("b.test/v1");
    thing["kind"] = json!("Thing");
    create(&things, thing).await;
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    eventually("the secret is gone", || is_gone(&secrets, "child")).await;
    eventually("the custom object is gone", || is_gone(&things, "thing")).await;
    // The kind goes, and comes again.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.delete("things.b.test", &DeleteParams::default()).await.unwrap();
    eventually("the kind is gone", || is_gone(&definitions, "things.b.test")).await;
    let things = define(&client, "b.test").await;
    let mut thing = owned_by(&owner, "thing", json!({}));
    thing["apiVersion"] = json!("b.test/v1");
    thing["kind"] = json!("Thing");
    create(&things, thing).await;
    eventually("its owner is long gone", || is_gone(&things, "thing")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_owner_is_verified_and_an_unknown_kind_holds() {
    let cluster = start().await;
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = create(&maps, json!({"metadata": {"name": "owner"}})).await;
    let mut stranger = owner.clone();
    stranger.metadata.uid = Some("00000000-0000-4000-8000-000000000000".to_owned());
    create(&maps, owned_by(&stranger, "of-another-uid", json!({}))).await;
    create(&maps, owned_by(&owner, "kept", json!({}))).await;
    let mut unknown = owned_by(&owner, "of-unknown-kind", json!({}));
    unknown["metadata"]["ownerReferences"][0]["apiVersion"] = json!("nowhere.test/v1");
    unknown["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-4000-8000-000000000001");
    create(&maps, unknown).await;
    eventually("the one whose owner is another object is gone", || is_gone(&maps, "of-another-uid")).await;
    assert!(maps.get_opt("kept").await.unwrap().is_some());
    assert!(maps.get_opt("of-unknown-kind").await.unwrap().is_some());
}

/// Five thousand objects in a ring, each owned by the next.
async fn ring(maps: &Api<ConfigMap>, length: usize) {
    let first = create(maps, json!({"metadata": {"name": "r0"}})).await;
    let mut last = first.clone();
    for n in 1..length {
        last = create(maps, owned_by(&last, &format!("r{n}"), json!({}))).await;
    }
    let close = owned_by(&last, "r0", json!({}));
    maps.patch("r0", &PatchParams::default(), &Patch::Merge(close)).await.unwrap();
}

async fn empties(maps: &Api<ConfigMap>) {
    let patience = Duration::from_secs(120);
    let empty = async {
        loop {
            let left = maps.list_metadata(&ListParams::default()).await.unwrap();
            if !left.items.iter().any(|map| map.name_any().starts_with('r')) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(patience, empty).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_of_five_thousand_owners_goes_when_one_of_them_goes() {
    let cluster = start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    ring(&maps, 5000).await;
    assert_eq!(
        maps.get("r17").await.unwrap().owner_references().len(),
        1,
        "a ring that nobody touches stays"
    );
    maps.delete("r0", &DeleteParams::background()).await.unwrap();
    empties(&maps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_is_deleted_in_the_foreground_ends_too() {
    let cluster = start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    ring(&maps, 300).await;
    maps.delete("r0", &DeleteParams::foreground()).await.unwrap();
    empties(&maps).await;
}
