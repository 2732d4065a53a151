//! Where a pod may run: affinity, tolerations, spreading, gates.

use std::collections::BTreeSet;

use serde_json::json;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{field, int_at, list_at, str_at};
use crate::kinds::checks;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHT: &str = "must be in the range 1-100";
const POSITIVE: &str = "must be greater than zero";

/// Checks `spec.affinity`.
pub fn validate_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = field(affinity, "nodeAffinity") {
        validate_node_affinity(node, &path.child("nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = field(affinity, kind) else { continue };
        let path = path.child(kind);
        for (i, term) in list_at(affinity, REQUIRED).iter().enumerate() {
            validate_pod_term(term, &path.child(REQUIRED).index(i), errors);
        }
        for (i, weighted) in list_at(affinity, PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED);
            let path = path.index(i);
            validate_weight(weighted, &path, errors);
            if let Some(term) = field(weighted, "podAffinityTerm") {
                validate_pod_term(term, &path.child("podAffinityTerm"), errors);
            }
        }
    }
}

fn validate_weight(weighted: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = int_at(weighted, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), &json!(weight), WEIGHT);
    }
}

fn validate_node_affinity(node: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(selector) = field(node, REQUIRED) {
        validate_node_selector(selector, &path.child(REQUIRED), errors);
    }
    for (i, preferred) in list_at(node, PREFERRED).iter().enumerate() {
        let path = path.child(PREFERRED);
        let path = path.index(i);
        validate_weight(preferred, &path, errors);
        if let Some(term) = field(preferred, "preference") {
            validate_node_term(term, &path.child("preference"), errors);
        }
    }
}

/// Checks a node selector: at least one term, each well-formed.
pub fn validate_node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let terms = list_at(selector, "nodeSelectorTerms");
    let path = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_term(term, &path.index(i), errors);
    }
}

fn validate_node_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, requirement) in list_at(term, "matchExpressions").iter().enumerate() {
        validate_node_requirement(requirement, &path.child("matchExpressions").index(i), errors);
    }
    for (i, requirement) in list_at(term, "matchFields").iter().enumerate() {
        validate_node_field(requirement, &path.child("matchFields").index(i), errors);
    }
}

fn validate_node_requirement(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = list_at(requirement, "values");
    let values_path = path.child("values");
    match str_at(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&values_path, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" => {
            for (i, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                checks::text(errors, &values_path.index(i), value, names::label_value(value));
            }
        }
        "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => errors.invalid_str(&path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = str_at(requirement, "key");
    checks::text(errors, &path.child("key"), key, names::qualified_name(key));
}

fn validate_node_field(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = list_at(requirement, "values");
    match str_at(requirement, "operator") {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        operator => errors.invalid_str(&path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = str_at(requirement, "key");
    if key == "metadata.name" {
        for (i, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            checks::text(errors, &path.child("values").index(i), value, names::dns1123_subdomain(value));
        }
    } else {
        errors.invalid_str(&path.child("key"), key, "not a valid field selector key");
    }
}

fn validate_pod_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        if let Some(given) = field(term, selector) {
            validate_label_selector(given, &path.child(selector), errors);
        }
    }
    for name in list_at(term, "namespaces").iter().filter_map(Value::as_str) {
        checks::text(errors, &path.child("namespace"), name, names::dns1123_label(name));
    }
    validate_label_keys(term, path, errors);
    let key = str_at(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    checks::text(errors, &path.child("topologyKey"), key, names::qualified_name(key));
}

fn validate_label_keys(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = list_at(v, name);
        if !keys.is_empty() && field(v, "labelSelector").is_none() {
            errors.forbidden(&path.child(name), "must not be specified when labelSelector is not set");
        }
        for (i, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            checks::text(errors, &path.child(name).index(i), key, names::qualified_name(key));
        }
    }
    for (i, key) in list_at(v, "matchLabelKeys").iter().enumerate() {
        if list_at(v, "mismatchLabelKeys").contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.child("matchLabelKeys").index(i), key, detail);
        }
    }
}

/// Checks `spec.tolerations`.
pub fn validate_tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let (key, operator) = (str_at(toleration, "key"), str_at(toleration, "operator"));
        let (value, effect) = (str_at(toleration, "value"), str_at(toleration, "effect"));
        checks::optional_text(toleration, "key", &path, errors, names::qualified_name);
        let operator_path = path.child("operator");
        if key.is_empty() && operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid_str(&operator_path, operator, detail);
        }
        if field(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_str(&path.child("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let messages = names::label_value(value);
                if !messages.is_empty() {
                    errors.invalid_str(&operator_path, value, &messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&operator_path, toleration, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => errors.not_supported(&operator_path, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            checks::supported_text(effect, &effects, &path.child("effect"), errors);
        }
    }
}

/// Checks `spec.topologySpreadConstraints`.
pub fn validate_spread(constraints: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let skew = int_at(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&path.child("maxSkew"), &json!(skew), POSITIVE);
        }
        match str_at(constraint, "topologyKey") {
            "" => errors.required(&path.child("topologyKey"), "can not be empty"),
            key => checks::text(errors, &path.child("topologyKey"), key, names::qualified_name(key)),
        }
        let unsatisfiable = str_at(constraint, "whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        checks::supported_text(unsatisfiable, &actions, &path.child("whenUnsatisfiable"), errors);
        let pair = format!("{{{}, {unsatisfiable}}}", str_at(constraint, "topologyKey"));
        if !seen.insert(pair.clone()) {
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), &json!(pair));
        }
        if let Some(domains) = int_at(constraint, "minDomains") {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.invalid(&path, &json!(domains), POSITIVE);
            }
            if unsatisfiable != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}"
                );
                errors.invalid(&path, &json!(domains), &detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            checks::optional_one_of(constraint, policy, &["Honor", "Ignore"], &path, errors);
        }
        validate_label_keys(constraint, &path, errors);
        if let Some(selector) = field(constraint, "labelSelector") {
            validate_label_selector(selector, &path.child("labelSelector"), errors);
        }
    }
}

/// Checks `spec.schedulingGates`.
pub fn validate_gates(gates: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let name = str_at(gate, "name");
        checks::text(errors, &path.index(i), name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path.index(i), &json!(name));
        }
    }
}
