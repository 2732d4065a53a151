//! Node.

use serde_json::json;
use shoal_objects::invalid::Reason;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{at, child_mut, field, is_set, list_at, set, set_default, str_at};
use super::seen::Seen;
use super::{Rules, checks, net, resource_lists};

/// The rules of Node. A node may be created with a status: see [`super::keeps_status_on_create`].
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    validate,
    validate_update,
    validate_status: |new, old, errors| {
        validate_resources(new, errors);
        validate_update(new, old, errors);
    },
    warnings: |node| {
        let used = at(node, &["spec", "externalID"]).is_some_and(|id| id != "");
        let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        if used { vec![text.to_owned()] } else { Vec::new() }
    },
    ..Rules::NONE
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

fn default(node: &mut Value) {
    if let Some(spec) = child_mut(node, "spec") {
        align_pod_cidrs(spec);
    }
    let Some(status) = child_mut(node, "status") else { return };
    resource_lists::round_up(status, "capacity");
    resource_lists::round_up(status, "allocatable");
    if let Some(capacity) = field(status, "capacity").cloned() {
        set_default(status, "allocatable", capacity);
    }
    // Written even when nothing is known.
    if let Some(kubelet) =
        child_mut(status, "daemonEndpoints").and_then(|daemons| child_mut(daemons, "kubeletEndpoint"))
    {
        set_default(kubelet, "Port", 0);
    }
    if let Some(info) = child_mut(status, "nodeInfo") {
        for name in INFO {
            set_default(info, name, "");
        }
    }
}

/// `podCIDR` is the first of `podCIDRs`; where they differ it wins, as older clients only know it.
fn align_pod_cidrs(spec: &mut Value) {
    let single = str_at(spec, "podCIDR").to_owned();
    let first = list_at(spec, "podCIDRs").first().and_then(Value::as_str).map(str::to_owned);
    match first {
        Some(first) if single.is_empty() => set(spec, "podCIDR", first),
        Some(first) if first == single => {}
        None if single.is_empty() => {}
        _ => set(spec, "podCIDRs", json!([single])),
    }
}

/// Nothing is scheduled on a node before its conditions have been looked at.
fn prepare_create(node: &mut Value) {
    let Some(spec) = child_mut(node, "spec") else { return };
    let mut taints = list_at(spec, "taints").to_vec();
    let there = taints
        .iter()
        .any(|taint| str_at(taint, "key") == NOT_READY && str_at(taint, "effect") == "NoSchedule");
    if !there {
        taints.push(json!({"effect": "NoSchedule", "key": NOT_READY}));
        set(spec, "taints", taints);
    }
}

fn validate(node: &Value, errors: &mut Errors) {
    validate_taints(node, errors);
    validate_resources(node, errors);
    let spec = field(node, "spec").unwrap_or(&Value::Null);
    let (path, cidrs) = (Path::new("spec"), list_at(spec, "podCIDRs"));
    let cidrs_path = path.child("podCIDRs");
    for (i, cidr) in cidrs.iter().enumerate() {
        net::cidr(errors, &cidrs_path.index(i), cidr.as_str().unwrap_or_default());
    }
    if cidrs.len() > 1 {
        let v6 = cidrs.iter().filter(|cidr| cidr.as_str().is_some_and(|cidr| cidr.contains(':'))).count();
        if cidrs.len() > 2 || v6 != 1 {
            let detail = "may specify no more than one CIDR for each IP family";
            errors.invalid(&cidrs_path, &Value::from(cidrs.to_vec()), detail);
        }
        let mut seen = Seen::default();
        for (i, cidr) in cidrs.iter().enumerate() {
            if seen.again(cidr.as_str().unwrap_or_default()) {
                errors.duplicate(&cidrs_path.index(i), cidr);
            }
        }
    }
}

/// The real server reports taints under `metadata.taints`.
fn validate_taints(node: &Value, errors: &mut Errors) {
    let metadata = Path::new("metadata");
    let path = metadata.child("taints");
    let taints = field(node, "spec").map(|spec| list_at(spec, "taints")).unwrap_or_default();
    let mut seen = Seen::default();
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        let (key, value) = (str_at(taint, "key"), str_at(taint, "value"));
        checks::text(errors, &path.child("key"), key, names::qualified_name(key));
        let found = names::label_value(value);
        if !found.is_empty() {
            errors.invalid_str(&path.child("value"), value, &found.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if is_set(taint, "effect") {
            checks::supported_text(str_at(taint, "effect"), &effects, &path.child("effect"), errors);
        } else {
            errors.required(&path.child("effect"), "");
        }
        if seen.again(format!("{key} {}", str_at(taint, "effect"))) {
            let message = format!("Duplicate value: {taint}: taints must be unique by key and effect pair");
            errors.push(&path, Reason::Duplicate, message);
        }
    }
}

fn validate_resources(node: &Value, errors: &mut Errors) {
    let Some(status) = field(node, "status") else { return };
    let path = Path::new("status");
    for list in ["capacity", "allocatable"] {
        let list_path = path.child(list);
        for (name, amount) in resource_lists::amounts(status, list) {
            resource_lists::validate_amount(name, &amount, &list_path.child(name), errors);
        }
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let addresses_path = Path::new("status");
    let addresses = field(new, "status").map(|status| list_at(status, "addresses")).unwrap_or_default();
    let mut seen = Seen::default();
    for (i, address) in addresses.iter().enumerate() {
        if seen.again(address.to_string()) {
            errors.duplicate(&addresses_path.child("addresses").index(i), address);
        }
    }
    let path = Path::new("spec");
    let text = |node, name: &str| at(node, &["spec", name]).and_then(Value::as_str).unwrap_or_default();
    let cidrs = |node| field(node, "spec").map(|spec| list_at(spec, "podCIDRs")).unwrap_or_default();
    let (now, before) = (cidrs(new), cidrs(old));
    if !before.is_empty() {
        let changed = now.len() != before.len() || now.iter().zip(before).any(|(a, b)| a != b);
        if changed {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(&path.child("podCIDRs"), detail);
        }
    }
    if !text(old, "providerID").is_empty() && text(new, "providerID") != text(old, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.child("providerID"), detail);
    }
    if text(new, "externalID") != text(old, "externalID") {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn a_new_node_is_tainted_and_filled_up() {
        let mut node = json!({
            "spec": {"podCIDR": "10.9.0.0/24"},
            "status": {"capacity": {"cpu": "4", "memory": "1Gi", "pods": "10"}},
        });
        default(&mut node);
        prepare_create(&mut node);
        assert_eq!(
            node,
            json!({
                "spec": {
                    "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"],
                    "taints": [{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}],
                },
                "status": {
                    "allocatable": {"cpu": "4", "memory": "1Gi", "pods": "10"},
                    "capacity": {"cpu": "4", "memory": "1Gi", "pods": "10"},
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                    "nodeInfo": {
                        "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                        "osImage": "", "systemUUID": "",
                    },
                },
            })
        );
        assert!(causes(|e| validate(&node, e)).is_empty());
        let before = node.clone();
        prepare_create(&mut node);
        assert_eq!(node, before);
    }

    #[test]
    fn the_pod_network_is_given_once() {
        let old = json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}});
        let mut new = json!({"spec": {"podCIDR": "10.10.0.0/24", "podCIDRs": ["10.10.0.0/24"]}});
        default(&mut new);
        let mut errors = Errors::new();
        validate_update(&new, &old, &mut errors);
        assert_eq!(
            errors.to_string(),
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
        );
        assert!(causes(|e| validate_update(&old, &json!({}), e)).is_empty());
    }

    #[test]
    fn taints_have_a_known_effect_and_occur_once() {
        let node = json!({"spec": {"taints": [
            {"key": "a", "effect": "Wrong"}, {"key": "b", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"},
        ]}});
        assert_eq!(
            causes(|e| validate(&node, e)),
            ["metadata.taints[0].effect FieldValueNotSupported", "metadata.taints[2] FieldValueDuplicate"]
        );
    }

    #[test]
    fn an_old_client_changes_the_first_network_only() {
        let mut spec = json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]});
        align_pod_cidrs(&mut spec);
        assert_eq!(spec["podCIDRs"], json!(["10.1.0.0/24"]));
    }
}
