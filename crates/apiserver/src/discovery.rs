//! What is served: the legacy documents, and all of it at once (aggregated discovery v2).

use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::aggregate::{self, Delegate, Delegates, Priority};
use crate::negotiate::accept_discovery;
use crate::registry::custom::version_order;
use crate::registry::{Registry, Resource, Subresource};
use crate::request::Discovery;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AVAILABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, \
     application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A group and its versions, those that clients should prefer first.
struct Group<'a> {
    name: &'a str,
    priority: i64,
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'a str,
    priority: i64,
    /// Who serves it, if not this server.
    delegate: Option<&'a Delegate>,
}

/// Answers a discovery request.
pub fn answer(
    registry: &Registry,
    delegates: &Delegates,
    document: &Discovery,
    headers: &HeaderMap,
) -> Outcome<Reply> {
    let groups = groups(registry, delegates);
    let wanted = match document {
        Discovery::Group(name) => groups.iter().find(|group| group.name == name),
        _ => None,
    };
    if matches!(document, Discovery::Group(_)) && wanted.is_none() {
        return Ok(Reply::text(404, "404 page not found\n"));
    }
    let Some(aggregated) = accept_discovery(headers) else { return Err(Failure::not_acceptable(AVAILABLE)) };
    match document {
        Discovery::Core if aggregated => Ok(aggregate(registry, &groups, headers, true)),
        Discovery::Groups if aggregated => Ok(aggregate(registry, &groups, headers, false)),
        Discovery::Core => Ok(Reply::json(
            200,
            &json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
            }),
        )),
        Discovery::Groups => {
            let groups: Vec<Value> = groups.iter().filter(|g| !g.name.is_empty()).map(group).collect();
            Ok(Reply::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        Discovery::Group(_) => {
            let mut document = wanted.map(group).unwrap_or_default();
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            Ok(Reply::json(200, &document))
        }
        Discovery::Version(group, version) => Ok(Reply::json(200, &resources(registry, group, version))),
    }
}

/// All groups, those that clients should prefer first.
fn groups<'a>(registry: &'a Registry, delegates: &'a Delegates) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut add = |name: &'a str, version: &'a str, priority: Priority, delegate: Option<&'a Delegate>| {
        let version = Version { name: version, priority: priority.version, delegate };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => {
                group.priority = group.priority.max(priority.group);
                group.versions.push(version);
            }
            None => groups.push(Group { name, priority: priority.group, versions: vec![version] }),
        }
    };
    for (group, version) in registry.group_versions() {
        if delegates.find(group, version).is_none() {
            let priority = match registry.has_builtin_group(group) {
                true => aggregate::builtin_priority(group, version),
                false => aggregate::CUSTOM,
            };
            add(group, version, priority, None);
        }
    }
    for delegate in delegates.iter() {
        add(&delegate.group, &delegate.version, delegate.priority, Some(delegate));
    }
    groups.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
    for group in &mut groups {
        group
            .versions
            .sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| version_order(a.name, b.name)));
    }
    groups
}

fn group(group: &Group<'_>) -> Value {
    let name = group.name;
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|v| json!({"groupVersion": format!("{name}/{}", v.name), "version": v.name}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn of_version<'a>(registry: &'a Registry, group: &str, version: &str) -> Vec<&'a Resource> {
    registry.iter().map(|r| &**r).filter(|r| &*r.group == group && &*r.version == version).collect()
}

fn texts(words: &[Box<str>]) -> Value {
    words.iter().map(|w| Value::from(&**w)).collect()
}

fn resources(registry: &Registry, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for resource in of_version(registry, group, version) {
        let mut entry = json!({
            "name": &*resource.plural, "singularName": &*resource.singular, "namespaced": resource.namespaced,
            "kind": &*resource.kind, "verbs": texts(&resource.verbs),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = texts(&resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = texts(&resource.categories);
        }
        list.push(entry);
        for Subresource { name, kind, group, version, verbs } in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": &**kind, "verbs": verbs,
            });
            if !group.is_empty() {
                entry["group"] = (*group).into();
                entry["version"] = (*version).into();
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
}

fn aggregate(registry: &Registry, groups: &[Group<'_>], headers: &HeaderMap, core: bool) -> Reply {
    let shown = groups.iter().filter(|group| group.name.is_empty() == core);
    let items: Vec<Value> = shown.map(|group| aggregated_group(registry, group)).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let text = document.to_string();
    let mut tag = String::from("\"");
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        tag.push_str(&format!("{byte:02X}"));
    }
    tag.push('"');
    let same = headers.get(IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == tag.as_bytes());
    let mut reply = if same { Reply::full(304, "", AGGREGATED) } else { Reply::full(200, text, AGGREGATED) };
    reply.headers.push((VARY, HeaderValue::from_static("Accept")));
    reply.headers.push((CACHE_CONTROL, HeaderValue::from_static("public")));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        reply.headers.push((ETAG, tag));
    }
    reply
}

fn aggregated_group(registry: &Registry, group: &Group<'_>) -> Value {
    let own = |version: &str| -> Vec<Value> {
        of_version(registry, group.name, version).into_iter().map(aggregated_resource).collect()
    };
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|Version { name, delegate, .. }| match delegate.map(Delegate::discovered) {
            None => json!({"version": name, "freshness": "Current", "resources": own(name)}),
            Some(found) => {
                let freshness = if found.is_current { "Current" } else { "Stale" };
                json!({"version": name, "freshness": freshness, "resources": found.resources})
            }
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    // The real server leaves out group and version for built-in kinds.
    let own = |name: &str| match resource.custom {
        Some(_) => kind(&resource.group, &resource.version, name),
        None => kind("", "", name),
    };
    let mut entry = json!({
        "resource": &*resource.plural, "singularResource": &*resource.singular,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": own(&resource.kind), "verbs": texts(&resource.verbs),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = texts(&resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = texts(&resource.categories);
    }
    if !resource.subresources.is_empty() {
        let subresources: Vec<Value> = resource
            .subresources
            .iter()
            .map(|s| {
                let kind = if s.group.is_empty() { own(&s.kind) } else { kind(s.group, s.version, &s.kind) };
                json!({"subresource": &*s.name, "responseKind": kind, "verbs": s.verbs})
            })
            .collect();
        entry["subresources"] = subresources.into();
    }
    entry
}
