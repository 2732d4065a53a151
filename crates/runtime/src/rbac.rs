//! Rights that parts of the framework need, as rules of roles. Operators keep theirs beside their code in the same words,
//! so that manifests and tests have one source.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::shard::API_GROUP;

/// One rule: these verbs on these resources of one API group.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<String>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// What an election needs in the namespace of its lease. A right to create cannot be bound to a name.
pub fn election(lease: &str) -> Vec<PolicyRule> {
    let group = "coordination.k8s.io";
    let by_name = rule(group, &["leases"], &["get", "update"]);
    let by_name = PolicyRule { resource_names: Some(vec![lease.to_owned()]), ..by_name };
    vec![rule(group, &["leases"], &["create"]), by_name]
}

/// What the replicas of a sharded controller need in the namespace of their group, if the kind ShardMap is installed. Single objects
/// are listed by name, too: a list says at which moment it was read, also of what is not there.
pub fn sharding() -> Vec<PolicyRule> {
    vec![
        rule("coordination.k8s.io", &["leases"], &["list", "watch", "create", "update", "delete"]),
        rule(API_GROUP, &["shardmaps"], &["list", "watch", "create", "patch"]),
    ]
}

/// What it takes to tell people about objects in Events.
pub fn events() -> PolicyRule {
    rule("", &["events"], &["create", "patch"])
}
