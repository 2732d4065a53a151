//! Plain requests: typed and dynamic objects, patches, refusals, discovery.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy, ValidationDirective,
};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::{Use, shown_by};

pub const USES: &[Use] = &[
    ("a typed object is created, read, replaced and deleted", shown_by!(crud)),
    ("lists are read in pages and by selector", shown_by!(lists)),
    ("every sort of patch works, server-side apply tells of conflicts", shown_by!(patches)),
    ("a workload has a scale and a status", shown_by!(subresources)),
    ("refusals are Status objects with reason and causes", shown_by!(refusals)),
    ("kinds are found by discovery, of both sorts", shown_by!(discovery)),
    ("a token is given out for a service account", shown_by!(token)),
];

pub fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    map
}

fn deployment(name: &str, replicas: i32) -> Result<Deployment> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
            },
        },
    }))?)
}

async fn crud(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut made = maps.create(&PostParams::default(), &config_map("a", &[("k", "1")])).await?;
    made.data.get_or_insert_default().insert("k".into(), "2".into());
    let replaced = maps.replace("a", &PostParams::default(), &made).await?;
    ensure!(replaced.resource_version() != made.resource_version());
    ensure!(maps.get("a").await?.data.unwrap_or_default()["k"] == "2");
    let mut entry =
        maps.entry("a").await?.and_modify(|map| map.immutable = Some(true)).or_insert(ConfigMap::default);
    entry.commit(&PostParams::default()).await?;
    let wrong = Preconditions { uid: Some("other".into()), resource_version: None };
    let refused =
        maps.delete("a", &DeleteParams { preconditions: Some(wrong), ..DeleteParams::default() }).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.is_conflict()), "{refused:?}");
    maps.delete("a", &DeleteParams::default()).await?;
    ensure!(maps.get_opt("a").await?.is_none());
    Ok(())
}

async fn lists(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for number in 0..7 {
        let mut map = config_map(&format!("m{number}"), &[]);
        map.labels_mut().insert("odd".into(), (number % 2).to_string());
        maps.create(&PostParams::default(), &map).await?;
    }
    let mut page = maps.list(&ListParams::default().limit(3)).await?;
    let mut names: Vec<String> = page.iter().map(ResourceExt::name_any).collect();
    while let Some(token) = page.metadata.continue_.clone().filter(|token| !token.is_empty()) {
        page = maps.list(&ListParams::default().limit(3).continue_token(&token)).await?;
        names.extend(page.iter().map(ResourceExt::name_any));
    }
    ensure!(names == ["m0", "m1", "m2", "m3", "m4", "m5", "m6"], "{names:?}");
    let odd = maps.list_metadata(&ListParams::default().labels("odd=1")).await?;
    ensure!(odd.items.len() == 3, "{}", odd.items.len());
    let one = maps.list(&ListParams::default().fields("metadata.name=m4")).await?;
    ensure!(one.items.len() == 1);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("odd=0")).await?;
    ensure!(maps.list(&ListParams::default()).await?.items.len() == 3);
    Ok(())
}

async fn patches(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    maps.create(&PostParams::default(), &config_map("a", &[("k", "1"), ("gone", "x")])).await?;
    let params = PatchParams::default();
    let merged = maps.patch("a", &params, &Patch::Merge(json!({"data": {"gone": null}}))).await?;
    ensure!(merged.data.is_some_and(|data| data.len() == 1));
    let operations = serde_json::from_value(json!([{"op": "add", "path": "/data/n", "value": "2"}]))?;
    let patched = maps.patch("a", &params, &Patch::Json::<()>(operations)).await?;
    ensure!(patched.data.is_some_and(|data| data["n"] == "2"));

    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    let apply = |manager: &str| PatchParams::apply(manager);
    deployments.patch("web", &apply("one"), &Patch::Apply(deployment("web", 2)?)).await?;
    let conflict = deployments.patch("web", &apply("two"), &Patch::Apply(deployment("web", 3)?)).await;
    ensure!(matches!(&conflict, Err(kube::Error::Api(status)) if status.is_conflict()), "{conflict:?}");
    let forced =
        deployments.patch("web", &apply("two").force(), &Patch::Apply(deployment("web", 3)?)).await?;
    ensure!(forced.spec.and_then(|spec| spec.replicas) == Some(3));
    let side =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}});
    let both = deployments.patch("web", &params, &Patch::Strategic(side)).await?;
    let containers = both.spec.and_then(|spec| spec.template.spec).map(|spec| spec.containers.len());
    ensure!(containers == Some(2), "{containers:?}");
    Ok(())
}

async fn subresources(client: Client, namespace: String) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    deployments.create(&PostParams::default(), &deployment("web", 2)?).await?;
    let scale = deployments.get_scale("web").await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(2));
    let wanted = json!({"spec": {"replicas": 5}});
    deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(wanted)).await?;
    let seen = json!({"status": {"replicas": 1, "observedGeneration": 2}, "spec": {"replicas": 9}});
    let found = deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(seen)).await?;
    ensure!(found.spec.and_then(|spec| spec.replicas) == Some(5), "status changed the spec");
    ensure!(found.status.and_then(|status| status.replicas) == Some(1));
    deployments.restart("web").await?;
    let policy =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    let deleted = deployments.delete("web", &policy).await?;
    ensure!(deleted.left().is_some_and(|left| left.finalizers() == ["foregroundDeletion"]));
    Ok(())
}

async fn refusals(client: Client, namespace: String) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    maps.create(&PostParams::default(), &config_map("a", &[])).await?;
    match maps.create(&PostParams::default(), &config_map("a", &[])).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => bail!("{other:?}"),
    }
    match maps.get("no").await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            ensure!(status.message == "configmaps \"no\" not found", "{}", status.message);
        }
        other => bail!("{other:?}"),
    }
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    match deployments.create(&PostParams::default(), &deployment("web", -1)?).await {
        Err(kube::Error::Api(status)) if status.is_invalid() => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            ensure!(causes.len() == 1 && causes[0].field == "spec.replicas", "{causes:?}");
        }
        other => bail!("{other:?}"),
    }
    let strict =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    match maps.patch("a", &strict, &Patch::Merge(json!({"dta": {}}))).await {
        Err(kube::Error::Api(status)) if status.code == 422 || status.code == 400 => {}
        other => bail!("{other:?}"),
    }
    Ok(())
}

async fn discovery(client: Client, _namespace: String) -> Result<()> {
    for found in
        [Discovery::new(client.clone()).run().await?, Discovery::new(client.clone()).run_aggregated().await?]
    {
        let apps = found.get("apps").ok_or_else(|| anyhow::anyhow!("no group apps"))?;
        let (resource, capabilities) =
            apps.recommended_kind("Deployment").ok_or_else(|| anyhow::anyhow!("no Deployment"))?;
        ensure!(capabilities.supports_operation(verbs::WATCH));
        ensure!(
            capabilities
                .subresources
                .iter()
                .any(|(one, _)| one.plural == "deployments/scale" || one.plural == "scale")
        );
        Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await?;
    }
    ensure!(client.apiserver_version().await?.major == "1");
    Ok(())
}

async fn token(client: Client, namespace: String) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace);
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("robot".into());
    accounts.create(&PostParams::default(), &account).await?;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request("robot", &PostParams::default(), &request).await?;
    ensure!(answer.status.is_some_and(|status| status.token.unwrap_or_default().split('.').count() == 3));
    Ok(())
}
