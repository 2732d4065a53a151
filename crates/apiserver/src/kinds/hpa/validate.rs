//! What is wrong with an autoscaler (v2).

use serde_json::json;
use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{field, int_at, list_at, part, str_at};
use crate::kinds::checks;
use crate::kinds::pod::quantity_sign;

const METRIC_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const MAX_STABILIZATION_SECONDS: i64 = 3600;
const MAX_PERIOD_SECONDS: i64 = 1800;

/// Checks an autoscaler.
pub fn validate(autoscaler: &Value, errors: &mut Errors) {
    let spec = part(autoscaler, "spec");
    let path = Path::new("spec");
    let minimum = int_at(spec, "minReplicas");
    if let Some(n) = minimum.filter(|n| *n < 1) {
        errors.invalid(&path.child("minReplicas"), &json!(n), "must be greater than or equal to 1");
    }
    let maximum = int_at(spec, "maxReplicas").unwrap_or(0);
    if maximum == 0 {
        errors.required(&path.child("maxReplicas"), "must be set and greater than 0");
    } else if maximum < 0 {
        errors.invalid(&path.child("maxReplicas"), &json!(maximum), "must be greater than 0");
    }
    if minimum.is_some_and(|minimum| maximum < minimum) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.invalid(&path.child("maxReplicas"), &json!(maximum), detail);
    }
    let target = part(spec, "scaleTargetRef");
    validate_reference(target, &path.child("scaleTargetRef"), errors);
    let metrics = path.child("metrics");
    for (i, metric) in list_at(spec, "metrics").iter().enumerate() {
        validate_metric(metric, &metrics.index(i), errors);
    }
    if let Some(behavior) = field(spec, "behavior") {
        let path = path.child("behavior");
        for direction in ["scaleUp", "scaleDown"] {
            if let Some(rules) = field(behavior, direction) {
                validate_scaling_rules(rules, &path.child(direction), errors);
            }
        }
    }
}

fn validate_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required_text(reference, "kind", path, errors, names::path_segment_name);
    checks::required_text(reference, "name", path, errors, names::path_segment_name);
    let version = str_at(reference, "apiVersion");
    // The one scalable kind of the group without a name.
    let core = str_at(reference, "kind") == "ReplicationController";
    let detail = match version.split('/').collect::<Vec<_>>().as_slice() {
        [group, _] if !group.is_empty() => return,
        [_] | [_, _] if core => return,
        [_] | [_, _] => "apiVersion must specify API group".to_owned(),
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid_str(&path.child("apiVersion"), version, &detail);
}

fn validate_metric(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = str_at(metric, "type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    checks::supported_text(kind, &METRIC_TYPES, &path.child("type"), errors);
    let mut present = Vec::new();
    for source in ["object", "external", "pods", "resource", "containerResource"] {
        if let Some(given) = field(metric, source) {
            if present.is_empty() {
                validate_source(source, given, &path.child(source), errors);
            }
            present.push(source);
        }
    }
    let expected = match kind {
        "Object" => "object",
        "External" => "external",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => "",
    };
    if !expected.is_empty() && !present.contains(&expected) {
        errors.required(&path.child(expected), "must populate information for the given metric source");
    }
    if present.len() != 1 {
        for other in present.iter().filter(|source| **source != expected) {
            errors.forbidden(&path.child(other), "must populate the given metric source only");
        }
    }
}

fn validate_source(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let target = part(source, "target");
    let target_path = path.child("target");
    if kind == "object" {
        let object = part(source, "describedObject");
        checks::required_text(
            object,
            "kind",
            &path.child("describedObject"),
            errors,
            names::path_segment_name,
        );
        checks::required_text(
            object,
            "name",
            &path.child("describedObject"),
            errors,
            names::path_segment_name,
        );
    }
    if matches!(kind, "object" | "external" | "pods") {
        let name = field(source, "metric").map(|m| str_at(m, "name")).unwrap_or_default();
        let path = path.child("metric");
        match name {
            "" => errors.required(&path.child("name"), "must specify a metric name"),
            name => checks::text(errors, &path.child("name"), name, names::path_segment_name(name)),
        }
    } else {
        if str_at(source, "name").is_empty() {
            errors.required(&path.child("name"), "must specify a resource name");
        }
        if kind == "containerResource" && str_at(source, "container").is_empty() {
            errors.required(&path.child("container"), "must specify a container");
        }
    }
    validate_target(target, &target_path, errors);
    let average = target_path.child("averageValue");
    let has = |name: &str| field(target, name).is_some();
    match kind {
        "object" if !has("value") && !has("averageValue") => {
            errors.required(&average, "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            errors.required(&average, "must set either a target value for metric or a per-pod target");
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&target_path.child("value"), detail);
        }
        "pods" if field(target, "averageValue").is_none_or(|v| quantity_sign(v) != 1) => {
            errors.required(&average, "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&target_path.child("averageUtilization"), detail);
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            errors.forbidden(&average, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn validate_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    match str_at(target, "type") {
        "" => errors.required(&path.child("type"), "must specify a metric target type"),
        "Utilization" | "Value" | "AverageValue" => {}
        other => {
            let detail = "must be either Utilization, Value, or AverageValue";
            errors.invalid_str(&path.child("type"), other, detail);
        }
    }
    for name in ["value", "averageValue"] {
        if let Some(amount) = field(target, name).filter(|v| quantity_sign(v) != 1) {
            errors.invalid(&path.child(name), amount, "must be positive");
        }
    }
    if let Some(n) = int_at(target, "averageUtilization").filter(|n| *n < 1) {
        errors.invalid(&path.child("averageUtilization"), &json!(n), "must be greater than 0");
    }
}

fn validate_scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int_at(rules, "stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if n < 0 {
            errors.invalid(&path, &json!(n), "must be greater than or equal to zero");
        }
        if n > MAX_STABILIZATION_SECONDS {
            let detail = format!("must be less than or equal to {MAX_STABILIZATION_SECONDS}");
            errors.invalid(&path, &json!(n), &detail);
        }
    }
    checks::optional_one_of(rules, "selectPolicy", &["Disabled", "Max", "Min"], path, errors);
    if let Some(tolerance) = field(rules, "tolerance").filter(|t| quantity_sign(t) < 0) {
        errors.invalid(&path.child("tolerance"), tolerance, checks::NOT_NEGATIVE);
    }
    let policies = list_at(rules, "policies");
    if policies.is_empty() {
        errors.required(&path.child("policies"), "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        let path = path.child("policies");
        let path = path.index(i);
        checks::supported_text(str_at(policy, "type"), &["Percent", "Pods"], &path.child("type"), errors);
        for name in ["value", "periodSeconds"] {
            let n = int_at(policy, name).unwrap_or(0);
            if n <= 0 {
                errors.invalid(&path.child(name), &json!(n), "must be greater than zero");
            }
        }
        if let Some(n) = int_at(policy, "periodSeconds").filter(|n| *n > MAX_PERIOD_SECONDS) {
            let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
            errors.invalid(&path.child("periodSeconds"), &json!(n), &detail);
        }
    }
}
