//! apiVersion, kind and metadata of resources embedded in others.

use serde_json::Value;

use super::{MAX_DEPTH, Schema};
use crate::invalid::{Errors, Reason};
use crate::{Path, meta, names};

/// Fields every resource has and no schema has to know, besides the metadata.
pub(super) const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// The fields of `ObjectMeta`.
pub(super) const META_FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Checks the resources embedded in an object. The object's own metadata is checked elsewhere.
pub fn validate_embedded(schema: &Schema, object: &Value, errors: &mut Errors) {
    walk(schema, object, "", 0, errors);
}

fn walk(schema: &Schema, value: &Value, path: &str, depth: usize, errors: &mut Errors) {
    if depth > MAX_DEPTH {
        return;
    }
    if schema.embedded && depth > 0 && value.is_object() {
        embedded(value, path, errors);
    }
    match value {
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                walk(schema, item, &format!("{path}[{index}]"), depth + 1, errors);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                if let Some(known) = schema.field(name) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(known, value, &path, depth + 1, errors);
                }
            }
        }
        _ => {}
    }
}

fn embedded(value: &Value, path: &str, errors: &mut Errors) {
    for field in TYPE_FIELDS {
        let place = format!("{path}.{field}");
        match value.get(field) {
            Some(Value::String(text)) if !text.is_empty() => {
                let wrong = match field {
                    "kind" => names::dns1035_label(&text.to_lowercase()),
                    _ if text.split('/').count() > 2 => vec!["unexpected GroupVersion string".to_owned()],
                    _ => Vec::new(),
                };
                for text in wrong {
                    errors.push_at(place.clone(), Reason::Invalid, format!("Invalid value: {text}"));
                }
            }
            None | Some(Value::String(_)) => {
                errors.push_at(place, Reason::Required, "Required value: must not be empty");
            }
            Some(other) => {
                let message = format!("Invalid value: {other}: must be a string");
                errors.push_at(place, Reason::TypeInvalid, message);
            }
        }
    }
    if value.get("metadata").is_some_and(|m| !m.is_object()) {
        let message = "Invalid value: must be an object";
        errors.push_at(format!("{path}.metadata"), Reason::TypeInvalid, message);
        return;
    }
    let place = format!("{path}.metadata");
    let at = Path::new(&place);
    let name = meta::name(value);
    if !name.is_empty() {
        for message in names::dns1123_subdomain(name) {
            errors.invalid_str(&at.child("name"), name, &message);
        }
    }
    if let Some(labels) = meta::labels(value) {
        meta::validate_labels(labels, &at.child("labels"), errors);
    }
    if let Some(annotations) = meta::annotations(value) {
        meta::validate_annotations(annotations, &at.child("annotations"), errors);
    }
}
