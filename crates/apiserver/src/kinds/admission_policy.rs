//! ValidatingAdmissionPolicy, MutatingAdmissionPolicy and their bindings. Expressions are compiled elsewhere.

use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{child_mut, existing_mut, field, is_set, list_at, set_default, str_at};
use super::admission_rules::{default_match_resources, validate_conditions, validate_match_resources};
use super::seen::Seen;
use super::{Rules, checks};
use crate::cel::policy::{MutatingPolicy, Policy};

/// The rules of ValidatingAdmissionPolicy.
pub const VALIDATING_RULES: Rules =
    Rules { default: default_policy, validate: validate_validating, ..Rules::NONE };

/// The rules of MutatingAdmissionPolicy.
pub const MUTATING_RULES: Rules =
    Rules { default: default_policy, validate: validate_mutating, ..Rules::NONE };

/// The rules of ValidatingAdmissionPolicyBinding.
pub const VALIDATING_BINDING_RULES: Rules = Rules {
    default: default_binding,
    validate: |binding, errors| {
        validate_binding(binding, errors);
        validate_actions(binding, errors);
    },
    ..Rules::NONE
};

/// The rules of MutatingAdmissionPolicyBinding.
pub const MUTATING_BINDING_RULES: Rules =
    Rules { default: default_binding, validate: validate_binding, ..Rules::NONE };

const REASONS: [&str; 4] = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

fn default_policy(policy: &mut Value) {
    let Some(spec) = child_mut(policy, "spec") else { return };
    set_default(spec, "failurePolicy", "Fail");
    if let Some(constraints) = existing_mut(spec, "matchConstraints") {
        default_match_resources(constraints);
    }
}

fn default_binding(binding: &mut Value) {
    let resources = existing_mut(binding, "spec").and_then(|spec| existing_mut(spec, "matchResources"));
    if let Some(resources) = resources {
        default_match_resources(resources);
    }
}

fn validate_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(kind) = field(spec, "paramKind") {
        let path = path.child("paramKind");
        for name in ["apiVersion", "kind"] {
            checks::required(kind, name, &path, errors);
        }
    }
    checks::one_of(spec, "failurePolicy", &["Fail", "Ignore"], path, errors);
    let constraints_path = path.child("matchConstraints");
    match field(spec, "matchConstraints") {
        None => errors.required(&constraints_path, ""),
        Some(constraints) => {
            validate_match_resources(constraints, &constraints_path, errors);
            if !is_set(constraints, "resourceRules") {
                errors.required(&constraints_path.child("resourceRules"), "");
            }
        }
    }
    validate_conditions(spec, path, errors);
    let variables = path.child("variables");
    let mut seen = Seen::default();
    for (i, variable) in list_at(spec, "variables").iter().enumerate() {
        let path = variables.index(i);
        let name = str_at(variable, "name");
        if name.trim().is_empty() {
            errors.required(&path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid_str(&path.child("name"), name, "name is not a valid CEL identifier");
        }
        if seen.again(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
        require_expression(variable, "expression", &path, errors);
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn require_expression(v: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if str_at(v, name).trim().is_empty() {
        errors.required(&path.child(name), "expression is not specified");
    }
}

fn validate_validating(policy: &Value, errors: &mut Errors) {
    let spec = field(policy, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    validate_policy(spec, &path, errors);
    if !is_set(spec, "validations") && !is_set(spec, "auditAnnotations") {
        for name in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(name), detail);
        }
    }
    let validations = path.child("validations");
    for (i, validation) in list_at(spec, "validations").iter().enumerate() {
        let path = validations.index(i);
        require_expression(validation, "expression", &path, errors);
        let message = str_at(validation, "message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.invalid_str(&path.child("message"), message, "message must be non-empty if specified");
        } else if message.contains('\n') {
            errors.invalid_str(&path.child("message"), message, "message must not contain line breaks");
        }
        checks::optional_one_of(validation, "reason", &REASONS, &path, errors);
    }
    let annotations = path.child("auditAnnotations");
    let mut seen = Seen::default();
    for (i, annotation) in list_at(spec, "auditAnnotations").iter().enumerate() {
        let path = annotations.index(i);
        let key = str_at(annotation, "key");
        checks::required(annotation, "key", &path, errors);
        if seen.again(key) {
            errors.duplicate(&path.child("key"), &key.into());
        }
        require_expression(annotation, "valueExpression", &path, errors);
    }
    if errors.is_empty()
        && let Err(found) = Policy::compile(spec, &path)
    {
        errors.0.extend(found.0);
    }
}

fn validate_mutating(policy: &Value, errors: &mut Errors) {
    let spec = field(policy, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    validate_policy(spec, &path, errors);
    if !is_set(spec, "mutations") {
        errors.required(&path.child("mutations"), "mutations must contain at least one item");
    }
    let mutations = path.child("mutations");
    for (i, mutation) in list_at(spec, "mutations").iter().enumerate() {
        let path = mutations.index(i);
        checks::one_of(mutation, "patchType", &["ApplyConfiguration", "JSONPatch"], &path, errors);
        let wanted = match str_at(mutation, "patchType") {
            "ApplyConfiguration" => "applyConfiguration",
            "JSONPatch" => "jsonPatch",
            _ => continue,
        };
        match field(mutation, wanted) {
            Some(patch) => require_expression(patch, "expression", &path.child(wanted), errors),
            None => {
                let kind = str_at(mutation, "patchType");
                let detail = format!("must be specified when patchType is {kind}");
                errors.required(&path.child(wanted), &detail);
            }
        }
    }
    checks::one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], &path, errors);
    refuse_deletions(spec, &path, errors);
    if errors.is_empty()
        && let Err(found) = MutatingPolicy::compile(spec, &path)
    {
        errors.0.extend(found.0);
    }
}

/// What is deleted cannot be changed.
fn refuse_deletions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let constraints_path = path.child("matchConstraints");
    let rules_path = constraints_path.child("resourceRules");
    let constraints = field(spec, "matchConstraints").unwrap_or(&Value::Null);
    for (i, rule) in list_at(constraints, "resourceRules").iter().enumerate() {
        let rule_path = rules_path.index(i);
        let path = rule_path.child("operations");
        for (j, operation) in list_at(rule, "operations").iter().enumerate() {
            if operation == "DELETE" {
                let supported = ["*", "CONNECT", "CREATE", "UPDATE"];
                checks::supported_text("DELETE", &supported, &path.index(j), errors);
            }
        }
    }
}

fn validate_binding(binding: &Value, errors: &mut Errors) {
    let spec = field(binding, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    checks::required_text(spec, "policyName", &path, errors, names::dns1123_subdomain);
    if let Some(reference) = field(spec, "paramRef") {
        let path = path.child("paramRef");
        match (is_set(reference, "name"), field(reference, "selector")) {
            (true, Some(_)) => {
                errors.forbidden(&path.child("name"), "name and selector are mutually exclusive");
            }
            (false, None) => errors.required(&path, "one of name or selector must be specified"),
            (true, None) => {}
            (false, Some(selector)) => {
                validate_label_selector(selector, &path.child("selector"), errors);
            }
        }
        checks::one_of(reference, "parameterNotFoundAction", &["Allow", "Deny"], &path, errors);
    }
    if let Some(resources) = field(spec, "matchResources") {
        validate_match_resources(resources, &path.child("matchResources"), errors);
    }
}

fn validate_actions(binding: &Value, errors: &mut Errors) {
    let spec = field(binding, "spec").unwrap_or(&Value::Null);
    let spec_path = Path::new("spec");
    let path = spec_path.child("validationActions");
    let actions = list_at(spec, "validationActions");
    if actions.is_empty() {
        errors.required(&path, "at least one validation action is required");
    }
    let mut seen = Seen::default();
    for (i, action) in actions.iter().enumerate() {
        let text = action.as_str().unwrap_or_default();
        checks::supported_text(text, &["Audit", "Deny", "Warn"], &path.index(i), errors);
        if seen.again(text) {
            errors.duplicate(&path.index(i), action);
        }
    }
    let has = |name: &str| actions.iter().any(|action| action == name);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        errors.invalid(&path, &Value::from(actions.to_vec()), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_is_filled_up() {
        let mut policy = json!({"spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "validations": [{"expression": "true", "reason": "Forbidden"}],
        }});
        default_policy(&mut policy);
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        assert_eq!(
            policy["spec"]["matchConstraints"],
            json!({
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["configmaps"], "scope": "*",
                }],
            })
        );
        assert!(causes(|e| validate_validating(&policy, e)).is_empty());
        let mut binding =
            json!({"spec": {"policyName": "p", "validationActions": ["Deny"], "matchResources": {}}});
        default_binding(&mut binding);
        assert_eq!(
            binding["spec"]["matchResources"],
            json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}})
        );
        assert!(causes(|e| (VALIDATING_BINDING_RULES.validate)(&binding, e)).is_empty());
    }

    #[test]
    fn what_a_policy_and_its_binding_must_say() {
        let policy = json!({"spec": {"failurePolicy": "Odd"}});
        assert_eq!(
            causes(|e| validate_validating(&policy, e)),
            [
                "spec.failurePolicy FieldValueNotSupported",
                "spec.matchConstraints FieldValueRequired",
                "spec.validations FieldValueRequired",
                "spec.auditAnnotations FieldValueRequired",
            ]
        );
        let binding = json!({"spec": {"validationActions": ["Deny", "Warn"]}});
        assert_eq!(
            causes(|e| (VALIDATING_BINDING_RULES.validate)(&binding, e)),
            ["spec.policyName FieldValueRequired", "spec.validationActions FieldValueInvalid"]
        );
    }
}
