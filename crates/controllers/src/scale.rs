//! The scale subresource: how many replicas an object of any kind wants.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use serde_json::json;

/// An object that can be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Group and version of its kind; the version may be wrong, as in old references.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Why a scale could not be read.
#[derive(Debug)]
pub enum Unscaled {
    /// The cluster does not have the kind.
    NoKind(String),
    /// The server refused.
    Refused(kube::Error),
}

/// The scale of an object, and where it is kept.
pub async fn get(client: &Client, target: Target<'_>) -> Result<(ApiResource, Scale), Unscaled> {
    let resource = resource(client, target).await?;
    let scale = api(client, target, &resource).get_scale(target.name).await.map_err(Unscaled::Refused)?;
    Ok((resource, scale))
}

/// Sets the number of replicas, unless the object has changed since the scale was read.
pub async fn set(
    client: &Client,
    target: Target<'_>,
    resource: &ApiResource,
    read: &Scale,
    replicas: i32,
) -> Result<(), kube::Error> {
    let version = read.metadata.resource_version.as_ref();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
    let api = api(client, target, resource);
    api.patch_scale(target.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

fn api(client: &Client, target: Target<'_>, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), target.namespace, resource)
}

/// Where objects of the kind are. The usual kinds are known; the server is asked about others.
async fn resource(client: &Client, target: Target<'_>) -> Result<ApiResource, Unscaled> {
    let (group, version) = target.api_version.split_once('/').unwrap_or(("", target.api_version));
    let kind = GroupVersionKind::gvk(group, version, target.kind);
    if matches!(
        (group, target.kind),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") | ("", "ReplicationController")
    ) {
        return Ok(ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", target.kind)));
    }
    let found = discovery::pinned_kind(client, &kind).await;
    found
        .map(|(resource, _)| resource)
        .map_err(|_| Unscaled::NoKind(format!("no matches for kind {:?} in group {group:?}", target.kind)))
}

impl std::fmt::Display for Unscaled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unscaled::NoKind(message) => f.write_str(message),
            Unscaled::Refused(kube::Error::Api(status)) => f.write_str(&status.message),
            Unscaled::Refused(error) => error.fmt(f),
        }
    }
}
