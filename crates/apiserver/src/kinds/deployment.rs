//! Deployment.

use serde_json::json;
use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{child_mut, field, int_at, part, set_default, set_default_str, str_at};
use super::checks;
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::pod_template::{validate_labels_match, validate_long_running, validate_selector};

/// The rules of Deployment.
pub const RULES: Rules = Rules {
    default,
    validate,
    validate_update,
    validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

fn default(deployment: &mut Value) {
    let Some(spec) = child_mut(deployment, "spec") else { return };
    default_template_of(spec);
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    let Some(strategy) = child_mut(spec, "strategy") else { return };
    set_default_str(strategy, "type", "RollingUpdate");
    if str_at(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child_mut(strategy, "rollingUpdate")
    {
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
}

fn validate(deployment: &Value, errors: &mut Errors) {
    let spec = part(deployment, "spec");
    let path = Path::new("spec");
    checks::not_negative(spec, "replicas", &path, errors);
    validate_selector(spec, "empty selector is invalid for deployment", &path, errors);
    validate_labels_match(spec, &path, errors);
    validate_long_running(spec, "ReplicaSet", &path, errors);
    if let Some(strategy) = field(spec, "strategy") {
        validate_strategy(strategy, &path.child("strategy"), errors);
    }
    checks::not_negative(spec, "minReadySeconds", &path, errors);
    checks::not_negative(spec, "revisionHistoryLimit", &path, errors);
    checks::not_negative(spec, "progressDeadlineSeconds", &path, errors);
    let ready = int_at(spec, "minReadySeconds").unwrap_or(0);
    if let Some(deadline) = int_at(spec, "progressDeadlineSeconds").filter(|deadline| *deadline <= ready) {
        let detail = "must be greater than minReadySeconds";
        errors.invalid(&path.child("progressDeadlineSeconds"), &json!(deadline), detail);
    }
}

fn validate_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (str_at(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("Recreate", Some(_)) => {
            errors.forbidden(&rolling_path, "may not be specified when strategy `type` is 'Recreate'");
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => {
            errors.required(&rolling_path, "this should be defaulted and never be nil");
        }
        ("RollingUpdate", Some(rolling)) => validate_rolling(rolling, &rolling_path, errors),
        (other, _) => errors.not_supported(&path.child("type"), other, &["Recreate", "RollingUpdate"]),
    }
}

fn validate_rolling(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let unavailable = part(rolling, "maxUnavailable");
    let surge = part(rolling, "maxSurge");
    let unavailable_path = path.child("maxUnavailable");
    checks::int_or_percent(unavailable, &unavailable_path, errors);
    checks::int_or_percent(surge, &path.child("maxSurge"), errors);
    if checks::int_or_percent_number(unavailable) == 0 && checks::int_or_percent_number(surge) == 0 {
        errors.invalid(&unavailable_path, unavailable, "may not be 0 when `maxSurge` is 0");
    }
    checks::not_more_than_100_percent(unavailable, &unavailable_path, errors);
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    checks::immutable(part(new, "spec"), part(old, "spec"), "selector", &Path::new("spec"), errors);
}

fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let counters = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ];
    let bounded = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    super::replica_set::validate_counters(new, old, &counters, &bounded, errors);
}
