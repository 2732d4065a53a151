//! What metadata may hold, and what of it may change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Map;
use crate::invalid::{Errors, Path, Reason};
use crate::{meta, names};

const ANNOTATIONS_MAX_BYTES: usize = 256 << 10;
const FIELD_MANAGER_MAX_BYTES: usize = 128;
const SUBRESOURCE_MAX_BYTES: usize = 256;
const IMMUTABLE: &str = "field is immutable";
/// In the order the real server writes them.
const OWNER_FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Checks the metadata of a new object of a built-in kind. `path` is where the metadata stands; a name must have
/// been generated already.
pub fn validate_metadata(
    obj: &Value,
    path: &Path<'_>,
    namespaced: bool,
    name_check: impl Fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    validate_custom_metadata(obj, path, namespaced, name_check, errors);
    validate_finalizer_names(obj, path, errors);
}

/// Checks the metadata of a new object of any kind: [`validate_metadata`] without the rule that finalizers of
/// built-in kinds carry a domain.
pub fn validate_custom_metadata(
    obj: &Value,
    path: &Path<'_>,
    namespaced: bool,
    name_check: impl Fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    let name = meta::name(obj);
    if name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        push_all(name_check(name), &path.child("name"), name, errors);
    }
    let namespace = meta::namespace(obj);
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&path.child("namespace"), ""),
        (true, false) => {
            push_all(names::dns1123_label(namespace), &path.child("namespace"), namespace, errors);
        }
        (false, false) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
        (false, true) => {}
    }
    if meta::generation(obj) < 0 {
        let value = json!(meta::generation(obj));
        errors.invalid(&path.child("generation"), &value, "must be greater than or equal to 0");
    }
    validate_parts(obj, path, errors);
}

/// Checks `generateName` as the beginning of a name. Most built-in kinds do; some (Service) leave it to the check of
/// the generated name.
pub fn validate_generate_name(
    obj: &Value,
    path: &Path<'_>,
    name_check: impl Fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    let prefix = meta::generate_name(obj);
    if prefix.is_empty() {
        return;
    }
    // A dash at the end is fine, something follows it.
    let checked = match prefix.strip_suffix('-') {
        Some(head) if !head.is_empty() => format!("{head}a"),
        _ => prefix.to_owned(),
    };
    push_all(name_check(&checked), &path.child("generateName"), prefix, errors);
}

/// Checks a change of the metadata of a built-in kind. The real server runs [`validate_custom_metadata_update`] and
/// then this, so that each complaint appears twice among the causes.
pub fn validate_metadata_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_custom_metadata_update(new, old, errors);
    validate_finalizer_names(new, &Path::new("metadata"), errors);
}

/// Checks a change of the metadata of any kind. That a resource version is given is checked where it is compared.
pub fn validate_custom_metadata_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("metadata");
    if meta::deletion_timestamp(old).is_some() {
        let before: BTreeSet<&str> = meta::finalizers(old).collect();
        let added: BTreeSet<&str> = meta::finalizers(new).filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.forbidden(&path.child("finalizers"), &detail);
        }
    }
    if meta::generation(new) < meta::generation(old) {
        errors.invalid(&path.child("generation"), &json!(meta::generation(new)), "must not be decremented");
    }
    let immutable = |field: &str, new: Value, old: Value, errors: &mut Errors| {
        if new != old {
            errors.invalid(&path.child(field), &new, IMMUTABLE);
        }
    };
    immutable("name", meta::name(new).into(), meta::name(old).into(), errors);
    immutable("namespace", meta::namespace(new).into(), meta::namespace(old).into(), errors);
    immutable("uid", meta::uid(new).into(), meta::uid(old).into(), errors);
    for (field, read) in [
        ("creationTimestamp", meta::creation_timestamp as fn(&Value) -> Option<&str>),
        ("deletionTimestamp", meta::deletion_timestamp),
    ] {
        immutable(field, read(new).into(), read(old).into(), errors);
    }
    let grace = meta::deletion_grace_period_seconds;
    immutable("deletionGracePeriodSeconds", grace(new).into(), grace(old).into(), errors);
    validate_parts(new, &path, errors);
}

/// Checks a map of labels.
pub fn validate_labels(labels: &Map, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels {
        push_all(names::qualified_name(key), path, key, errors);
        if let Some(value) = value.as_str() {
            push_all(names::label_value(value), path, value, errors);
        }
    }
}

/// Checks a map of annotations: the keys, and the size of all together.
pub fn validate_annotations(annotations: &Map, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations {
        push_all(names::annotation_key(key), path, key, errors);
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.too_long(path, ANNOTATIONS_MAX_BYTES);
    }
}

/// Checks the name of a field manager.
pub fn validate_field_manager(manager: &str, path: &Path<'_>, errors: &mut Errors) {
    if manager.len() > FIELD_MANAGER_MAX_BYTES {
        errors.too_long(path, FIELD_MANAGER_MAX_BYTES);
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.invalid_str(path, manager, &detail);
    }
}

/// What is checked alike for new and for changed objects.
fn validate_parts(obj: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(labels) = meta::labels(obj) {
        validate_labels(labels, &path.child("labels"), errors);
    }
    if let Some(annotations) = meta::annotations(obj) {
        validate_annotations(annotations, &path.child("annotations"), errors);
    }
    validate_owner_references(meta::owner_references(obj), &path.child("ownerReferences"), errors);
    validate_finalizers(obj, &path.child("finalizers"), errors);
    let managed = meta::metadata(obj).and_then(|m| m.get("managedFields")).and_then(Value::as_array);
    for (index, entry) in managed.into_iter().flatten().enumerate() {
        validate_managed_fields(entry, &path.child("managedFields").index(index), errors);
    }
}

fn validate_owner_references(owners: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in owners {
        let [api_version, kind, name, uid] = ["apiVersion", "kind", "name", "uid"]
            .map(|f| owner.get(f).and_then(Value::as_str).unwrap_or_default());
        if api_version.rsplit('/').next().is_none_or(str::is_empty) {
            errors.invalid_str(&path.child("apiVersion"), api_version, "version must not be empty");
        }
        for (field, value) in [("kind", kind), ("name", name), ("uid", uid)] {
            if value.is_empty() {
                errors.invalid_str(&path.child(field), value, "must not be empty");
            }
        }
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let message = format!("Invalid value: {}: {detail}", owner_text(owner));
            errors.push(path, Reason::Invalid, message);
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{kind}/{name}");
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all: Vec<String> = owners.iter().map(owner_text).collect();
                    let message = format!(
                        "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in \
                         references for {first} and {this}",
                        all.join(",")
                    );
                    errors.push(path, Reason::Invalid, message);
                }
            }
        }
    }
}

fn owner_text(owner: &Value) -> String {
    let fields = OWNER_FIELDS.iter().filter_map(|f| Some(format!("\"{f}\":{}", owner.get(f)?)));
    format!("{{{}}}", fields.collect::<Vec<String>>().join(","))
}

fn validate_finalizers(obj: &Value, path: &Path<'_>, errors: &mut Errors) {
    for finalizer in meta::finalizers(obj) {
        push_all(names::qualified_name(finalizer), path, finalizer, errors);
    }
    let has = |name: &str| meta::finalizers(obj).any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        let all = json!(meta::finalizers(obj).collect::<Vec<&str>>());
        errors.invalid(path, &all, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn validate_finalizer_names(obj: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, finalizer) in meta::finalizers(obj).enumerate() {
        push_all(names::finalizer_name(finalizer), &path.child("finalizers").index(index), finalizer, errors);
    }
}

fn validate_managed_fields(entry: &Value, path: &Path<'_>, errors: &mut Errors) {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let operation = text("operation");
    if operation != "Apply" && operation != "Update" {
        errors.invalid_str(&path.child("operation"), operation, "must be `Apply` or `Update`");
    }
    let fields_type = text("fieldsType");
    if !fields_type.is_empty() && fields_type != "FieldsV1" {
        errors.invalid_str(&path.child("fieldsType"), fields_type, "must be `FieldsV1`");
    }
    validate_field_manager(text("manager"), &path.child("manager"), errors);
    if text("subresource").len() > SUBRESOURCE_MAX_BYTES {
        errors.too_long(&path.child("subresource"), SUBRESOURCE_MAX_BYTES);
    }
}

fn push_all(messages: Vec<String>, path: &Path<'_>, value: &str, errors: &mut Errors) {
    for message in messages {
        errors.invalid_str(path, value, &message);
    }
}

#[cfg(test)]
mod tests;
