//! What webhooks and admission policies share: which requests they are about.

use std::collections::BTreeSet;

use serde_json::json;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{field, is_set, list_at, list_mut, set_default, str_at};
use super::checks;
use super::seen::Seen;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const MAX_CONDITIONS: usize = 64;

/// Policy and selectors of a webhook or of the resources a policy matches.
pub(super) fn default_matching(v: &mut Value) {
    set_default(v, "matchPolicy", "Equivalent");
    set_default(v, "namespaceSelector", json!({}));
    set_default(v, "objectSelector", json!({}));
}

/// Rules are about all scopes unless told otherwise.
pub(super) fn default_rules(v: &mut Value, list: &str) {
    for rule in list_mut(v, list) {
        set_default(rule, "scope", "*");
    }
}

/// `matchConstraints` or `matchResources` of a policy or binding.
pub(super) fn default_match_resources(v: &mut Value) {
    default_matching(v);
    for list in ["resourceRules", "excludeResourceRules"] {
        default_rules(v, list);
    }
}

/// Checks what [`default_matching`] fills.
pub(super) fn validate_matching(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::optional_one_of(v, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for name in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = field(v, name) {
            validate_label_selector(selector, &path.child(name), errors);
        }
    }
}

/// Checks the resources a policy or binding matches.
pub(super) fn validate_match_resources(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::one_of(v, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for name in ["namespaceSelector", "objectSelector"] {
        match field(v, name) {
            Some(selector) => validate_label_selector(selector, &path.child(name), errors),
            None => errors.required(&path.child(name), ""),
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        validate_rules(v, name, path, errors);
    }
}

/// Checks a list of rules with operations.
pub(super) fn validate_rules(v: &Value, list: &str, path: &Path<'_>, errors: &mut Errors) {
    let rules = path.child(list);
    for (i, rule) in list_at(v, list).iter().enumerate() {
        let path = rules.index(i);
        validate_rule(rule, &path, errors);
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let values = list_at(rule, name);
        let list = path.child(name);
        if values.is_empty() {
            errors.required(&list, "");
        } else if values.len() > 1 && values.iter().any(|value| value == "*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&list, &Value::from(values.to_vec()), &detail);
        }
        for (i, value) in values.iter().enumerate() {
            let text = value.as_str().unwrap_or_default();
            match name {
                "operations" => checks::supported_text(text, &OPERATIONS, &list.index(i), errors),
                "apiVersions" if text.is_empty() => errors.required(&list.index(i), ""),
                _ => {}
            }
        }
    }
    validate_resources(rule, &path.child("resources"), errors);
    if let Some(scope) = field(rule, "scope").and_then(Value::as_str) {
        checks::supported_text(scope, &SCOPES, &path.child("scope"), errors);
    }
}

fn validate_resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources: Vec<&str> =
        list_at(rule, "resources").iter().map(|resource| resource.as_str().unwrap_or_default()).collect();
    if resources.is_empty() {
        errors.required(path, "");
        return;
    }
    let given = json!(resources);
    let bare_star = resources.contains(&"*");
    let with_all: BTreeSet<&str> =
        resources.iter().filter_map(|resource| resource.strip_suffix("/*")).collect();
    for (i, resource) in resources.iter().enumerate() {
        let path = path.index(i);
        if resource.is_empty() {
            errors.required(&path, "");
        } else if let Some((parent, sub)) = resource.split_once('/')
            && sub != "*"
            && with_all.contains(parent)
        {
            let detail = format!("if '{parent}/*' is present, must not specify {resource}");
            errors.invalid_str(&path, resource, &detail);
        }
    }
    if resources.contains(&"*/*") && resources.len() > 1 {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, &given, detail);
    }
    if bare_star && resources.iter().any(|resource| *resource != "*" && !resource.contains('/')) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, &given, detail);
    }
}

/// `matchConditions`: named once, and not empty. Expressions are compiled elsewhere.
pub(super) fn validate_conditions(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    let conditions = list_at(v, "matchConditions");
    let list = path.child("matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(&list, conditions.len(), MAX_CONDITIONS);
        return;
    }
    let mut seen = Seen::default();
    for (i, condition) in conditions.iter().enumerate() {
        let path = list.index(i);
        if str_at(condition, "expression").trim().is_empty() {
            errors.required(&path.child("expression"), "");
        }
        let name = str_at(condition, "name");
        if is_set(condition, "name") {
            checks::text(errors, &path.child("name"), name, names::qualified_name(name));
            if seen.again(name) {
                errors.duplicate(&path.child("name"), &name.into());
            }
        } else {
            errors.required(&path.child("name"), "");
        }
    }
}
