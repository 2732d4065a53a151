//! What the controllers may do, as the rules of their ClusterRole.

use k8s_openapi::api::rbac::v1::PolicyRule;
use shoal_runtime::rbac::rule;

/// Rules for all controllers together.
///
/// The garbage collector and the namespace controller read, edit and delete objects of every kind, those of kinds that do
/// not exist yet included: no list of names could say that. What is created is listed. Volumes are not among it: they are made only by
/// controllers beside nodes of the same machine, in `shoal up`.
///
/// A test runs the controllers under exactly these rules and finds that each is needed.
pub fn rules() -> Vec<PolicyRule> {
    let create = &["create"];
    vec![
        rule("*", &["*"], &["get", "list", "watch", "update", "patch", "delete", "deletecollection"]),
        rule(
            "",
            &["configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "serviceaccounts"],
            create,
        ),
        rule("apps", &["controllerrevisions", "replicasets"], create),
        rule("batch", &["jobs"], create),
        rule("discovery.k8s.io", &["endpointslices"], create),
        // The sum of aggregated roles may be more than these controllers themselves may do.
        rule("rbac.authorization.k8s.io", &["clusterroles"], &["escalate"]),
    ]
}
