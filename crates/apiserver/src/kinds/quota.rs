//! ResourceQuota.

use shoal_objects::{Errors, Path, Value};

use super::access::{child_mut, field, is_set, list_at, str_at};
use super::{Rules, checks, resource_lists};

/// The rules of ResourceQuota.
pub const RULES: Rules = Rules { default, validate, validate_update, validate_status, ..Rules::NONE };

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
const POD_RESOURCES: [&str; 7] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];
const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

fn default(quota: &mut Value) {
    if let Some(spec) = child_mut(quota, "spec") {
        resource_lists::round_up(spec, "hard");
    }
    if let Some(status) = child_mut(quota, "status") {
        resource_lists::round_up(status, "hard");
        resource_lists::round_up(status, "used");
    }
}

fn validate(quota: &Value, errors: &mut Errors) {
    let Some(spec) = field(quota, "spec") else { return };
    let path = Path::new("spec");
    validate_amounts(spec, "hard", &path, errors);
    let scopes: Vec<&str> = list_at(spec, "scopes").iter().filter_map(Value::as_str).collect();
    if !scopes.is_empty() {
        let scopes_path = path.child("scopes");
        let given = Value::from(list_at(spec, "scopes").to_vec());
        for scope in &scopes {
            if !SCOPES.contains(scope) {
                errors.invalid(&scopes_path, &given, "unsupported scope");
            }
            for _ in misfits(spec, scope) {
                errors.invalid(&scopes_path, &given, "unsupported scope applied to resource");
            }
        }
        conflicts(&scopes, &scopes_path, &given, errors);
    }
    if let Some(selector) = field(spec, "scopeSelector") {
        let selector_path = path.child("scopeSelector");
        validate_selector(spec, selector, &selector_path.child("matchExpressions"), errors);
    }
}

fn validate_amounts(v: &Value, list: &str, path: &Path<'_>, errors: &mut Errors) {
    let list_path = path.child(list);
    for (name, amount) in resource_lists::amounts(v, list) {
        resource_lists::validate_quota_name(name, &list_path.key(name), errors);
        resource_lists::validate_amount(name, &amount, &list_path.key(name), errors);
    }
}

/// Resources of the quota that this scope says nothing about.
fn misfits<'a>(spec: &'a Value, scope: &str) -> Vec<&'a str> {
    let fits = |name: &str| match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => POD_RESOURCES.contains(&name),
        _ => true,
    };
    let hard = field(spec, "hard").and_then(Value::as_object).into_iter().flatten();
    hard.map(|(name, _)| name.as_str())
        .filter(|name| resource_lists::is_standard_quota(name) && !fits(name))
        .collect()
}

fn conflicts(scopes: &[&str], path: &Path<'_>, given: &Value, errors: &mut Errors) {
    for (one, other) in CONFLICTS {
        if scopes.contains(&one) && scopes.contains(&other) {
            errors.invalid(path, given, "conflicting scopes");
        }
    }
}

fn validate_selector(spec: &Value, selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let expressions = list_at(selector, "matchExpressions");
    for expression in expressions {
        let (scope, operator) = (str_at(expression, "scopeName"), str_at(expression, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid_str(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in misfits(spec, scope) {
            errors.invalid(path, selector, "unsupported scope applied to resource");
        }
        if SCOPES.contains(&scope)
            && !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && operator != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid_str(&path.child("operator"), operator, detail);
        }
        let values = Value::from(list_at(expression, "values").to_vec());
        match operator {
            "In" | "NotIn" if !is_set(expression, "values") => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if is_set(expression, "values") => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), &values, detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid_str(&path.child("operator"), operator, "not a valid selector operator"),
        }
    }
    let scopes: Vec<&str> = expressions.iter().map(|expression| str_at(expression, "scopeName")).collect();
    conflicts(&scopes, path, field(spec, "scopes").unwrap_or(&Value::Null), errors);
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let scopes = |quota| {
        let spec = field(quota, "spec").unwrap_or(&Value::Null);
        let mut scopes: Vec<String> =
            list_at(spec, "scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    };
    if scopes(new) != scopes(old) {
        let spec = field(new, "spec").unwrap_or(&Value::Null);
        let given = field(spec, "scopes").unwrap_or(&Value::Null);
        errors.invalid(&Path::new("spec").child("scopes"), given, checks::IMMUTABLE);
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(status) = field(new, "status") else { return };
    let path = Path::new("status");
    validate_amounts(status, "hard", &path, errors);
    validate_amounts(status, "used", &path, errors);
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_quota_counts_known_things() {
        let quota = json!({"spec": {"hard": {
            "configmaps": "0", "secrets": "1", "count/leases.coordination.k8s.io": "1", "requests.cpu": "1",
        }}});
        assert!(causes(|e| validate(&quota, e)).is_empty());
        let bad = json!({"spec": {"hard": {"pods": "-1", "secrets": "0.5"}}});
        assert_eq!(
            causes(|e| validate(&bad, e)),
            ["spec.hard[pods] FieldValueInvalid", "spec.hard[secrets] FieldValueInvalid"]
        );
    }

    #[test]
    fn scopes_fit_together_and_stay() {
        let quota =
            json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort", "Odd"]}});
        assert_eq!(causes(|e| validate(&quota, e)).len(), 2);
        let cpu = json!({"spec": {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}});
        assert_eq!(causes(|e| validate(&cpu, e)), ["spec.scopes FieldValueInvalid"]);
        assert_eq!(causes(|e| validate_update(&cpu, &json!({}), e)), ["spec.scopes FieldValueInvalid"]);
    }
}
