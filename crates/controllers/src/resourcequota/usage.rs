//! What objects use up, by the names that quotas know.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuotaSpec, Service};
use shoal_objects::Quantity;
use shoal_objects::quantity::Format;

use crate::pods;
use crate::scheduler::resources::{self, Resources};

/// Amounts by name.
pub type Amounts = BTreeMap<String, Quantity>;

const CLASS: &str = ".storageclass.storage.k8s.io/";
/// Core kinds that are counted under their plain name.
const PLAIN: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// The plural and group of a kind of which only the number matters.
pub fn counted(name: &str) -> Option<(&str, &str)> {
    if let Some(kind) = name.strip_prefix("count/") {
        return Some(kind.split_once('.').unwrap_or((kind, "")));
    }
    PLAIN.contains(&name).then_some((name, ""))
}

fn whole(number: usize) -> Quantity {
    Quantity::new(i64::try_from(number).unwrap_or(i64::MAX), Format::DecimalSi)
}

fn bytes(number: i64) -> Quantity {
    Quantity::new(number, Format::BinarySi)
}

fn add(usage: &mut Amounts, name: impl Into<String>, amount: &Quantity) {
    usage.entry(name.into()).or_insert_with(|| whole(0)).add(amount);
}

/// What pods use. Those that have ended use nothing.
pub fn of_pods<'a>(pods: impl Iterator<Item = &'a Pod>, spec: &ResourceQuotaSpec, usage: &mut Amounts) {
    for pod in pods.filter(|pod| !pods::is_finished(pod) && in_scope(pod, spec)) {
        let Some(of) = &pod.spec else { continue };
        add(usage, "pods", &whole(1));
        for (name, amount) in amounts(&resources::requests(of).fit) {
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("hugepages-")
            {
                add(usage, name.clone(), &amount);
            }
            add(usage, format!("requests.{name}"), &amount);
        }
        for (name, amount) in amounts(&resources::limits(of)) {
            add(usage, format!("limits.{name}"), &amount);
        }
    }
}

fn amounts(of: &Resources) -> Vec<(String, Quantity)> {
    let named = [
        ("cpu", Quantity::from_milli(of.cpu)),
        ("memory", bytes(of.memory)),
        ("ephemeral-storage", bytes(of.storage)),
    ];
    let others = of.others.iter().map(|(name, amount)| (name.to_string(), bytes(*amount)));
    named.into_iter().map(|(name, amount)| (name.to_owned(), amount)).chain(others).collect()
}

/// Whether the scopes of a quota take in this pod.
fn in_scope(pod: &Pod, spec: &ResourceQuotaSpec) -> bool {
    let plain = spec.scopes.iter().flatten().map(|scope| (scope.as_str(), "Exists", Vec::new()));
    let selected =
        spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let selected = selected.map(|one| {
        let values = one.values.iter().flatten().map(String::as_str).collect();
        (one.scope_name.as_str(), one.operator.as_str(), values)
    });
    plain.chain(selected).all(|(scope, operator, values)| matches(pod, scope, operator, &values))
}

fn matches(pod: &Pod, scope: &str, operator: &str, values: &[&str]) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let best_effort =
        pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
    let class = spec.priority_class_name.as_deref().unwrap_or_default();
    match scope {
        "Terminating" => spec.active_deadline_seconds.is_some(),
        "NotTerminating" => spec.active_deadline_seconds.is_none(),
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => match operator {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => values.contains(&class),
            "NotIn" => !values.contains(&class),
            _ => false,
        },
        _ => false,
    }
}

/// What services use.
pub fn of_services<'a>(services: impl Iterator<Item = &'a Service>, usage: &mut Amounts) {
    for service in services {
        add(usage, "services", &whole(1));
        let Some(spec) = &service.spec else { continue };
        let ports = spec.ports.as_deref().unwrap_or_default();
        let given = ports.iter().filter(|port| port.node_port.is_some_and(|port| port != 0)).count();
        let (balancers, node_ports) = match spec.type_.as_deref() {
            Some("NodePort") => (0, ports.len()),
            Some("LoadBalancer") if spec.allocate_load_balancer_node_ports == Some(false) => (1, given),
            Some("LoadBalancer") => (1, ports.len()),
            _ => (0, 0),
        };
        add(usage, "services.loadbalancers", &whole(balancers));
        add(usage, "services.nodeports", &whole(node_ports));
    }
}

/// What claims use.
pub fn of_claims<'a>(claims: impl Iterator<Item = &'a PersistentVolumeClaim>, usage: &mut Amounts) {
    for claim in claims {
        let class = crate::persistentvolume::plan::class_of(claim);
        add(usage, "persistentvolumeclaims", &whole(1));
        let asked =
            claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
        let asked = asked.and_then(|amount| Quantity::parse(&amount.0).ok()).unwrap_or_else(|| whole(0));
        add(usage, "requests.storage", &asked);
        if !class.is_empty() {
            add(usage, format!("{class}{CLASS}persistentvolumeclaims"), &whole(1));
            add(usage, format!("{class}{CLASS}requests.storage"), &asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn used(pods: &[Value], spec: Value) -> BTreeMap<String, String> {
        let pods: Vec<Pod> = pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
        let mut usage = Amounts::new();
        of_pods(pods.iter(), &serde_json::from_value(spec).unwrap(), &mut usage);
        usage.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
    }

    #[test]
    fn pods_use_what_they_ask_for_until_they_end() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}},
            {"name": "b", "resources": {"requests": {"cpu": "500m"}}}]}});
        let mut ended = pod.clone();
        ended["status"] = json!({"phase": "Failed"});
        let used = used(&[pod, ended], json!({}));
        for (name, amount) in [
            ("pods", "1"),
            ("cpu", "1500m"),
            ("requests.cpu", "1500m"),
            ("limits.cpu", "2"),
            ("memory", "1Gi"),
        ] {
            assert_eq!(used[name], amount, "{name}");
        }
    }

    #[test]
    fn scopes_take_in_some_pods_only() {
        let ending =
            json!({"spec": {"activeDeadlineSeconds": 1, "priorityClassName": "high", "containers": []}});
        let plain = json!({"spec": {"containers": []}, "status": {"qosClass": "BestEffort"}});
        let high = json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
        for (spec, number) in [
            (json!({}), "2"),
            (json!({"scopes": ["Terminating"]}), "1"),
            (json!({"scopes": ["NotTerminating", "BestEffort"]}), "1"),
            (high, "1"),
        ] {
            assert_eq!(used(&[ending.clone(), plain.clone()], spec.clone())["pods"], number, "{spec}");
        }
    }

    #[test]
    fn some_names_are_plain_counts() {
        assert_eq!(counted("count/deployments.apps"), Some(("deployments", "apps")));
        assert_eq!(counted("count/pods"), Some(("pods", "")));
        assert_eq!(counted("secrets"), Some(("secrets", "")));
        assert_eq!(counted("requests.cpu"), None);
    }
}
