//! The objects around a program that runs as pods: its place, its account and its rights.

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::workload;

/// A part of Shoal that can run as pods.
pub struct Operator {
    /// How this program is told to be it.
    pub run: &'static [&'static str],
    /// Where it lives unless told otherwise.
    pub namespace: &'static str,
    /// Name of its Deployment.
    pub deployment: &'static str,
    /// Name of its ServiceAccount, and the label of its pods.
    pub account: &'static str,
    /// Name of its ClusterRole.
    pub role: &'static str,
    /// Name of the Service in front of its metrics.
    pub metrics: &'static str,
    /// Kinds that it needs.
    pub kinds: Vec<CustomResourceDefinition>,
    /// What it may do in every namespace.
    pub rules: Vec<PolicyRule>,
    /// Where the replicas agree among themselves; None: where they live.
    pub group_namespace: Option<&'static str>,
    /// What they may do there.
    pub group_rules: Vec<PolicyRule>,
}

/// What users choose.
pub struct Settings {
    /// Where it lives.
    pub namespace: String,
    /// How many pods.
    pub replicas: u32,
    /// What they run.
    pub image: String,
    /// Whether the kinds are among the objects.
    pub kinds: bool,
    /// Whether a ServiceMonitor is.
    pub monitor: bool,
}

/// All objects; none needs one that comes later.
pub fn objects(operator: &Operator, settings: &Settings) -> anyhow::Result<Vec<Value>> {
    let mut objects = vec![namespace(settings)];
    if settings.kinds {
        for kind in &operator.kinds {
            objects.push(serde_json::to_value(kind)?);
        }
    }
    objects.push(account(operator, settings));
    objects.extend(rights(operator, settings));
    objects.extend(workload::objects(operator, settings));
    Ok(objects)
}

fn namespace(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            // The pods below ask for nothing that this would refuse.
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    })
}

fn account(operator: &Operator, settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": operator.account, "namespace": settings.namespace},
    })
}

/// A ClusterRole for the objects that are looked after, a Role for what the replicas agree on, and who has them.
fn rights(operator: &Operator, settings: &Settings) -> [Value; 4] {
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    let subjects =
        json!([{"kind": "ServiceAccount", "name": operator.account, "namespace": settings.namespace}]);
    let place = operator.group_namespace.unwrap_or(&settings.namespace);
    let local = format!("{}-replicas", operator.account);
    [
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRole",
            "metadata": {"name": operator.role},
            "rules": operator.rules,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": operator.role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": operator.role},
            "subjects": subjects,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "Role",
            "metadata": {"name": local, "namespace": place},
            "rules": operator.group_rules,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "RoleBinding",
            "metadata": {"name": local, "namespace": place},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": local},
            "subjects": subjects,
        }),
    ]
}
