//! autoscaling/v1 to v2 and back. v1 knows one cpu target; everything else travels in annotations.

use serde_json::{Value, json};
use shoal_objects::Map;

use super::cpu_metric;
use crate::kinds::access::{
    child_mut, existing_mut, field, int_at, object_at, remove, set, set_default, str_at,
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// A field of v2 by the path inside its metric source, and its name in v1.
type Renames = &'static [(&'static str, &'static str)];

/// How the fields of each kind of metric source are called in v2 and in v1.
const SPEC_FIELDS: [(&str, Renames); 5] = [
    (
        "object",
        &[
            ("describedObject", "target"),
            ("metric/name", "metricName"),
            ("metric/selector", "selector"),
            ("target/value", "targetValue"),
            ("target/averageValue", "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metric/name", "metricName"),
            ("metric/selector", "selector"),
            ("target/averageValue", "targetAverageValue"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name"),
            ("target/averageUtilization", "targetAverageUtilization"),
            ("target/averageValue", "targetAverageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("target/averageUtilization", "targetAverageUtilization"),
            ("target/averageValue", "targetAverageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metric/name", "metricName"),
            ("metric/selector", "metricSelector"),
            ("target/value", "targetValue"),
            ("target/averageValue", "targetAverageValue"),
        ],
    ),
];

/// The same for the status.
const STATUS_FIELDS: [(&str, Renames); 5] = [
    (
        "object",
        &[
            ("describedObject", "target"),
            ("metric/name", "metricName"),
            ("metric/selector", "selector"),
            ("current/value", "currentValue"),
            ("current/averageValue", "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metric/name", "metricName"),
            ("metric/selector", "selector"),
            ("current/averageValue", "currentAverageValue"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name"),
            ("current/averageUtilization", "currentAverageUtilization"),
            ("current/averageValue", "currentAverageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("current/averageUtilization", "currentAverageUtilization"),
            ("current/averageValue", "currentAverageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metric/name", "metricName"),
            ("metric/selector", "metricSelector"),
            ("current/value", "currentValue"),
            ("current/averageValue", "currentAverageValue"),
        ],
    ),
];

/// Makes an object of autoscaling/v1 one of autoscaling/v2. Without any metric it gets the default one.
pub fn v1_to_v2(autoscaler: &mut Value) {
    set(autoscaler, "apiVersion", "autoscaling/v2");
    let mut metrics: Vec<Value> =
        take_list(autoscaler, METRICS).iter().map(|metric| metric_to_v2(metric, &SPEC_FIELDS)).collect();
    let behavior = take(autoscaler, BEHAVIOR);
    if let Some(spec) = existing_mut(autoscaler, "spec") {
        if let Some(target) = remove(spec, "targetCPUUtilizationPercentage").and_then(|t| t.as_i64()) {
            metrics.push(cpu_metric(target));
        }
        if metrics.is_empty() {
            metrics.push(cpu_metric(super::DEFAULT_CPU_UTILIZATION));
        }
        set(spec, "metrics", metrics);
        if let Some(behavior) = behavior {
            set(spec, "behavior", with_keys(behavior, &lower_first));
        }
    }
    let current = take_list(autoscaler, CURRENT_METRICS);
    let conditions = take_list(autoscaler, CONDITIONS);
    drop_empty_annotations(autoscaler);
    let Some(status) = existing_mut(autoscaler, "status") else { return };
    if int_at(status, "currentReplicas") == Some(0) {
        remove(status, "currentReplicas");
    }
    let cpu = remove(status, "currentCPUUtilizationPercentage");
    if !current.is_empty() {
        let current: Vec<Value> = current.iter().map(|m| metric_to_v2(m, &STATUS_FIELDS)).collect();
        set(status, "currentMetrics", current);
    } else if let Some(cpu) = cpu {
        let metric = json!({
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": cpu}},
        });
        set(status, "currentMetrics", json!([metric]));
    }
    if !conditions.is_empty() {
        set(status, "conditions", conditions);
    }
}

/// Makes an object of autoscaling/v2 one of autoscaling/v1.
pub fn v2_to_v1(autoscaler: &mut Value) {
    set(autoscaler, "apiVersion", "autoscaling/v1");
    let mut others = Vec::new();
    let mut behavior = None;
    if let Some(spec) = existing_mut(autoscaler, "spec") {
        let metrics = remove(spec, "metrics");
        behavior = remove(spec, "behavior");
        for metric in metrics.as_ref().and_then(Value::as_array).into_iter().flatten() {
            match cpu_utilization(metric, "target") {
                Some(target) if field(spec, "targetCPUUtilizationPercentage").is_none() => {
                    set(spec, "targetCPUUtilizationPercentage", target);
                }
                Some(_) => {}
                None => others.push(metric_to_v1(metric, &SPEC_FIELDS)),
            }
        }
    }
    if !others.is_empty() {
        annotate(autoscaler, METRICS, &Value::Array(others));
    }
    if let Some(behavior) = behavior {
        annotate(autoscaler, BEHAVIOR, &with_keys(behavior, &upper_first));
    }
    let Some(status) = existing_mut(autoscaler, "status") else { return };
    set_default(status, "currentReplicas", 0);
    set_default(status, "desiredReplicas", 0);
    let current = remove(status, "currentMetrics").and_then(|c| c.as_array().cloned()).unwrap_or_default();
    let conditions = remove(status, "conditions").filter(|c| c.as_array().is_some_and(|c| !c.is_empty()));
    if let Some(cpu) = current.iter().find_map(|metric| cpu_utilization(metric, "current")) {
        set(status, "currentCPUUtilizationPercentage", cpu);
    }
    if !current.is_empty() {
        let current = current.iter().map(|metric| metric_to_v1(metric, &STATUS_FIELDS)).collect();
        annotate(autoscaler, CURRENT_METRICS, &Value::Array(current));
    }
    if let Some(conditions) = conditions {
        annotate(autoscaler, CONDITIONS, &conditions);
    }
}

fn cpu_utilization(metric: &Value, part: &str) -> Option<i64> {
    let resource = field(metric, "resource")?;
    let is_cpu = str_at(metric, "type") == "Resource" && str_at(resource, "name") == "cpu";
    if is_cpu { int_at(field(resource, part)?, "averageUtilization") } else { None }
}

fn metric_to_v1(metric: &Value, fields: &[(&str, Renames)]) -> Value {
    let mut out = json!({"type": str_at(metric, "type")});
    for (source, renames) in fields {
        let Some(given) = field(metric, source) else { continue };
        let mut renamed = Map::new();
        for (v2, v1) in *renames {
            if let Some(value) = given.pointer(&format!("/{v2}")) {
                renamed.insert((*v1).to_owned(), value.clone());
            }
        }
        set(&mut out, source, renamed);
    }
    out
}

fn metric_to_v2(metric: &Value, fields: &[(&str, Renames)]) -> Value {
    let mut out = json!({"type": str_at(metric, "type")});
    for (source, renames) in fields {
        let Some(given) = field(metric, source) else { continue };
        let mut renamed = json!({});
        for (v2, v1) in *renames {
            let Some(value) = field(given, v1) else { continue };
            let place = match v2.split_once('/') {
                Some((parent, name)) => child_mut(&mut renamed, parent).map(|parent| (parent, name)),
                None => Some((&mut renamed, *v2)),
            };
            if let Some((parent, name)) = place {
                set(parent, name, value.clone());
            }
        }
        if let Some(target) = existing_mut(&mut renamed, "target") {
            let kind = if field(target, "averageUtilization").is_some() {
                "Utilization"
            } else if field(target, "averageValue").is_some() {
                remove(target, "value");
                "AverageValue"
            } else {
                "Value"
            };
            set(target, "type", kind);
        }
        set(&mut out, source, renamed);
    }
    out
}

/// Takes the JSON out of an annotation; what does not parse is dropped.
fn take(autoscaler: &mut Value, annotation: &str) -> Option<Value> {
    let annotations = existing_mut(autoscaler, "metadata").and_then(|m| existing_mut(m, "annotations"))?;
    let text = remove(annotations, annotation)?;
    serde_json::from_str(text.as_str()?).ok()
}

fn take_list(autoscaler: &mut Value, annotation: &str) -> Vec<Value> {
    match take(autoscaler, annotation) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn drop_empty_annotations(autoscaler: &mut Value) {
    if let Some(metadata) = existing_mut(autoscaler, "metadata")
        && object_at(metadata, "annotations").is_some_and(Map::is_empty)
    {
        remove(metadata, "annotations");
    }
}

fn annotate(autoscaler: &mut Value, annotation: &str, value: &Value) {
    if let Some(annotations) = child_mut(autoscaler, "metadata").and_then(|m| child_mut(m, "annotations")) {
        set(annotations, annotation, value.to_string());
    }
}

/// Renames the keys of all objects in a value. The behaviour is kept under the names of Go fields.
fn with_keys(value: Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(k, v)| (rename(&k), with_keys(v, rename))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|v| with_keys(v, rename)).collect()),
        other => other,
    }
}

fn upper_first(key: &str) -> String {
    let mut chars = key.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn lower_first(key: &str) -> String {
    let mut chars = key.chars();
    chars.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(chars).collect()
}
