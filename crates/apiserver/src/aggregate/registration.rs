//! APIServices of what this server serves itself: made and removed with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use shoal_objects::conditions::{self, Condition};
use shoal_objects::meta;
use shoal_store::{EventKind, Object, Precondition, Range, WriteError};

use super::{CUSTOM, Priority, TABLE, builtin_priority, priority};
use crate::encode;
use crate::handlers::{complete, served};
use crate::kinds::access::{field, part};
use crate::kinds::api_service;
use crate::registry::{Registry, Resource};
use crate::server::Inner;

/// Says that an APIService is kept by the server: `onstart`, or `true` for as long as the server runs.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// How often a write is tried when others write too.
const TRIES: usize = 100;

fn name_of(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

fn spec_of(group: &str, version: &str, priority: Priority) -> Value {
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": priority.group, "versionPriority": priority.version,
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    spec
}

/// Registers the built-in groups, and forgets what an earlier run served and this one does not.
pub async fn at_start(server: &Arc<Inner>) {
    let registry = server.registry();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for (group, version) in registry.group_versions() {
        wanted.insert(name_of(group, version));
        // The group of APIServices has none: without it there would be nobody to say so.
        if registry.has_builtin_group(group) && group != "apiregistration.k8s.io" {
            ensure(server, group, version, builtin_priority(group, version), "onstart").await;
        }
    }
    let Some(resource) = resource(&registry) else { return };
    for object in server.store.list(TABLE, Range::All, None, 0).await.objects {
        let Ok(service) = served(resource, &object) else { continue };
        if meta::label(&service, MANAGED).is_some() && !wanted.contains(&*object.key) {
            remove(server, resource, &object, &service).await;
        }
    }
    super::refresh(server).await;
}

/// Other custom groups are served than before.
pub async fn custom_changed(server: &Arc<Inner>) {
    let registry = server.registry();
    let custom = registry.iter().filter(|r| r.custom.is_some());
    let now: BTreeSet<(String, String)> =
        custom.map(|r| (r.group.to_string(), r.version.to_string())).collect();
    let mut registered = server.aggregator.registered.lock().await;
    if *registered == now {
        return;
    }
    for (group, version) in now.difference(&registered) {
        if !registry.has_builtin_group(group) {
            ensure(server, group, version, CUSTOM, "true").await;
        }
    }
    for (group, version) in registered.difference(&now) {
        forget(server, group, version).await;
    }
    *registered = now;
}

/// Registers what is mounted in this process.
pub async fn register_mounted(server: &Arc<Inner>, group: &str, version: &str) {
    ensure(server, group, version, priority::MOUNTED, "true").await;
}

/// Someone wrote or deleted this APIService: what the server keeps is put right, and what is local is available.
pub async fn keep(server: &Arc<Inner>, name: &str) {
    let Some((version, group)) = name.split_once('.') else { return };
    let wanted = {
        let is_custom =
            server.aggregator.registered.lock().await.contains(&(group.to_owned(), version.to_owned()));
        let mounted = server.aggregator.mounted.lock();
        let is_mounted = mounted.iter().any(|d| d.group == group && d.version == version);
        match (is_custom, is_mounted) {
            (true, _) => Some(CUSTOM),
            (_, true) => Some(priority::MOUNTED),
            _ => None,
        }
    };
    if let Some(priority) = wanted {
        ensure(server, group, version, priority, "true").await;
    }
    tell_local(server, name).await;
}

fn resource(registry: &Registry) -> Option<&Arc<Resource>> {
    registry.find("apiregistration.k8s.io", "v1", "apiservices")
}

/// Makes the APIService, or puts one right that the server keeps. One that somebody else made stays as it is.
async fn ensure(server: &Arc<Inner>, group: &str, version: &str, priority: Priority, managed: &str) {
    let (registry, name) = (server.registry(), name_of(group, version));
    let Some(resource) = resource(&registry) else { return };
    let spec = spec_of(group, version, priority);
    for _ in 0..TRIES {
        let stored = server.store.get(TABLE, &name).await;
        let written = match &stored {
            None => create(server, resource, &name, &spec, managed).await,
            Some(stored) => {
                let Ok(current) = served(resource, stored) else { return };
                let kept = meta::label(&current, MANAGED).is_some();
                if !kept || current["spec"] == spec {
                    return;
                }
                let mut next = current;
                next["spec"] = spec.clone();
                update(server, resource, stored, next).await
            }
        };
        match written {
            Err(WriteError::Changed(_) | WriteError::Exists(_) | WriteError::Missing) => {}
            Ok(_) => return,
            Err(WriteError::Unavailable(why)) => {
                return tracing::warn!(name, why, "an APIService could not be written");
            }
        }
    }
}

async fn create(
    server: &Arc<Inner>,
    resource: &Resource,
    name: &str,
    spec: &Value,
    managed: &str,
) -> Result<Arc<Object>, WriteError> {
    let mut object = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {
            "name": name, "uid": server.entropy.uid(), "creationTimestamp": server.clock.now().to_string(),
            "labels": {MANAGED: managed},
        },
        "spec": spec, "status": {},
    });
    (api_service::RULES.prepare_create)(&mut object);
    complete(resource, &mut object);
    let draft = encode::draft(resource, &object);
    let seal = |revision, _| draft.seal(EventKind::Created, revision);
    server.store.put(TABLE, name, Precondition::Absent, seal).await
}

/// Writes a new version of an APIService, past admission: these are the server's own words.
pub async fn update(
    server: &Arc<Inner>,
    resource: &Resource,
    stored: &Object,
    mut next: Value,
) -> Result<Arc<Object>, WriteError> {
    complete(resource, &mut next);
    let draft = encode::draft(resource, &next);
    let seal = |revision, _| draft.seal(EventKind::Updated, revision);
    server.store.put(TABLE, &stored.key, Precondition::Revision(stored.revision), seal).await
}

/// What is gone has no APIService either, unless somebody else made it.
async fn forget(server: &Arc<Inner>, group: &str, version: &str) {
    let (registry, name) = (server.registry(), name_of(group, version));
    let Some(resource) = resource(&registry) else { return };
    for _ in 0..TRIES {
        let Some(stored) = server.store.get(TABLE, &name).await else { return };
        let Ok(current) = served(resource, &stored) else { return };
        if meta::label(&current, MANAGED) != Some("true") || remove(server, resource, &stored, &current).await
        {
            return;
        }
    }
}

/// Tells whether it is gone; otherwise somebody else was faster with a change.
async fn remove(server: &Arc<Inner>, resource: &Resource, stored: &Object, current: &Value) -> bool {
    let draft = encode::draft(resource, current);
    let seal = |revision| draft.seal(EventKind::Deleted, revision);
    let removed = server.store.delete(TABLE, &stored.key, stored.revision, seal).await;
    !matches!(removed, Err(WriteError::Changed(_) | WriteError::Exists(_)))
}

/// An APIService that became local is available.
async fn tell_local(server: &Arc<Inner>, name: &str) {
    let is_remote = |service: &Value| field(part(service, "spec"), "service").is_some();
    set_available(server, name, |service| {
        (!is_remote(service)).then_some(("True", "Local", api_service::LOCAL.to_owned()))
    })
    .await;
}

/// Sets the condition to what `verdict` (status, reason, message) says about the APIService as it is.
pub async fn set_available(
    server: &Arc<Inner>,
    name: &str,
    verdict: impl Fn(&Value) -> Option<(&'static str, &'static str, String)>,
) {
    let registry = server.registry();
    let Some(resource) = resource(&registry) else { return };
    for _ in 0..TRIES {
        let Some(stored) = server.store.get(TABLE, name).await else { return };
        let Ok(mut service) = served(resource, &stored) else { return };
        let Some((status, reason, message)) = verdict(&service) else { return };
        let condition =
            Condition { kind: "Available", status, reason, message: &message, observed_generation: None };
        if !conditions::set_condition(&mut service, &condition, server.clock.now()) {
            return;
        }
        match update(server, resource, &stored, service).await {
            Err(WriteError::Changed(_) | WriteError::Exists(_)) => {}
            _ => return,
        }
    }
}
