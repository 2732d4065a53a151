//! POST to a collection.

use serde_json::{Value, json};
use shoal_objects::managed_fields::{Account, Entries, take_managed_fields};
use shoal_objects::{Errors, Path, meta};
use shoal_store::{EventKind, Object, Precondition, WriteError};
use std::sync::Arc;

use crate::admission;
use crate::definitions;
use crate::encode;
use crate::handlers::update::{Facet, remove};
use crate::handlers::{Call, complete, custom, default, ownership};
use crate::kinds::{NameRule, approval, definition, pod};
use crate::registry::Resource;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Generated names keep this much of their base.
const BASE_LENGTH: usize = 58;
const SUFFIX_LENGTH: usize = 5;
/// How often a generated name that is taken is drawn again.
const NAME_TRIES: usize = 8;

/// What became of a write.
pub enum Written {
    /// It is in the store.
    Stored(Arc<Object>),
    /// It would have been; or it is what a write that ended in a deletion answers.
    Shown(Value),
}

/// Answers a create request.
pub async fn create(call: &Call<'_>) -> Outcome<Reply> {
    let dry_run = call.dry_run("CreateOptions")?;
    let object = call.body()?;
    let written = insert(call, object, None, dry_run).await?;
    answer(call, 201, &written).await
}

/// The response to a write.
pub async fn answer(call: &Call<'_>, status: u16, written: &Written) -> Outcome<Reply> {
    match written {
        Written::Stored(object) => call.answer_stored(status, object).await,
        Written::Shown(value) => call.answer(status, value),
    }
}

/// Brings a decoded object into the store: defaults, ownership, admission, system fields, validation, write.
/// `applied` are the entries of an apply.
pub async fn insert(
    call: &Call<'_>,
    mut object: Value,
    applied: Option<Account>,
    dry_run: bool,
) -> Outcome<Written> {
    let resource = &*call.target.resource;
    check_namespace(call, &mut object)?;
    default(resource, &mut object);
    // What admission and the server add belongs to nobody.
    let sent = take_managed_fields(&mut object);
    let account = match applied {
        Some(account) => account,
        None => {
            let change = (&json!({}), &object);
            ownership::account(call, Facet::Main, &Entries::default(), sent.as_ref(), change).await?
        }
    };
    let generated = meta::name(&object).is_empty() && !meta::generate_name(&object).is_empty();
    admission::create(call, &mut object, dry_run).await?;
    for attempt in 1.. {
        let mut candidate = if generated { object.clone() } else { std::mem::take(&mut object) };
        fill_system_fields(call, &mut candidate)?;
        (resource.rules.prepare_create)(&mut candidate);
        let reserved = call.server.allocate(resource, &mut candidate, None, dry_run)?;
        validate(resource, &candidate)?;
        let charge = admission::validate_create(call, &candidate, dry_run).await?;
        (resource.rules.warnings)(&candidate).into_iter().for_each(|text| call.warn(text));
        let name = meta::name(&candidate).to_owned();
        let key = resource.key(meta::namespace(&candidate), &name);
        if let Some(object) = &mut call.trail.lock().object {
            object.name.clone_from(&name);
        }
        complete(resource, &mut candidate);
        custom::check_open(call, &name)?;
        if dry_run {
            if call.server.store.get(&resource.table, &key).await.is_some() {
                return Err(Failure::already_exists(resource, &name));
            }
            return Ok(Written::Shown(ownership::with_entries(candidate, &account)));
        }
        let stored = call.to_storage(candidate).await?;
        let draft = encode::draft_with(resource, &stored, &account.json);
        let put = call.server.store.put(&resource.table, &key, Precondition::Absent, |revision, _| {
            draft.seal(EventKind::Created, revision)
        });
        match put.await {
            Ok(object) => {
                // The definition may have gone, with all objects it found, just before this one came.
                if let Err(closed) = custom::check_open(call, &name) {
                    let _ = remove(call, &object).await;
                    return Err(closed);
                }
                reserved.keep();
                charge.settle(call).await;
                call.server.written(resource, &object).await;
                call.server.proven.accepted(call, &object);
                return Ok(Written::Stored(object));
            }
            Err(WriteError::Unavailable(why)) => return Err(Failure::unavailable(&why)),
            Err(_) if generated && attempt < NAME_TRIES => {}
            Err(_) => return Err(Failure::already_exists(resource, &name)),
        }
    }
    Err(Failure::internal("no free name found"))
}

/// The namespace of the body must be the one of the path, or absent.
pub fn check_namespace(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let resource = &call.target.resource;
    let wanted = call.target.namespace.as_str();
    let given = meta::namespace(object);
    if resource.namespaced && !given.is_empty() && given != wanted {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if resource.namespaced {
        object["metadata"]["namespace"] = Value::from(wanted);
    }
    Ok(())
}

fn fill_system_fields(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let resource = &call.target.resource;
    let generate = meta::generate_name(object).to_owned();
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(Failure::bad_request("metadata is not an object"));
    };
    let version = metadata.remove("resourceVersion");
    if version.as_ref().and_then(Value::as_str).is_some_and(|v| !v.is_empty()) {
        return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
    }
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields"]
    {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), call.server.entropy.uid().into());
    metadata.insert("creationTimestamp".into(), call.server.clock.now().to_string().into());
    if resource.traits.generation {
        metadata.insert("generation".into(), 1.into());
    }
    if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() && !generate.is_empty() {
        let base: String = generate.chars().take(BASE_LENGTH).collect();
        let suffix = call.server.entropy.name_suffix(SUFFIX_LENGTH);
        metadata.insert("name".into(), format!("{base}{suffix}").into());
    }
    if resource.traits.status
        && !resource.traits.keeps_status
        && let Some(members) = object.as_object_mut()
        && members.contains_key("status")
    {
        if resource.custom.is_some() {
            members.remove("status");
        } else {
            members.insert("status".into(), json!({}));
        }
        default(resource, object);
    }
    Ok(())
}

fn validate(resource: &Resource, object: &Value) -> Outcome<()> {
    let errors = match &resource.custom {
        Some(custom) => custom::validate(resource, custom, object, None),
        None => builtin_errors(resource, object),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(resource.error_group(), &resource.kind, meta::name(object), &errors))
}

fn builtin_errors(resource: &Resource, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let path = Path::new("metadata");
    meta::validate_metadata(
        object,
        &path,
        resource.namespaced,
        |name| match &*resource.table {
            definitions::TABLE => definition::name_errors(object, name),
            _ => name_errors(resource, name),
        },
        &mut errors,
    );
    (resource.rules.validate)(object, &mut errors);
    if &*resource.table == definitions::TABLE {
        approval::validate(object, &mut errors);
    }
    if &*resource.table == "pods" {
        pod::validate::validate_pod_create(object, &mut errors);
    }
    errors
}

/// What is wrong with a name of this kind.
pub fn name_errors(resource: &Resource, name: &str) -> Vec<String> {
    use shoal_objects::names;
    match resource.rules.name {
        NameRule::Subdomain => names::dns1123_subdomain(name),
        NameRule::Label => names::dns1123_label(name),
        NameRule::Label1035 => names::dns1035_label(name),
        NameRule::PathSegment => names::path_segment_name(name),
        NameRule::Free => Vec::new(),
    }
}
