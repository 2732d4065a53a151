//! The life of CustomResourceDefinitions: names are accepted and the kind is served within the request that writes the
//! definition; a deleted definition takes its objects with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::conditions::{self, Condition};
use shoal_objects::meta;
use shoal_store::{EventKind, Object, Precondition, Range, WriteError};

use crate::access::UserInfo;
use crate::aggregate;
use crate::audit::Trail;
use crate::encode;
use crate::handlers::{Call, complete, delete, served};
use crate::kinds::access::{list_at, part, str_at};
use crate::kinds::approval;
use crate::negotiate::{Accepted, Encoding, View};
use crate::registry::Resource;
use crate::registry::custom::{has_condition, resources};
use crate::request::{Query, Target};
use crate::server::Inner;
use crate::status::Outcome;

/// Where definitions are stored.
pub const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How often a write is tried when others write too.
const TRIES: usize = 100;
/// Objects deleted in one step.
const STEP: usize = 500;

/// The definitions in force, by name.
pub type Definitions = tokio::sync::Mutex<BTreeMap<String, Definition>>;

/// What is kept of a definition.
pub struct Definition {
    group: String,
    accepted: Value,
    names_accepted: bool,
    resources: Vec<Arc<Resource>>,
}

/// Takes up the definitions in the store when the server starts.
pub async fn load(server: &Arc<Inner>) {
    for object in server.store.list(TABLE, Range::All, None, 0).await.objects {
        changed(server, &object.key).await;
    }
}

/// A definition was written or deleted: settles its status and serves what it defines.
pub async fn changed(server: &Arc<Inner>, name: &str) {
    let mut held = server.definitions.lock().await;
    let group = settle(server, name, &mut held).await;
    // Names that were set free may be what others wait for.
    let waiting: Vec<String> = held
        .iter()
        .filter(|(other, d)| *other != name && d.group == group && !d.names_accepted)
        .map(|(other, _)| other.clone())
        .collect();
    for other in waiting {
        settle(server, &other, &mut held).await;
    }
    server.serve_custom(held.values().flat_map(|d| &d.resources));
    server.kinds_changed.notify_waiters();
    aggregate::custom_changed(server).await;
    let terminating = held.get(name).is_some_and(|d| d.resources.iter().any(is_terminating));
    drop(held);
    if terminating {
        tokio::spawn(clean_up(server.clone(), name.to_owned()));
    }
}

fn is_terminating(resource: &Arc<Resource>) -> bool {
    resource.custom.as_ref().is_some_and(|custom| custom.terminating)
}

/// The last object of a custom kind may have gone: a definition that waited for it can go too.
pub async fn object_removed(server: &Arc<Inner>, resource: &Resource) {
    let registry = server.registry();
    let Some(current) = registry.find(&resource.group, &resource.version, &resource.plural) else { return };
    let Some(custom) = current.custom.as_ref().filter(|custom| custom.terminating) else { return };
    if server.store.list(&current.table, Range::All, None, 1).await.objects.is_empty() {
        tokio::spawn(clean_up(server.clone(), custom.definition.to_string()));
    }
}

/// Brings the status of a definition up to date and takes up what it defines. Returns its group.
async fn settle(server: &Arc<Inner>, name: &str, held: &mut BTreeMap<String, Definition>) -> String {
    let registry = server.registry();
    let Some(resource) = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return String::new();
    };
    for _ in 0..TRIES {
        let Some(stored) = server.store.get(TABLE, name).await else { break };
        let Ok(current) = served(resource, &stored) else { break };
        let mut next = current.clone();
        accept_names(server, &mut next, name, held);
        if let Some((status, reason, message)) = approval::condition(&next) {
            let kind = "KubernetesAPIApprovalPolicyConformant";
            let condition = Condition { kind, status, reason, message: &message, observed_generation: None };
            conditions::set_condition(&mut next, &condition, server.clock.now());
        }
        complete(resource, &mut next);
        let stored = if next == current {
            stored
        } else {
            match put(server, resource, &stored, &next).await {
                Ok(written) => written,
                Err(WriteError::Changed(_) | WriteError::Exists(_)) => continue,
                Err(_) => break,
            }
        };
        let group = str_at(part(&next, "spec"), "group").to_owned();
        let definition = Definition {
            group: group.clone(),
            accepted: next["status"]["acceptedNames"].clone(),
            names_accepted: has_condition(&next, "NamesAccepted"),
            resources: resources(&next, stored.created, stored.revision),
        };
        held.insert(name.to_owned(), definition);
        return group;
    }
    held.remove(name).map(|d| d.group).unwrap_or_default()
}

async fn put(
    server: &Inner,
    resource: &Resource,
    stored: &Object,
    next: &Value,
) -> Result<Arc<Object>, WriteError> {
    let draft = encode::draft(resource, next);
    let seal = |revision, _| draft.seal(EventKind::Updated, revision);
    server.store.put(TABLE, &stored.key, Precondition::Revision(stored.revision), seal).await
}

/// Accepts the names that no other definition of the group has, and sets the conditions that follow.
fn accept_names(server: &Inner, definition: &mut Value, name: &str, held: &BTreeMap<String, Definition>) {
    let wanted = part(part(definition, "spec"), "names").clone();
    let group = str_at(part(definition, "spec"), "group").to_owned();
    let others: Vec<&Value> = held
        .iter()
        .filter(|(other, d)| *other != name && d.group == group)
        .map(|(_, d)| &d.accepted)
        .collect();
    let has_resource = |word: &str| {
        others.iter().any(|names| {
            str_at(names, "plural") == word
                || str_at(names, "singular") == word
                || list_at(names, "shortNames").iter().any(|s| s == word)
        })
    };
    let has_kind = |word: &str| {
        others.iter().any(|names| str_at(names, "kind") == word || str_at(names, "listKind") == word)
    };
    let mut accepted = part(part(definition, "status"), "acceptedNames").clone();
    let mut conflict: Option<(&str, String)> = None;
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        take_name(&wanted, &mut accepted, field, reason, &has_resource, &mut conflict);
    }
    let short: Vec<&str> = list_at(&wanted, "shortNames").iter().filter_map(Value::as_str).collect();
    match short.iter().find(|s| has_resource(s)) {
        Some(used) => conflict = Some(("ShortNamesConflict", format!("{used:?} is already in use"))),
        None => copy(&wanted, &mut accepted, "shortNames"),
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        take_name(&wanted, &mut accepted, field, reason, &has_kind, &mut conflict);
    }
    copy(&wanted, &mut accepted, "categories");
    definition["status"]["acceptedNames"] = accepted;
    match conflict {
        None => {
            set_condition(server, definition, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            let text = "the initial names have been accepted";
            set_condition(server, definition, "Established", true, "InitialNamesAccepted", text);
        }
        Some((reason, text)) => {
            set_condition(server, definition, "NamesAccepted", false, reason, &text);
            if !has_condition(definition, "Established") {
                let text = "not all names are accepted";
                set_condition(server, definition, "Established", false, "NotAccepted", text);
            }
        }
    }
}

fn take_name(
    wanted: &Value,
    accepted: &mut Value,
    field: &str,
    reason: &'static str,
    used: &dyn Fn(&str) -> bool,
    conflict: &mut Option<(&'static str, String)>,
) {
    let word = str_at(wanted, field);
    if used(word) {
        *conflict = Some((reason, format!("{word:?} is already in use")));
    } else {
        copy(wanted, accepted, field);
    }
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    if !to.is_object() {
        *to = json!({});
    }
    let Some(members) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => members.insert(field.to_owned(), value.clone()),
        None => members.remove(field),
    };
}

/// Sets a condition; the time changes with the status only.
fn set_condition(server: &Inner, definition: &mut Value, kind: &str, holds: bool, reason: &str, text: &str) {
    let status = if holds { "True" } else { "False" };
    let mut conditions = list_at(part(definition, "status"), "conditions").to_vec();
    let known = conditions.iter().position(|c| str_at(c, "type") == kind);
    // What is as it should be keeps its reason and time.
    if known.is_some_and(|at| holds && str_at(&conditions[at], "status") == status) {
        return;
    }
    let now = server.clock.now().to_string();
    let mut condition = json!({
        "type": kind, "status": status, "reason": reason, "message": text, "lastTransitionTime": now,
    });
    match known {
        Some(at) => {
            if str_at(&conditions[at], "status") == status {
                condition["lastTransitionTime"] = conditions[at]["lastTransitionTime"].clone();
            }
            conditions[at] = condition;
        }
        None => conditions.push(condition),
    }
    definition["status"]["conditions"] = conditions.into();
}

/// A definition that is to be deleted: marked, and held until its objects are gone.
pub fn mark_for_deletion(server: &Inner, definition: &Value) -> Value {
    let mut next = definition.clone();
    next["metadata"]["deletionTimestamp"] = server.clock.now().to_string().into();
    let mut finalizers: Vec<&str> = meta::finalizers(definition).collect();
    if !finalizers.contains(&CLEANUP) {
        finalizers.push(CLEANUP);
    }
    next["metadata"]["finalizers"] = finalizers.into();
    let text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(server, &mut next, "Terminating", true, "InstanceDeletionPending", text);
    next
}

/// Deletes the objects of a definition that is being deleted, and then the definition. Objects that are held by
/// finalizers come back to it when they go.
fn clean_up(server: Arc<Inner>, name: String) -> BoxFuture<'static, ()> {
    async move {
        let resource = {
            let held = server.definitions.lock().await;
            // Nothing needs to be converted in the stored version.
            let is_stored = |r: &&Arc<Resource>| {
                r.custom.as_ref().is_some_and(|custom| custom.storage_version == r.api_version)
            };
            let resources = held.get(&name).map(|d| d.resources.as_slice()).unwrap_or_default();
            resources.iter().find(is_stored).or(resources.first()).cloned()
        };
        let Some(resource) = resource else { return };
        if let Err(failure) = delete_objects(&server, &resource).await {
            tracing::warn!(definition = name, why = failure.message, "objects could not be deleted");
        }
        if server.store.list(&resource.table, Range::All, None, 1).await.objects.is_empty() {
            release(&server, &name).await;
        }
    }
    .boxed()
}

async fn delete_objects(server: &Arc<Inner>, resource: &Arc<Resource>) -> Outcome<()> {
    let (headers, warnings, trail) = (HeaderMap::new(), Mutex::new(Vec::new()), Mutex::new(Trail::default()));
    let mut after: Option<String> = None;
    loop {
        let listing = server.store.list(&resource.table, Range::All, after.as_deref(), STEP).await;
        for object in &listing.objects {
            let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
            let call = Call {
                server,
                target: Target {
                    resource: resource.clone(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    subresource: String::new(),
                    watch_prefix: false,
                },
                verb: "delete",
                query: Query::default(),
                headers: &headers,
                parts: None,
                body: bytes::Bytes::new(),
                accepted: Accepted { encoding: Encoding::Json, view: View::Full },
                user: UserInfo::authenticated("system:apiserver", &["system:masters"]),
                warnings: &warnings,
                trail: &trail,
            };
            match delete::delete_stored(&call, object.clone(), &json!({})).await {
                Ok(_) => {}
                Err(failure) if failure.code == http::StatusCode::NOT_FOUND => {}
                Err(failure) => return Err(failure),
            }
        }
        match listing.objects.last() {
            Some(last) if listing.remaining > 0 => after = Some(last.key.to_string()),
            _ => return Ok(()),
        }
    }
}

/// The objects are gone: the definition goes too, unless others hold it.
async fn release(server: &Arc<Inner>, name: &str) {
    let registry = server.registry();
    let Some(resource) = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return;
    };
    for _ in 0..TRIES {
        let Some(stored) = server.store.get(TABLE, name).await else { break };
        let Ok(current) = served(resource, &stored) else { break };
        if meta::deletion_timestamp(&current).is_none() {
            break;
        }
        let others: Vec<&str> = meta::finalizers(&current).filter(|f| *f != CLEANUP).collect();
        let written = if others.is_empty() {
            let draft = encode::draft(resource, &current);
            let seal = |revision| draft.seal(EventKind::Deleted, revision);
            server.store.delete(TABLE, &stored.key, stored.revision, seal).await
        } else {
            let mut next = current.clone();
            next["metadata"]["finalizers"] = others.into();
            next["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if next == current { Ok(stored.clone()) } else { put(server, resource, &stored, &next).await }
        };
        match written {
            Err(WriteError::Changed(_) | WriteError::Exists(_)) => {}
            _ => break,
        }
    }
    if server.store.get(TABLE, name).await.is_none() {
        changed(server, name).await;
    }
}
