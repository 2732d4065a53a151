//! ReplicaSet, and the counters in the status of everything that keeps replicas.

use serde_json::json;
use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{child_mut, int_at, part, set_default};
use super::checks;
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::pod_template::{validate_labels_match, validate_long_running, validate_selector};

/// The rules of ReplicaSet.
pub const RULES: Rules = Rules {
    default,
    validate,
    validate_update,
    validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

/// The counters of a ReplicaSet's or ReplicationController's status.
const COUNTERS: [&str; 5] =
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];

fn default(set: &mut Value) {
    let Some(spec) = child_mut(set, "spec") else { return };
    default_template_of(spec);
    set_default(spec, "replicas", 1);
}

fn validate(set: &Value, errors: &mut Errors) {
    let spec = part(set, "spec");
    let path = Path::new("spec");
    checks::not_negative(spec, "replicas", &path, errors);
    checks::not_negative(spec, "minReadySeconds", &path, errors);
    validate_selector(spec, "empty selector is invalid for deployment", &path, errors);
    validate_labels_match(spec, &path, errors);
    validate_long_running(spec, "ReplicaSet", &path, errors);
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (part(new, "spec"), part(old, "spec"));
    checks::immutable(new, old, "selector", &Path::new("spec"), errors);
}

/// Checks the status of a ReplicaSet or ReplicationController.
pub fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    validate_counters(new, old, &COUNTERS, &COUNTERS[1..4], errors);
}

/// None of `counters` is negative, none of `bounded` is above `replicas`, no more are available than ready.
pub fn validate_counters(new: &Value, old: &Value, counters: &[&str], bounded: &[&str], errors: &mut Errors) {
    let (status, before) = (part(new, "status"), part(old, "status"));
    let path = Path::new("status");
    for name in counters {
        checks::not_negative(status, name, &path, errors);
    }
    let count = |name: &str| int_at(status, name).unwrap_or(0);
    for name in bounded {
        if count(name) > count("replicas") {
            errors.invalid(&path.child(name), &json!(count(name)), "cannot be greater than status.replicas");
        }
    }
    if bounded.contains(&"availableReplicas") && count("availableReplicas") > count("readyReplicas") {
        let value = json!(count("availableReplicas"));
        errors.invalid(&path.child("availableReplicas"), &value, "cannot be greater than readyReplicas");
    }
    checks::not_decremented(status, before, "collisionCount", &path, errors);
}
