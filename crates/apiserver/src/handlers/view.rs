//! What a response shows of objects: all of them, their metadata only, or a table for people.

use http::StatusCode;
use serde_json::{Value, json};

use crate::handlers::Call;
use crate::kinds::access::str_at;
use crate::negotiate::View;
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{Failure, Outcome};
use crate::table::{self, Include, Options, partial};

/// One object. A `Status` is shown as it is, whatever was asked for.
pub fn object(call: &Call<'_>, object: &Value) -> Outcome<Value> {
    if str_at(object, "kind") == "Status" && str_at(object, "apiVersion") == "v1" {
        return Ok(object.clone());
    }
    match call.accepted.view {
        View::Full => Ok(object.clone()),
        View::Partial(version) => Ok(partial(object, version)),
        View::PartialList(_) => Err(not_a_list(&call.target.resource)),
        View::Table(version) => {
            let include = Include::parse(call.query.get("includeObject"))?;
            let options = Options { version, include, headers: true };
            Ok(table_of_one(&call.target.resource, object, options, call.server))
        }
    }
}

/// A list of objects.
pub fn list(call: &Call<'_>, objects: &[Value], metadata: Value) -> Outcome<Value> {
    match call.accepted.view {
        View::Table(version) => {
            let include = Include::parse(call.query.get("includeObject"))?;
            let options = Options { version, include, headers: true };
            let resource = &call.target.resource;
            let now = call.server.clock.now();
            Ok(match &resource.custom {
                Some(custom) => table::custom::table(custom, objects, metadata, options, now),
                None => table::table(&resource.group, &resource.kind, objects, metadata, options, now),
            })
        }
        View::PartialList(version) => {
            let items: Vec<Value> = objects.iter().map(|o| partial(o, version)).collect();
            let api_version = format!("meta.k8s.io/{version}");
            Ok(json!({
                "kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": items,
            }))
        }
        View::Partial(_) => {
            let list = format!("{}List", go_type(&call.target.resource));
            Err(not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({list})"
            )))
        }
        View::Full => Ok(json!({"metadata": metadata, "items": objects})),
    }
}

/// Whether the events of a watch can be shown as asked for, and what their rows carry.
pub fn for_watch(call: &Call<'_>) -> Outcome<Include> {
    match call.accepted.view {
        View::PartialList(_) => Err(not_a_list(&call.target.resource)),
        View::Table(_) => Include::parse(call.query.get("includeObject")),
        View::Full | View::Partial(_) => Ok(Include::Metadata),
    }
}

/// The object of a watch event. The columns of a table are described when `headers` is set.
pub fn event_object(
    server: &Inner,
    resource: &Resource,
    view: View,
    include: Include,
    object: Value,
    headers: bool,
) -> Value {
    match view {
        View::Full => object,
        View::Partial(version) | View::PartialList(version) => partial(&object, version),
        View::Table(version) => {
            table_of_one(resource, &object, Options { version, include, headers }, server)
        }
    }
}

/// Subresources show kinds other than the resource's, so the object tells what it is.
fn table_of_one(resource: &Resource, object: &Value, options: Options, server: &Inner) -> Value {
    let group = str_at(object, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    let now = server.clock.now();
    let objects = std::slice::from_ref(object);
    match &resource.custom {
        Some(custom) if str_at(object, "kind") == &*resource.kind => {
            table::custom::table(custom, objects, metadata, options, now)
        }
        _ => table::table(group, str_at(object, "kind"), objects, metadata, options, now),
    }
}

fn not_a_list(resource: &Resource) -> Failure {
    let kind = go_type(resource);
    not_acceptable(format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list ({kind})"
    ))
}

fn not_acceptable(message: String) -> Failure {
    Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// The internal Go type that the real server names in these errors.
fn go_type(resource: &Resource) -> String {
    let package = resource.group.split('.').next().filter(|p| !p.is_empty()).unwrap_or("core");
    format!("*{package}.{}", resource.kind)
}
