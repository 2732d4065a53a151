//! From a finished request to its line in the log.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Done, Level, ObjectRef};
use crate::access::UserInfo;
use crate::negotiate::BodyFormat;
use crate::{decode, protobuf};

/// The event as one line of JSON, with its line end.
pub fn line(done: &Done) -> Vec<u8> {
    let mut line = serde_json::to_vec(&event(done)).unwrap_or_default();
    line.push(b'\n');
    line
}

fn event(done: &Done) -> Value {
    let trail = &done.trail;
    let mut event = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": match done.level {
            Level::RequestResponse => "RequestResponse",
            Level::Request => "Request",
            Level::Metadata | Level::None => "Metadata",
        },
        "auditID": done.id,
        "stage": done.stage,
        "requestURI": done.uri,
        "verb": trail.verb,
        "user": trail.caller.as_ref().map_or_else(|| json!({}), user),
        "requestReceivedTimestamp": done.received.to_micro_string(),
        "stageTimestamp": done.now.to_micro_string(),
    });
    if let Some(acting) = &trail.impersonated {
        event["impersonatedUser"] = user(acting);
    }
    if let Some(address) = &done.source {
        event["sourceIPs"] = json!([address]);
    }
    if let Some(agent) = &done.user_agent {
        event["userAgent"] = agent.as_str().into();
    }
    if let Some(object) = &trail.object {
        event["objectRef"] = object_ref(object);
    }
    event["responseStatus"] = json!({"metadata": {}, "code": done.outcome.code});
    if done.outcome.code >= 400 {
        event["responseStatus"]["status"] = "Failure".into();
        for (field, text) in [("reason", done.outcome.reason), ("message", &done.outcome.message)] {
            if !text.is_empty() {
                event["responseStatus"][field] = text.into();
            }
        }
    }
    for (field, body) in [("requestObject", &trail.body), ("responseObject", &done.answer)] {
        if let Some((body, format)) = body
            && let Some(mut object) = parsed(body, *format)
        {
            if done.omit_managed_fields {
                omit_managed_fields(&mut object);
            }
            event[field] = object;
        }
    }
    if !trail.annotations.is_empty() {
        let notes = trail.annotations.iter();
        event["annotations"] =
            notes.map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect::<Map<_, _>>().into();
    }
    event
}

fn user(user: &UserInfo) -> Value {
    serde_json::to_value(user).unwrap_or_default()
}

fn object_ref(object: &ObjectRef) -> Value {
    let fields = [
        ("resource", &object.resource),
        ("namespace", &object.namespace),
        ("name", &object.name),
        ("apiGroup", &object.group),
        ("apiVersion", &object.version),
        ("subresource", &object.subresource),
    ];
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(field, text)| (field.to_owned(), Value::from(text.as_str()))).collect::<Map<_, _>>().into()
}

/// Of the object itself, or of those in a list.
fn omit_managed_fields(object: &mut Value) {
    let items = object.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
    let mut items = items.unwrap_or_default();
    for one in items.iter_mut().chain([&mut *object]) {
        if let Some(metadata) = one.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    if let Some(list) = object.get_mut("items").and_then(Value::as_array_mut) {
        *list = items;
    }
}

/// What was sent or answered; what nobody could read is left out.
fn parsed(body: &Bytes, format: BodyFormat) -> Option<Value> {
    match format {
        BodyFormat::Json => decode::parse_json(body).ok().map(|(value, _)| value),
        BodyFormat::Yaml => decode::parse_yaml(body).ok().map(|(value, _)| value),
        BodyFormat::Protobuf => protobuf::decode_request(body).ok(),
    }
}
