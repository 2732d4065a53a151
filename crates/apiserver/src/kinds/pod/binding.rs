//! Binding a pod to a node.

use serde_json::{Value, json};
use shoal_objects::{Errors, Map, Path, Timestamp, meta};

use crate::kinds::access::{child_mut, field, list_at, list_mut, object_at, part, set, set_default, str_at};

/// Why a pod was not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The binding itself is wrong; the real server answers 500 with the bare message.
    Invalid(Errors),
    /// The pod cannot be bound now (409 on `pods/binding`).
    Conflict(String),
}

/// Puts the pod on the node that the binding names and marks it scheduled.
pub fn bind(pod: &mut Value, binding: &Value, now: Timestamp) -> Result<(), BindError> {
    let target = part(binding, "target");
    let path = Path::new("target");
    let mut errors = Errors::new();
    let kind = str_at(target, "kind");
    if !kind.is_empty() && kind != "Node" {
        errors.not_supported(&path.child("kind"), kind, &["Node", "<empty>"]);
    }
    let node = str_at(target, "name");
    if node.is_empty() {
        errors.required(&path.child("name"), "");
    }
    if !errors.is_empty() {
        return Err(BindError::Invalid(errors));
    }
    may_be_bound(pod, binding)?;
    if let Some(spec) = child_mut(pod, "spec") {
        set(spec, "nodeName", node);
    }
    if let Some(metadata) = child_mut(pod, "metadata") {
        for (key, value) in
            field(binding, "metadata").and_then(|m| object_at(m, "annotations")).unwrap_or(&Map::new())
        {
            if let Some(annotations) = child_mut(metadata, "annotations") {
                set(annotations, key, value.clone());
            }
        }
        for (key, value) in
            field(binding, "metadata").and_then(|m| object_at(m, "labels")).unwrap_or(&Map::new())
        {
            if let Some(labels) = child_mut(metadata, "labels") {
                set_default(labels, key, value.clone());
            }
        }
    }
    if let Some(status) = child_mut(pod, "status") {
        mark_scheduled(status, now);
    }
    Ok(())
}

fn may_be_bound(pod: &Value, binding: &Value) -> Result<(), BindError> {
    let name = meta::name(pod);
    let uid = meta::uid(binding);
    if !uid.is_empty() && uid != meta::uid(pod) {
        let own = meta::uid(pod);
        let text = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(BindError::Conflict(text));
    }
    if meta::deletion_timestamp(pod).is_some() {
        return Err(BindError::Conflict(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        )));
    }
    let Some(spec) = field(pod, "spec") else { return Ok(()) };
    let node = str_at(spec, "nodeName");
    if !node.is_empty() {
        return Err(BindError::Conflict(format!("pod {name} is already assigned to node {node:?}")));
    }
    if !list_at(spec, "schedulingGates").is_empty() {
        return Err(BindError::Conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    Ok(())
}

fn mark_scheduled(status: &mut Value, now: Timestamp) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": now.to_string(),
    });
    if let Some(existing) =
        list_mut(status, "conditions").iter_mut().find(|c| str_at(c, "type") == "PodScheduled")
    {
        *existing = condition;
        return;
    }
    set_default(status, "conditions", json!([]));
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.push(condition);
    }
}
