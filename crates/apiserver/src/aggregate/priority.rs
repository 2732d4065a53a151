//! The order of groups and versions in discovery.

/// The higher, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Among groups: `groupPriorityMinimum`.
    pub group: i64,
    /// Among versions of the group: `versionPriority`.
    pub version: i64,
}

/// Custom groups come late, their versions by name.
pub const CUSTOM: Priority = Priority { group: 1000, version: 100 };
/// What is mounted in this process comes last, as metrics.k8s.io usually does.
pub const MOUNTED: Priority = Priority { group: 100, version: 100 };

/// The priority of a built-in group version, as the real server has it.
pub fn builtin(group: &str, version: &str) -> Priority {
    let group_priority = match group {
        // The one that all others depend on; it has no APIService.
        "apiregistration.k8s.io" => 20_001,
        "" => 18_000,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        "resource.k8s.io" => 15_900,
        _ => 15_000,
    };
    let version_priority = match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io", _) => 21,
        _ => 15,
    };
    Priority { group: group_priority, version: version_priority }
}
