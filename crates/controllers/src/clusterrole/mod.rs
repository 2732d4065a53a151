//! ClusterRoles that are the sum of others.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use crate::claim;

/// The controller.
pub fn controller() -> Controller {
    Controller::of::<ClusterRole>("clusterrole-aggregation-controller")
        .field_manager("clusterrole-aggregation-controller")
        .watches::<ClusterRole>(sums_of)
        .reconcile(reconcile)
}

/// The roles that a role is a part of.
fn sums_of(part: &ClusterRole, listers: &Listers) -> Vec<ObjectKey> {
    let roles = listers.of::<ClusterRole>().list();
    roles.iter().filter(|role| is_part(part, role)).map(|role| ObjectKey::of(&**role)).collect()
}

fn is_part(part: &ClusterRole, whole: &ClusterRole) -> bool {
    let selectors =
        whole.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    part.metadata.name != whole.metadata.name
        && selectors
            .filter_map(|selector| claim::selector(Some(selector)))
            .any(|selector| claim::matches(&selector, &part.metadata))
}

/// The rules of all parts, in the order of their names, none twice.
pub fn sum<'a>(whole: &ClusterRole, roles: impl Iterator<Item = &'a ClusterRole>) -> Vec<PolicyRule> {
    let mut parts: Vec<&ClusterRole> = roles.filter(|role| is_part(role, whole)).collect();
    parts.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for rule in parts.iter().flat_map(|part| part.rules.iter().flatten()) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    rules
}

async fn reconcile(context: Context<ClusterRole>) -> Result<Action> {
    let Some(role) = context.object().filter(|role| role.aggregation_rule.is_some()) else {
        return Ok(Action::done());
    };
    let all = context.lister::<ClusterRole>().list();
    let rules = sum(&role, all.iter().map(AsRef::as_ref));
    let set = |role: &mut ClusterRole| {
        if role.rules.as_deref().unwrap_or_default() != rules {
            role.rules = Some(rules.clone());
        }
    };
    context.writer().modify(context.key(), Some(&*role), set).await?;
    Ok(Action::done())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sum_has_the_rules_of_its_parts_once() {
        let role = |value| -> ClusterRole { serde_json::from_value(value).unwrap() };
        let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let whole = role(json!({
            "metadata": {"name": "whole", "labels": {"part": "yes"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}, "rules": [rule("old")],
        }));
        let roles = [
            whole.clone(),
            role(
                json!({"metadata": {"name": "b", "labels": {"part": "yes"}}, "rules": [rule("pods"), rule("secrets")]}),
            ),
            role(json!({"metadata": {"name": "a", "labels": {"part": "yes"}}, "rules": [rule("pods")]})),
            role(json!({"metadata": {"name": "c"}, "rules": [rule("nodes")]})),
        ];
        let resources: Vec<String> =
            sum(&whole, roles.iter()).into_iter().flat_map(|rule| rule.resources.unwrap()).collect();
        assert_eq!(resources, ["pods", "secrets"]);
    }
}
