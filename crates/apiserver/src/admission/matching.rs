//! Whether a webhook or policy is about a request.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_objects::selector::LabelSelector;
use shoal_objects::{Errors, Path, meta};

use crate::admission::attributes::Attributes;
use crate::cel::Budget;
use crate::cel::budget::PER_MATCH_CONDITIONS;
use crate::cel::policy::{AdmissionInput, MatchConditions, admission_env, bind};
use crate::kinds::access::{list_at, str_at};
use crate::registry::{Registry, Resource};

/// Whether one of the webhook's rules is about this operation on this resource.
pub fn rules_match(webhook: &Value, attributes: &Attributes<'_>, resource: &Resource) -> bool {
    list_at(webhook, "rules").iter().any(|rule| {
        let cluster_scope = attributes.namespace.is_empty();
        let has = |list: &str, wanted: &str| list_at(rule, list).iter().any(|v| v == "*" || v == wanted);
        let scope = match str_at(rule, "scope") {
            "Namespaced" => !cluster_scope,
            "Cluster" => cluster_scope,
            _ => true,
        };
        scope
            && has("operations", attributes.operation)
            && has("apiGroups", &resource.group)
            && has("apiVersions", &resource.version)
            && list_at(rule, "resources")
                .iter()
                .filter_map(Value::as_str)
                .any(|text| resource_matches(text, &resource.plural, attributes.subresource))
    })
}

/// `pods`, `pods/status`, `pods/*`, `*`, `*/scale` or `*/*`.
fn resource_matches(rule: &str, plural: &str, subresource: &str) -> bool {
    let (of, sub) = rule.split_once('/').unwrap_or((rule, ""));
    (of == "*" || of == plural) && (sub == "*" || sub == subresource)
}

/// Webhooks and policies are never asked about themselves: a bad one could not be removed.
pub fn is_exempt(resource: &Resource) -> bool {
    &*resource.group == "admissionregistration.k8s.io"
}

/// The resource under which a webhook or policy wants to see the object: the request's own, or one that shows the same.
pub fn wanted_resource(
    registry: &Registry,
    spec: &Value,
    attributes: &Attributes<'_>,
) -> Option<Arc<Resource>> {
    let asked = attributes.resource;
    let exact = str_at(spec, "matchPolicy") == "Exact";
    let mut same: Vec<_> = registry.iter().filter(|r| r.table == asked.table).collect();
    let is_asked = |r: &Resource| r.group == asked.group && r.version == asked.version;
    same.sort_by_key(|r| !is_asked(r));
    same.into_iter().filter(|r| !exact || is_asked(r)).find(|r| rules_match(spec, attributes, r)).cloned()
}

/// The resource that `matchConstraints` or `matchResources` are about, if they are about this request at all. What
/// they leave out restricts nothing.
pub fn concerned(
    registry: &Registry,
    scope: &Value,
    attributes: &Attributes<'_>,
    (object, old): (&Value, &Value),
    namespace: Option<&Value>,
) -> Result<Option<Arc<Resource>>, String> {
    let by = |field: &str| {
        let rules = list_at(scope, field);
        let rules = json!({"rules": rules, "matchPolicy": str_at(scope, "matchPolicy")});
        wanted_resource(registry, &rules, attributes)
    };
    let Resource { group, version, plural, .. } = attributes.resource;
    let everything = || registry.find(group, version, plural).cloned();
    if !scope.is_object() {
        return Ok(everything());
    }
    let included =
        if list_at(scope, "resourceRules").is_empty() { everything() } else { by("resourceRules") };
    let about = included.is_some()
        && namespace_matches(scope, namespace)?
        && object_matches(scope, object, old)?
        && by("excludeResourceRules").is_none();
    Ok(included.filter(|_| about))
}

/// Whether the labels of the namespace are those the webhook wants. At cluster scope all are, except that a namespace
/// is judged by its own.
pub fn namespace_matches(webhook: &Value, labels_of: Option<&Value>) -> Result<bool, String> {
    let selector = LabelSelector::from_object(webhook.get("namespaceSelector"))?;
    Ok(labels_of.is_none_or(|namespace| selector.matches_labels(meta::labels(namespace))))
}

/// Whether the object, before or after, has the labels the webhook wants.
pub fn object_matches(webhook: &Value, object: &Value, old: &Value) -> Result<bool, String> {
    let selector = LabelSelector::from_object(webhook.get("objectSelector"))?;
    let matches = |v: &Value| v.is_object() && selector.matches_labels(meta::labels(v));
    Ok(selector.is_everything() || matches(object) || matches(old))
}

/// Whether the webhook's `matchConditions` hold for a request.
pub fn conditions_match(webhook: &Value, input: &AdmissionInput<'_>) -> Result<bool, String> {
    if list_at(webhook, "matchConditions").is_empty() {
        return Ok(true);
    }
    let mut errors = Errors::new();
    let env = admission_env(false);
    let conditions = MatchConditions::compile(webhook, &env, &Path::new("webhook"), &mut errors);
    if !errors.is_empty() {
        return Err(errors.to_string());
    }
    conditions.hold(&bind(input), &mut Budget::new(PER_MATCH_CONDITIONS))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests {
    use super::*;

    fn matches(rule: Value, operation: &'static str, plural: &str, subresource: &str) -> bool {
        let registry = Registry::builtin();
        let resource =
            registry.find("", "v1", plural).or_else(|| registry.find("apps", "v1", plural)).unwrap().clone();
        let attributes = Attributes {
            operation,
            resource: &resource,
            subresource,
            namespace: if resource.namespaced { "ns" } else { "" },
            name: String::new(),
            old: &Value::Null,
            dry_run: false,
        };
        rules_match(&json!({"rules": [rule]}), &attributes, &resource)
    }

    #[test]
    fn rules_are_about_operations_and_resources() {
        let rule = |resources: Value| json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources});
        assert!(matches(rule(json!(["pods"])), "CREATE", "pods", ""));
        assert!(!matches(rule(json!(["pods"])), "UPDATE", "pods", ""));
        assert!(!matches(rule(json!(["pods"])), "CREATE", "pods", "status"));
        assert!(!matches(rule(json!(["*"])), "CREATE", "pods", "status"));
        assert!(!matches(rule(json!(["*"])), "CREATE", "deployments", ""));
        assert!(matches(rule(json!(["pods/*"])), "CREATE", "pods", "status"));
        assert!(matches(rule(json!(["*/*"])), "CREATE", "pods", ""));
        assert!(matches(rule(json!(["*/status"])), "CREATE", "services", "status"));
    }

    #[test]
    fn rules_are_about_a_scope() {
        let rule = |scope: &str| json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": scope});
        assert!(matches(rule("Cluster"), "CREATE", "nodes", ""));
        assert!(!matches(rule("Cluster"), "CREATE", "pods", ""));
        assert!(matches(rule("Namespaced"), "DELETE", "pods", ""));
        assert!(!matches(rule("Namespaced"), "DELETE", "nodes", ""));
    }

    #[test]
    fn selectors_look_at_both_objects_and_at_the_namespace() {
        let webhook = json!({"objectSelector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {"matchLabels": {"n": "1"}}});
        let labelled = json!({"metadata": {"labels": {"a": "b", "n": "1"}}});
        assert_eq!(object_matches(&webhook, &json!({}), &labelled), Ok(true));
        assert_eq!(object_matches(&webhook, &json!({}), &Value::Null), Ok(false));
        assert_eq!(namespace_matches(&webhook, Some(&labelled)), Ok(true));
        assert_eq!(namespace_matches(&webhook, Some(&json!({}))), Ok(false));
        assert_eq!(namespace_matches(&webhook, None), Ok(true));
    }
}
