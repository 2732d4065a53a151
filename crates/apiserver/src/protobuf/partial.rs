//! Objects of which only the metadata is shown. They stand in no schema of their own.

use std::sync::LazyLock;

use shoal_objects::schema::TypeId;
use shoal_objects::{Map, Value};

use super::encode;
use super::wire::nested;
use crate::builtin;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

static OBJECT_META: LazyLock<Option<TypeId>> =
    LazyLock::new(|| builtin::types().find(&format!("{META}.ObjectMeta")));
static LIST_META: LazyLock<Option<TypeId>> =
    LazyLock::new(|| builtin::types().find(&format!("{META}.ListMeta")));

/// Writes a `PartialObjectMetadata`.
pub fn object(members: &Map, out: &mut Vec<u8>) {
    metadata(*OBJECT_META, members, out);
}

/// Writes a `PartialObjectMetadataList`.
pub fn list(members: &Map, out: &mut Vec<u8>) {
    metadata(*LIST_META, members, out);
    for item in members.get("items").and_then(Value::as_array).into_iter().flatten() {
        if let Some(item) = item.as_object() {
            nested(out, 2, |out| object(item, out));
        }
    }
}

fn metadata(id: Option<TypeId>, members: &Map, out: &mut Vec<u8>) {
    if let (Some(id), Some(Value::Object(metadata))) = (id, members.get("metadata")) {
        nested(out, 1, |out| encode::message(id, metadata, out));
    }
}
