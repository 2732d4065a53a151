//! What the operator may do in every namespace, as the rules of its ClusterRole. What its replicas agree on among themselves is
//! [`shoal_runtime::rbac::sharding`].
//!
//! A test runs the operator under exactly these rules and finds that each is needed.

use k8s_openapi::api::rbac::v1::PolicyRule;
use shoal_runtime::rbac::{events, rule};

use crate::api::{GROUP, PLURAL};

/// What is seen, made, corrected and removed of children. They are also asked for by name, because a cache may be late.
const CHILD: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// The rules.
pub fn rules() -> Vec<PolicyRule> {
    let (status, finalizers) = (format!("{PLURAL}/status"), format!("{PLURAL}/finalizers"));
    vec![
        // Read again when somebody else was faster; patched for the finalizer.
        rule(GROUP, &[PLURAL], &["get", "list", "watch", "patch"]),
        rule(GROUP, &[&status], &["update"]),
        // Some clusters let only those who may do this make objects whose owner waits for their end.
        rule(GROUP, &[&finalizers], &["update"]),
        rule("apps", &["deployments"], CHILD),
        rule("apps", &["controllerrevisions"], CHILD),
        rule("", &["configmaps", "persistentvolumeclaims", "serviceaccounts", "services"], CHILD),
        rule("autoscaling", &["horizontalpodautoscalers"], CHILD),
        rule("policy", &["poddisruptionbudgets"], CHILD),
        rule("networking.k8s.io", &["ingresses", "networkpolicies"], CHILD),
        // Why pods do not start, and what they use.
        rule("", &["pods"], &["list"]),
        rule("metrics.k8s.io", &["pods"], &["list"]),
        events(),
    ]
}
