//! What delegates serve, as they tell themselves.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::remote::Remote;
use super::{Delegate, GroupHandler};
use crate::access::UserInfo;
use crate::backend::Backend;
use crate::kinds::access::{list_at, str_at};
use crate::openapi;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The resources of a group version and where its OpenAPI document is.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Entries of aggregated discovery (v2).
    pub resources: Vec<Value>,
    /// Whether this was true when it was last looked at.
    pub is_current: bool,
    /// `serverRelativeURL` of the OpenAPI v3 document.
    pub open_api: Option<String>,
}

impl Delegate {
    /// It does not answer: what was known may be out of date.
    pub fn mark_stale(&self) {
        let mut discovered = self.discovered.write();
        if discovered.is_current {
            *discovered = Arc::new(Discovered { is_current: false, ..(**discovered).clone() });
        }
    }
}

/// Reads what a remote server serves.
pub async fn refresh(delegate: &Delegate, remote: &Remote, backend: &Backend) {
    let resources = match aggregated(delegate, remote, backend).await {
        Some(resources) => Some(resources),
        None => legacy(delegate, remote, backend).await,
    };
    let Some(resources) = resources else { return delegate.mark_stale() };
    let open_api = open_api(delegate, remote, backend).await;
    *delegate.discovered.write() = Arc::new(Discovered { resources, is_current: true, open_api });
}

async fn json_document(
    remote: &Remote,
    backend: &Backend,
    path: &str,
    accept: &str,
) -> Option<(String, Value)> {
    let document = remote.get(backend, path, accept, true).await.ok()?;
    if !document.status.is_success() {
        return None;
    }
    Some((document.content_type, serde_json::from_slice(&document.body).ok()?))
}

async fn aggregated(delegate: &Delegate, remote: &Remote, backend: &Backend) -> Option<Vec<Value>> {
    let accept = format!("{AGGREGATED},application/json");
    let (content_type, document) = json_document(remote, backend, "/apis", &accept).await?;
    if !content_type.contains("APIGroupDiscoveryList") {
        return None;
    }
    let group =
        list_at(&document, "items").iter().find(|g| g["metadata"]["name"] == delegate.group.as_str())?;
    let version = list_at(group, "versions").iter().find(|v| str_at(v, "version") == delegate.version)?;
    Some(list_at(version, "resources").iter().filter(|r| r.is_object()).cloned().collect())
}

async fn legacy(delegate: &Delegate, remote: &Remote, backend: &Backend) -> Option<Vec<Value>> {
    let (_, document) = json_document(remote, backend, &delegate.root(), "application/json").await?;
    from_legacy(&delegate.group, &delegate.version, &document).ok()
}

async fn open_api(delegate: &Delegate, remote: &Remote, backend: &Backend) -> Option<String> {
    let (_, index) = json_document(remote, backend, "/openapi/v3", "application/json").await?;
    let path = &delegate.root()[1..];
    let url = str_at(index.get("paths")?.get(path)?, "serverRelativeURL");
    // Clients are sent to this server with it, so it must be the document it claims to be.
    let document = url.split('?').next().unwrap_or_default();
    (document == format!("/openapi/v3/{path}")).then(|| url.to_owned())
}

/// Asks a handler of this process.
pub async fn of_handler(group: &str, version: &str, handler: &GroupHandler) -> Result<Discovered, String> {
    let path = format!("/apis/{group}/{version}");
    let document: Value = serde_json::from_slice(&ask(handler, &path).await?).map_err(|e| e.to_string())?;
    let resources = from_legacy(group, version, &document)?;
    // A document about the kinds is welcome, but not needed.
    let open_api = ask(handler, &format!("/openapi/v3{path}")).await.ok();
    let open_api = open_api.filter(|text| serde_json::from_slice::<Value>(text).is_ok());
    let open_api = open_api.and_then(|text| openapi::url_of(group, version, &text));
    Ok(Discovered { resources, is_current: true, open_api })
}

async fn ask(handler: &GroupHandler, path: &str) -> Result<Bytes, String> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = path.parse().map_err(|e| format!("{path:?} is not a path: {e}"))?;
    request.extensions_mut().insert(UserInfo::authenticated("system:kube-aggregator", &["system:masters"]));
    let response = handler(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    if !status.is_success() {
        return Err(format!("it answered {status}"));
    }
    Ok(body)
}

/// Entries of aggregated discovery from an `APIResourceList`: subresources become part of their resource.
pub fn from_legacy(group: &str, version: &str, document: &Value) -> Result<Vec<Value>, String> {
    if str_at(document, "kind") != "APIResourceList" {
        return Err(format!("it is a {:?}", str_at(document, "kind")));
    }
    let kind_of = |entry: &Value| {
        let or = |name: &str, other: &str| match str_at(entry, name) {
            "" => other.to_owned(),
            given => given.to_owned(),
        };
        json!({"group": or("group", group), "version": or("version", version), "kind": str_at(entry, "kind")})
    };
    let mut found: Vec<Value> = Vec::new();
    for entry in list_at(document, "resources") {
        let name = str_at(entry, "name");
        if let Some((parent, subresource)) = name.split_once('/') {
            let shown = json!({
                "subresource": subresource, "responseKind": kind_of(entry), "verbs": list_at(entry, "verbs"),
            });
            if let Some(parent) = found.iter_mut().find(|r| r["resource"] == parent) {
                match parent["subresources"].as_array_mut() {
                    Some(subresources) => subresources.push(shown),
                    None => parent["subresources"] = json!([shown]),
                }
            }
            continue;
        }
        let is_namespaced = entry["namespaced"] == true;
        let mut shown = json!({
            "resource": name, "responseKind": kind_of(entry),
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": str_at(entry, "singularName"), "verbs": list_at(entry, "verbs"),
        });
        for words in ["shortNames", "categories"] {
            if !list_at(entry, words).is_empty() {
                shown[words] = list_at(entry, words).into();
            }
        }
        found.push(shown);
    }
    Ok(found)
}
