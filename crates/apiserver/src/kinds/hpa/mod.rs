//! HorizontalPodAutoscaler in its two versions; v2 is stored.

mod convert;
mod validate;

use serde_json::json;
use shoal_objects::{Errors, Path, Value};

pub use convert::{v1_to_v2, v2_to_v1};

use super::Rules;
use super::access::{child_mut, existing_mut, field, list_at, set, set_default, set_default_str};
use super::checks;

/// Target utilization when no metric is given.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// The rules of autoscaling/v2.
pub const RULES: Rules = Rules { default, validate: validate::validate, validate_status, ..Rules::NONE };

/// The rules of autoscaling/v1. What is wrong is said of the fields of v2.
pub const RULES_V1: Rules = Rules {
    default: default_v1,
    validate: |v1, errors| {
        let mut v2 = v1.clone();
        v1_to_v2(&mut v2);
        validate::validate(&v2, errors);
    },
    validate_status,
    ..Rules::NONE
};

fn default_v1(autoscaler: &mut Value) {
    if let Some(spec) = child_mut(autoscaler, "spec") {
        set_default(spec, "minReplicas", 1);
    }
}

fn default(autoscaler: &mut Value) {
    let Some(spec) = child_mut(autoscaler, "spec") else { return };
    set_default(spec, "minReplicas", 1);
    if list_at(spec, "metrics").is_empty() {
        set(spec, "metrics", json!([cpu_metric(DEFAULT_CPU_UTILIZATION)]));
    }
    let Some(behavior) = existing_mut(spec, "behavior") else { return };
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    if let Some(up) = child_mut(behavior, "scaleUp") {
        set_default(up, "stabilizationWindowSeconds", 0);
        set_default_str(up, "selectPolicy", "Max");
        set_default(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = child_mut(behavior, "scaleDown") {
        set_default_str(down, "selectPolicy", "Max");
        set_default(down, "policies", json!([percent]));
    }
}

fn cpu_metric(utilization: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}},
    })
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(status) = field(new, "status") else { return };
    for name in ["currentReplicas", "desiredReplicas"] {
        checks::not_negative(status, name, &Path::new("status"), errors);
    }
}

#[cfg(test)]
mod tests;
