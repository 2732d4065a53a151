//! What an object uses up, by the names quotas know.

use serde_json::Value;
use shoal_objects::meta;
use shoal_objects::quantity::{Format, Quantity};

use crate::kinds::access::{at, list_at, part, str_at};
use crate::kinds::pod::resources::{Amounts, amounts, pod_amounts};

/// Core kinds that quotas count under their plain name.
const PLAIN: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Resources that containers must name when a quota bounds them.
const EXPLICIT: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The group and plural of the kind that a quota's resource is about.
pub fn kind_of(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return Some((group, plural));
    }
    if name.contains(CLASS_SUFFIX) || name == "requests.storage" {
        return Some(("", "persistentvolumeclaims"));
    }
    if let Some(plain) = PLAIN.iter().find(|plain| **plain == name) {
        return Some(("", plain));
    }
    if name.starts_with("services.") {
        return Some(("", "services"));
    }
    let base = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    let computed = COMPUTE.contains(&base) || base.starts_with("hugepages-");
    let extended = name.starts_with("requests.") && base.contains('/');
    (name == "pods" || computed || extended).then_some(("", "pods"))
}

/// Whether counting objects is enough to know the usage.
pub fn is_plain_count(name: &str) -> bool {
    name.starts_with("count/") || PLAIN.contains(&name)
}

/// What one object of this kind uses.
pub fn of(group: &str, plural: &str, object: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let one = || Quantity::new(1, Format::DecimalSi);
    let counted =
        if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
    usage.insert(counted, one());
    if !group.is_empty() {
        return usage;
    }
    if PLAIN.contains(&plural) {
        usage.insert(plural.to_owned(), one());
    }
    match plural {
        "pods" => pod(object, &mut usage),
        "services" => service(object, &mut usage),
        "persistentvolumeclaims" => claim(object, &mut usage),
        _ => {}
    }
    usage
}

/// Pods that have ended use nothing but their name.
fn pod(pod: &Value, usage: &mut Amounts) {
    if matches!(str_at(part(pod, "status"), "phase"), "Succeeded" | "Failed") {
        return;
    }
    usage.insert("pods".to_owned(), Quantity::new(1, Format::DecimalSi));
    let spec = part(pod, "spec");
    usage.extend(computed(&pod_amounts(spec, "requests"), &pod_amounts(spec, "limits")));
}

/// Requests and limits under the names of quotas.
fn computed(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    for (name, amount) in requests {
        if COMPUTE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount.clone());
        }
        usage.insert(format!("requests.{name}"), amount.clone());
    }
    for (name, amount) in limits {
        if COMPUTE.contains(&name.as_str()) {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

fn service(service: &Value, usage: &mut Amounts) {
    let spec = part(service, "spec");
    let ports = list_at(spec, "ports");
    let (balancers, node_ports) = match str_at(spec, "type") {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" if spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false)) => {
            (1, ports.iter().filter(|p| p.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0).count())
        }
        "LoadBalancer" => (1, ports.len()),
        _ => (0, 0),
    };
    for (name, number) in [("services.loadbalancers", balancers), ("services.nodeports", node_ports)] {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        usage.insert(name.to_owned(), Quantity::new(number, Format::DecimalSi));
    }
}

fn claim(claim: &Value, usage: &mut Amounts) {
    let spec = part(claim, "spec");
    let beta = meta::annotation(claim, "volume.beta.kubernetes.io/storage-class");
    let class = beta.unwrap_or_else(|| str_at(spec, "storageClassName"));
    let one = Quantity::new(1, Format::DecimalSi);
    let requested = amounts(part(spec, "resources"), "requests").remove("storage");
    if !class.is_empty() {
        usage.insert(format!("{class}{CLASS_SUFFIX}persistentvolumeclaims"), one);
    }
    if let Some(storage) = requested {
        if !class.is_empty() {
            usage.insert(format!("{class}{CLASS_SUFFIX}requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".to_owned(), storage);
    }
}

/// What the containers of a pod must say about themselves when a quota bounds these resources, but do not.
pub fn unspecified(pod: &Value, bounded: &[&str]) -> Option<String> {
    let spec = part(pod, "spec");
    let whole = part(spec, "resources");
    let whole = computed(&amounts(whole, "requests"), &amounts(whole, "limits"));
    let containers = || list_at(spec, "containers").iter().chain(list_at(spec, "initContainers"));
    let mut missing = Vec::new();
    let mut required: Vec<&str> = bounded.iter().copied().filter(|name| EXPLICIT.contains(name)).collect();
    required.sort_unstable();
    for name in required.into_iter().filter(|name| !whole.contains_key(*name)) {
        let mut without: Vec<&str> = containers()
            .filter(|container| {
                let own = part(container, "resources");
                !computed(&amounts(own, "requests"), &amounts(own, "limits")).contains_key(name)
            })
            .map(|container| str_at(container, "name"))
            .collect();
        without.sort_unstable();
        if !without.is_empty() {
            missing.push(format!("{name} for: {}", without.join(",")));
        }
    }
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

/// Whether a pod's affinity reaches into other namespaces.
pub fn reaches_other_namespaces(spec: &Value) -> bool {
    let reaches =
        |term: &Value| !list_at(term, "namespaces").is_empty() || term.get("namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let Some(affinity) = at(spec, &["affinity", kind]) else { return false };
        list_at(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().any(reaches)
            || list_at(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| reaches(part(weighted, "podAffinityTerm")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(usage: &Amounts) -> Vec<String> {
        usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn every_name_of_a_quota_belongs_to_a_kind() {
        for (name, kind) in [
            ("pods", ("", "pods")),
            ("requests.cpu", ("", "pods")),
            ("limits.memory", ("", "pods")),
            ("requests.nvidia.com/gpu", ("", "pods")),
            ("count/deployments.apps", ("apps", "deployments")),
            ("count/pods", ("", "pods")),
            ("services.nodeports", ("", "services")),
            ("requests.storage", ("", "persistentvolumeclaims")),
            ("gold.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
            ("secrets", ("", "secrets")),
        ] {
            assert_eq!(kind_of(name), Some(kind), "{name}");
        }
        assert_eq!(kind_of("example.com/other"), None);
    }

    #[test]
    fn a_pod_uses_what_it_asks_for_until_it_ends() {
        let mut pod = json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
            {"resources": {"requests": {"cpu": "500m"}}},
        ]}});
        assert_eq!(
            shown(&of("", "pods", &pod)),
            ["count/pods=1", "cpu=1500m", "limits.cpu=2", "pods=1", "requests.cpu=1500m"]
        );
        pod["status"] = json!({"phase": "Succeeded"});
        assert_eq!(shown(&of("", "pods", &pod)), ["count/pods=1"]);
    }

    #[test]
    fn services_use_ports_and_balancers() {
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{}, {}]}});
        assert_eq!(
            shown(&of("", "services", &service)),
            ["count/services=1", "services=1", "services.loadbalancers=1", "services.nodeports=2"]
        );
    }

    #[test]
    fn claims_are_counted_by_class() {
        let claim =
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
        let usage = of("", "persistentvolumeclaims", &claim);
        assert_eq!(usage["gold.storageclass.storage.k8s.io/requests.storage"].to_string(), "1Gi");
        assert_eq!(usage["requests.storage"].to_string(), "1Gi");
    }

    #[test]
    fn containers_must_say_what_is_bounded() {
        let pod = json!({"spec": {"containers": [
            {"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}},
        ]}});
        assert_eq!(
            unspecified(&pod, &["limits.cpu", "cpu", "pods"]).as_deref(),
            Some("must specify cpu for: b; limits.cpu for: a,b")
        );
        assert_eq!(unspecified(&pod, &["pods"]), None);
    }
}
