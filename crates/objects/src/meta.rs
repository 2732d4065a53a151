//! Reading and checking the metadata of an object.
//!
//! The accessors take the whole object and never fail: what is missing or of the wrong type reads as absent.

use serde_json::Value;

use crate::Map;

mod validate;

pub use validate::{
    validate_annotations, validate_custom_metadata, validate_custom_metadata_update, validate_field_manager,
    validate_generate_name, validate_labels, validate_metadata, validate_metadata_update,
};

/// The object's metadata.
pub fn metadata(obj: &Value) -> Option<&Map> {
    obj.get("metadata")?.as_object()
}

/// `metadata.name`, empty when there is none.
pub fn name(obj: &Value) -> &str {
    text(obj, "name")
}

/// `metadata.generateName`, empty when there is none.
pub fn generate_name(obj: &Value) -> &str {
    text(obj, "generateName")
}

/// `metadata.namespace`, empty when there is none.
pub fn namespace(obj: &Value) -> &str {
    text(obj, "namespace")
}

/// `metadata.uid`, empty when there is none.
pub fn uid(obj: &Value) -> &str {
    text(obj, "uid")
}

/// `metadata.resourceVersion`, empty when there is none.
pub fn resource_version(obj: &Value) -> &str {
    text(obj, "resourceVersion")
}

/// `metadata.generation`, 0 when there is none.
pub fn generation(obj: &Value) -> i64 {
    field(obj, "generation").and_then(Value::as_i64).unwrap_or(0)
}

/// `metadata.creationTimestamp`, when set.
pub fn creation_timestamp(obj: &Value) -> Option<&str> {
    field(obj, "creationTimestamp")?.as_str()
}

/// `metadata.deletionTimestamp`: set when the object is being deleted.
pub fn deletion_timestamp(obj: &Value) -> Option<&str> {
    field(obj, "deletionTimestamp")?.as_str()
}

/// `metadata.deletionGracePeriodSeconds`, when set.
pub fn deletion_grace_period_seconds(obj: &Value) -> Option<i64> {
    field(obj, "deletionGracePeriodSeconds")?.as_i64()
}

/// `metadata.labels`, when there are any.
pub fn labels(obj: &Value) -> Option<&Map> {
    field(obj, "labels")?.as_object()
}

/// The value of one label.
pub fn label<'a>(obj: &'a Value, key: &str) -> Option<&'a str> {
    labels(obj)?.get(key)?.as_str()
}

/// `metadata.annotations`, when there are any.
pub fn annotations(obj: &Value) -> Option<&Map> {
    field(obj, "annotations")?.as_object()
}

/// The value of one annotation.
pub fn annotation<'a>(obj: &'a Value, key: &str) -> Option<&'a str> {
    annotations(obj)?.get(key)?.as_str()
}

/// `metadata.finalizers`, in order.
pub fn finalizers(obj: &Value) -> impl Iterator<Item = &str> {
    list(obj, "finalizers").iter().filter_map(Value::as_str)
}

/// `metadata.ownerReferences`, in order.
pub fn owner_references(obj: &Value) -> &[Value] {
    list(obj, "ownerReferences")
}

/// The owner that manages the object: the one with `controller: true`.
pub fn controller_of(obj: &Value) -> Option<&Value> {
    owner_references(obj).iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

fn field<'a>(obj: &'a Value, name: &str) -> Option<&'a Value> {
    metadata(obj)?.get(name)
}

fn text<'a>(obj: &'a Value, name: &str) -> &'a str {
    field(obj, name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(obj: &'a Value, name: &str) -> &'a [Value] {
    field(obj, name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
