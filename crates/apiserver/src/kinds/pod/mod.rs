//! Pods, and the pod spec that everything that makes pods carries.

mod binding;
mod containers;
pub mod defaults;
mod env;
mod mounts;
mod probes;
mod qos;
pub mod resources;
mod scheduling;
mod security;
mod status;
#[cfg(test)]
mod tests;
mod update;
pub mod validate;
mod volumes;
pub mod warnings;

use serde_json::{Value, json};
use shoal_objects::Map;

pub use binding::{BindError, bind};
pub use qos::qos_class;
pub use resources::quantity_sign;
pub use scheduling::{validate_node_selector, validate_tolerations};
pub use update::{
    prepare_ephemeral_containers, prepare_resize, validate_ephemeral_containers_update, validate_resize,
};

use super::Rules;
use crate::kinds::access::{
    child_mut, existing_mut, field, list_at, list_mut, part, set, set_default, str_at,
};

/// The rules of Pod.
pub const RULES: Rules = Rules {
    default: defaults::default_pod,
    prepare_create,
    prepare_status,
    validate: validate::validate_pod,
    validate_update: update::validate_pod_update,
    validate_status: status::validate_pod_status,
    warnings: warnings::of_pod,
    ..Rules::NONE
};

/// A new pod is pending; its quality-of-service class is fixed now.
fn prepare_create(pod: &mut Value) {
    let class = qos_class(part(pod, "spec"));
    let mut status = json!({"phase": "Pending", "qosClass": class});
    let gated = field(pod, "spec").is_some_and(|spec| !list_at(spec, "schedulingGates").is_empty());
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": null,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    set(pod, "status", status);
    merge_label_keys(pod);
}

/// The class of a pod never changes and a kubelet may leave it out.
fn prepare_status(new: &mut Value, old: &Value) {
    let class = field(old, "status").map(|s| str_at(s, "qosClass").to_owned()).unwrap_or_default();
    if let Some(status) = child_mut(new, "status")
        && str_at(status, "qosClass").is_empty()
        && !class.is_empty()
    {
        set(status, "qosClass", class);
    }
}

/// `matchLabelKeys` stand for the pod's own values of these labels; they become part of the selector once and for all.
fn merge_label_keys(pod: &mut Value) {
    let labels = field(pod, "metadata").and_then(|m| field(m, "labels")).and_then(Value::as_object).cloned();
    let labels = labels.unwrap_or_default();
    let Some(spec) = existing_mut(pod, "spec") else { return };
    for constraint in list_mut(spec, "topologySpreadConstraints") {
        merge_into_selector(constraint, &labels);
    }
    let Some(affinity) = existing_mut(spec, "affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = existing_mut(affinity, kind) else { continue };
        for term in list_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge_into_selector(term, &labels);
        }
        for weighted in list_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = existing_mut(weighted, "podAffinityTerm") {
                merge_into_selector(term, &labels);
            }
        }
    }
}

fn merge_into_selector(term: &mut Value, labels: &Map) {
    let mut requirements = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list_at(term, keys).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if requirements.is_empty() {
        return;
    }
    if let Some(selector) = existing_mut(term, "labelSelector") {
        set_default(selector, "matchExpressions", json!([]));
        if let Some(expressions) = selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
            expressions.extend(requirements);
        }
    }
}
