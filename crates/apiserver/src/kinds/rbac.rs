//! Role, ClusterRole, RoleBinding, ClusterRoleBinding.

use serde_json::json;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{child_mut, field, is_set, list_at, list_mut, set_default_str, str_at};
use super::{NameRule, Rules, checks};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of Role.
pub const ROLE_RULES: Rules = Rules {
    validate: |role, errors| validate_rules(role, true, errors),
    name: NameRule::PathSegment,
    ..Rules::NONE
};

/// The rules of ClusterRole.
pub const CLUSTER_ROLE_RULES: Rules =
    Rules { validate: validate_cluster_role, name: NameRule::PathSegment, ..Rules::NONE };

/// The rules of RoleBinding.
pub const ROLE_BINDING_RULES: Rules = Rules {
    default: default_binding,
    validate: |binding, errors| validate_binding(binding, true, errors),
    validate_update: validate_binding_update,
    name: NameRule::PathSegment,
    ..Rules::NONE
};

/// The rules of ClusterRoleBinding.
pub const CLUSTER_ROLE_BINDING_RULES: Rules = Rules {
    default: default_binding,
    validate: |binding, errors| validate_binding(binding, false, errors),
    validate_update: validate_binding_update,
    name: NameRule::PathSegment,
    ..Rules::NONE
};

fn default_binding(binding: &mut Value) {
    if let Some(role) = child_mut(binding, "roleRef") {
        set_default_str(role, "apiGroup", GROUP);
    }
    for subject in list_mut(binding, "subjects") {
        if matches!(str_at(subject, "kind"), "User" | "Group") {
            set_default_str(subject, "apiGroup", GROUP);
        }
    }
}

fn validate_rules(role: &Value, namespaced: bool, errors: &mut Errors) {
    let rules = Path::new("rules");
    for (i, rule) in list_at(role, "rules").iter().enumerate() {
        let path = rules.index(i);
        if !is_set(rule, "verbs") {
            errors.required(&path.child("verbs"), "verbs must contain at least one value");
        }
        if is_set(rule, "nonResourceURLs") {
            let urls = field(rule, "nonResourceURLs").unwrap_or(&Value::Null);
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.invalid(&path.child("nonResourceURLs"), urls, detail);
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|name| is_set(rule, name)) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&path.child("nonResourceURLs"), urls, detail);
            }
            continue;
        }
        if !is_set(rule, "apiGroups") {
            let detail = "resource rules must supply at least one api group";
            errors.required(&path.child("apiGroups"), detail);
        }
        if !is_set(rule, "resources") {
            errors.required(&path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

fn validate_cluster_role(role: &Value, errors: &mut Errors) {
    validate_rules(role, false, errors);
    let Some(aggregation) = field(role, "aggregationRule") else { return };
    let path = Path::new("aggregationRule");
    let selectors = path.child("clusterRoleSelectors");
    if !is_set(aggregation, "clusterRoleSelectors") {
        errors
            .required(&selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (i, selector) in list_at(aggregation, "clusterRoleSelectors").iter().enumerate() {
        validate_label_selector(selector, &selectors.index(i), errors);
    }
}

fn validate_binding(binding: &Value, namespaced: bool, errors: &mut Errors) {
    let reference = field(binding, "roleRef").unwrap_or(&Value::Null);
    let role = Path::new("roleRef");
    if str_at(reference, "apiGroup") != GROUP {
        errors.not_supported(&role.child("apiGroup"), str_at(reference, "apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&str_at(reference, "kind")) {
        errors.not_supported(&role.child("kind"), str_at(reference, "kind"), kinds);
    }
    match str_at(reference, "name") {
        "" => errors.required(&role.child("name"), ""),
        name => checks::text(errors, &role.child("name"), name, names::path_segment_name(name)),
    }
    let subjects = Path::new("subjects");
    for (i, subject) in list_at(binding, "subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &subjects.index(i), errors);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    if !is_set(subject, "name") {
        errors.required(&path.child("name"), "");
    }
    let group = str_at(subject, "apiGroup");
    match str_at(subject, "kind") {
        "ServiceAccount" => {
            if is_set(subject, "name") {
                checks::text(
                    errors,
                    &path.child("name"),
                    str_at(subject, "name"),
                    names::dns1123_subdomain(str_at(subject, "name")),
                );
            }
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), group, &[""]);
            }
            if !namespaced && !is_set(subject, "namespace") {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
            }
        }
        kind => errors.not_supported(&path.child("kind"), kind, &["ServiceAccount", "User", "Group"]),
    }
}

fn validate_binding_update(new: &Value, old: &Value, errors: &mut Errors) {
    let reference = |binding: &Value| {
        let role = field(binding, "roleRef").unwrap_or(&Value::Null);
        json!({
            "APIGroup": str_at(role, "apiGroup"),
            "Kind": str_at(role, "kind"),
            "Name": str_at(role, "name"),
        })
    };
    let changed = reference(new);
    if changed != reference(old) {
        errors.invalid(&Path::new("roleRef"), &changed, "cannot change roleRef");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn users_and_groups_get_the_group_service_accounts_do_not() {
        let mut binding = json!({
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "jane"},
                {"kind": "ServiceAccount", "name": "sa"},
                {"kind": "Group", "name": "g"},
            ],
        });
        default_binding(&mut binding);
        assert_eq!(
            binding,
            json!({
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"},
                "subjects": [
                    {"apiGroup": GROUP, "kind": "User", "name": "jane"},
                    {"kind": "ServiceAccount", "name": "sa"},
                    {"apiGroup": GROUP, "kind": "Group", "name": "g"},
                ],
            })
        );
        assert!(causes(|e| validate_binding(&binding, true, e)).is_empty());
        let in_cluster = causes(|e| validate_binding(&binding, false, e));
        assert_eq!(
            in_cluster,
            ["roleRef.kind FieldValueNotSupported", "subjects[1].namespace FieldValueRequired"]
        );
    }

    #[test]
    fn the_role_of_a_binding_never_changes() {
        let old = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}});
        let new = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "other"}});
        let mut errors = Errors::new();
        validate_binding_update(&new, &old, &mut errors);
        assert_eq!(
            errors.to_string(),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: \
             cannot change roleRef"
        );
    }

    #[test]
    fn unknown_kinds_are_refused() {
        let binding = json!({
            "roleRef": {"apiGroup": GROUP, "kind": "Thing", "name": ""},
            "subjects": [{"kind": "Alien", "name": "x"}],
        });
        assert_eq!(
            causes(|e| validate_binding(&binding, true, e)),
            [
                "roleRef.kind FieldValueNotSupported",
                "roleRef.name FieldValueRequired",
                "subjects[0].kind FieldValueNotSupported"
            ]
        );
    }

    #[test]
    fn a_role_names_verbs_and_no_urls() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["pods"]},
            {"nonResourceURLs": ["/x"], "verbs": ["get"]},
        ]});
        let mut errors = Errors::new();
        validate_rules(&role, true, &mut errors);
        assert_eq!(
            errors.to_string(),
            "[rules[0].verbs: Required value: verbs must contain at least one value, rules[1].nonResourceURLs: \
             Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs]"
        );
        assert_eq!(causes(|e| validate_rules(&role, false, e)), ["rules[0].verbs FieldValueRequired"]);
    }
}
