//! What a response shows of objects: all of them, their metadata only, or a table for people.

use serde_json::{Value, json};

use crate::handlers::Call;
use crate::negotiate::View;
use crate::registry::Resource;
use crate::server::Inner;
use crate::table;

/// One object.
pub fn object(call: &Call<'_>, object: &Value) -> Value {
    match call.accepted.view {
        View::Full => object.clone(),
        View::Partial(version) => partial(object, version),
        View::Table(version) => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let now = call.server.clock.now();
            table::table(&call.target.resource, std::slice::from_ref(object), metadata, version, true, now)
        }
    }
}

/// A list of objects.
pub fn list(call: &Call<'_>, objects: &[Value], metadata: Value) -> Value {
    match call.accepted.view {
        View::Table(version) => {
            let now = call.server.clock.now();
            table::table(&call.target.resource, objects, metadata, version, true, now)
        }
        View::Partial(version) => {
            let items: Vec<Value> = objects.iter().map(|o| partial(o, version)).collect();
            let api_version = format!("meta.k8s.io/{version}");
            json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": items})
        }
        View::Full => json!({"metadata": metadata, "items": objects}),
    }
}

/// The object of a watch event.
pub fn event_object(server: &Inner, resource: &Resource, view: View, object: Value, columns: bool) -> Value {
    match view {
        View::Full => object,
        View::Partial(version) => partial(&object, version),
        View::Table(version) => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            table::table(resource, &[object], metadata, version, columns, server.clock.now())
        }
    }
}

/// The metadata of an object and nothing else.
pub fn partial(object: &Value, version: &str) -> Value {
    let api_version = format!("meta.k8s.io/{version}");
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": object["metadata"]})
}
