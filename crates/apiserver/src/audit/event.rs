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
        "level": if done.level == Level::Request { "Request" } else { "Metadata" },
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
    if let Some((body, format)) = &trail.body
        && let Some(object) = parsed(body, *format)
    {
        event["requestObject"] = object;
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

/// What the client sent; what nobody could read is left out.
fn parsed(body: &Bytes, format: BodyFormat) -> Option<Value> {
    match format {
        BodyFormat::Json => decode::parse_json(body).ok().map(|(value, _)| value),
        BodyFormat::Yaml => decode::parse_yaml(body).ok().map(|(value, _)| value),
        BodyFormat::Protobuf => protobuf::decode_request(body).ok().map(|(_, _, value)| value),
    }
}
