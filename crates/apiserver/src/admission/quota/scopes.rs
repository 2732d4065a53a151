//! Which objects a quota with scopes is about.

use serde_json::Value;

use super::usage::reaches_other_namespaces;
use crate::kinds::access::{int_at, list_at, part, str_at};
use crate::kinds::pod::qos_class;

/// Whether the scopes of a quota's spec take in this object. A quota without scopes takes in all.
pub fn matches(spec: &Value, plural: &str, object: &Value) -> bool {
    let plain = list_at(spec, "scopes").iter().filter_map(Value::as_str);
    let selected = list_at(part(spec, "scopeSelector"), "matchExpressions");
    plain.into_iter().all(|scope| in_scope(scope, "Exists", &[], plural, object))
        && selected.iter().all(|expression| {
            let values: Vec<&str> = list_at(expression, "values").iter().filter_map(Value::as_str).collect();
            in_scope(str_at(expression, "scopeName"), str_at(expression, "operator"), &values, plural, object)
        })
}

fn in_scope(scope: &str, operator: &str, values: &[&str], plural: &str, object: &Value) -> bool {
    let spec = part(object, "spec");
    match (plural, scope) {
        ("pods", "Terminating") => terminates(spec),
        ("pods", "NotTerminating") => !terminates(spec),
        ("pods", "BestEffort") => qos_class(spec) == "BestEffort",
        ("pods", "NotBestEffort") => qos_class(spec) != "BestEffort",
        ("pods", "CrossNamespacePodAffinity") => reaches_other_namespaces(spec),
        ("pods", "PriorityClass") => selects(str_at(spec, "priorityClassName"), operator, values),
        ("persistentvolumeclaims", "VolumeAttributesClass") => {
            selects(str_at(spec, "volumeAttributesClassName"), operator, values)
        }
        _ => false,
    }
}

fn terminates(spec: &Value) -> bool {
    int_at(spec, "activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn selects(class: &str, operator: &str, values: &[&str]) -> bool {
    match operator {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => values.contains(&class),
        "NotIn" => !values.contains(&class),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scopes_select_pods() {
        let plain = json!({"spec": {"containers": [{"name": "a"}]}});
        let ending = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high", "containers": [
            {"resources": {"requests": {"cpu": "1"}}},
        ]}});
        for (spec, first, second) in [
            (json!({}), true, true),
            (json!({"scopes": ["BestEffort"]}), true, false),
            (json!({"scopes": ["NotBestEffort", "Terminating"]}), false, true),
            (json!({"scopes": ["NotTerminating"]}), true, false),
            (json!({"scopes": ["Odd"]}), false, false),
            (
                json!({"scopeSelector": {"matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
                ]}}),
                false,
                true,
            ),
        ] {
            assert_eq!(
                (matches(&spec, "pods", &plain), matches(&spec, "pods", &ending)),
                (first, second),
                "{spec}"
            );
        }
        assert!(!matches(&json!({"scopes": ["BestEffort"]}), "secrets", &json!({})));
    }
}
