//! Service: defaults, and what happens to fields that only some types have. See [`super::service_validation`] for
//! the checks and [`super::service_alloc`] for addresses and ports.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use shoal_objects::Value;

use super::access::{
    at, bool_at, child_mut, field, int_at, is_set, list_at, list_mut, remove, set, set_default,
    set_default_str, str_at,
};
use super::{NameRule, Rules, service_validation};

/// The rules of Service. Between preparing and validating, the server allocates addresses and ports.
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    prepare_update,
    validate: service_validation::validate,
    validate_update: service_validation::validate_update,
    validate_status: service_validation::validate_status,
    warnings,
    name: NameRule::Label1035,
    ..Rules::NONE
};

const DEFAULT_AFFINITY_SECONDS: i64 = 10800;

fn default(service: &mut Value) {
    if let Some(spec) = child_mut(service, "spec") {
        default_spec(spec);
    }
    let balanced = type_of(service) == "LoadBalancer";
    let Some(balancer) = child_mut(service, "status").and_then(|status| child_mut(status, "loadBalancer"))
    else {
        return;
    };
    for ingress in list_mut(balancer, "ingress") {
        if balanced && is_set(ingress, "ip") {
            set_default(ingress, "ipMode", "VIP");
        }
    }
}

fn default_spec(spec: &mut Value) {
    set_default_str(spec, "sessionAffinity", "None");
    match str_at(spec, "sessionAffinity") {
        "None" => {
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if at(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"]).is_none() => {
            let config = json!({"clientIP": {"timeoutSeconds": DEFAULT_AFFINITY_SECONDS}});
            set(spec, "sessionAffinityConfig", config);
        }
        _ => {}
    }
    set_default_str(spec, "type", "ClusterIP");
    for port in list_mut(spec, "ports") {
        set_default_str(port, "protocol", "TCP");
        if !is_set(port, "targetPort") {
            let number = int_at(port, "port").unwrap_or_default();
            set(port, "targetPort", number);
        }
    }
    if externally_accessible(spec) {
        set_default_str(spec, "externalTrafficPolicy", "Cluster");
    }
    let kind = str_at(spec, "type").to_owned();
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn prepare_create(service: &mut Value) {
    set(service, "status", json!({"loadBalancer": {}}));
    if let Some(spec) = child_mut(service, "spec") {
        let address = str_at(spec, "clusterIP").to_owned();
        if !address.is_empty() && !is_set(spec, "clusterIPs") {
            set(spec, "clusterIPs", json!([address]));
        }
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    let empty = json!({});
    let old_spec = field(old, "spec").unwrap_or(&empty);
    let Some(spec) = child_mut(new, "spec") else { return };
    keep_allocated(spec, old_spec);
    align_cluster_ips(spec, old_spec);
    drop_by_type(spec, old_spec);
}

/// A client that leaves out what was allocated means to keep it.
fn keep_allocated(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        if !is_set(new, "clusterIP") && is_set(old, "clusterIP") {
            set(new, "clusterIP", str_at(old, "clusterIP"));
        }
        if !is_set(new, "clusterIPs") && str_at(new, "clusterIP") == str_at(old, "clusterIP") {
            copy_if_set(new, old, "clusterIPs");
        }
    }
    if needs_node_port(old) && needs_node_port(new) {
        let still_used: BTreeSet<i64> = node_ports(new).into_iter().collect();
        let by_name: BTreeMap<&str, i64> = list_at(old, "ports")
            .iter()
            .map(|port| (str_at(port, "name"), int_at(port, "nodePort").unwrap_or_default()))
            .filter(|(_, port)| *port != 0 && !still_used.contains(port))
            .collect();
        for port in list_mut(new, "ports") {
            if !is_set(port, "nodePort")
                && let Some(number) = by_name.get(str_at(port, "name"))
            {
                set(port, "nodePort", *number);
            }
        }
    }
    if needs_health_check_port(old) && needs_health_check_port(new) && !is_set(new, "healthCheckNodePort") {
        copy_if_set(new, old, "healthCheckNodePort");
    }
}

/// Older clients know `clusterIP` only; `clusterIPs` follows what they did to it.
fn align_cluster_ips(new: &mut Value, old: &Value) {
    let (now, before) = (str_at(new, "clusterIP").to_owned(), str_at(old, "clusterIP"));
    if !is_set(new, "clusterIPs") && now == before {
        copy_if_set(new, old, "clusterIPs");
    }
    if now == before || list_at(new, "clusterIPs") != list_at(old, "clusterIPs") {
        return;
    }
    if now.is_empty() {
        remove(new, "clusterIPs");
    } else {
        set(new, "clusterIPs", json!([now]));
    }
}

/// Drops fields that the new type does not have, unless the client changed them too: then validation complains.
fn drop_by_type(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        if new.get("clusterIP") == old.get("clusterIP")
            && list_at(new, "clusterIPs") == list_at(old, "clusterIPs")
        {
            remove(new, "clusterIP");
            remove(new, "clusterIPs");
        }
        remove_if_same(new, old, "ipFamilies");
        remove_if_same(new, old, "ipFamilyPolicy");
        remove_if_same(new, old, "internalTrafficPolicy");
    }
    if needs_node_port(old) && !needs_node_port(new) && node_ports(new) == node_ports(old) {
        for port in list_mut(new, "ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_check_port(old) && !needs_health_check_port(new) {
        remove_if_same(new, old, "healthCheckNodePort");
    }
    if str_at(old, "type") == "LoadBalancer" && str_at(new, "type") != "LoadBalancer" {
        remove_if_same(new, old, "allocateLoadBalancerNodePorts");
        remove_if_same(new, old, "loadBalancerClass");
    }
    if externally_accessible(old) && !externally_accessible(new) {
        remove_if_same(new, old, "externalTrafficPolicy");
    }
}

fn copy_if_set(new: &mut Value, old: &Value, name: &str) {
    if let Some(value) = field(old, name) {
        set(new, name, value.clone());
    }
}

fn remove_if_same(new: &mut Value, old: &Value, name: &str) {
    if new.get(name) == old.get(name) {
        remove(new, name);
    }
}

/// Fields that have no effect on this service.
fn warnings(service: &Value) -> Vec<String> {
    let Some(spec) = field(service, "spec") else { return Vec::new() };
    let mut found = Vec::new();
    if is_headless(spec) {
        for name in ["loadBalancerIP", "externalIPs"] {
            if is_set(spec, name) {
                found.push(format!("spec.{name} is ignored when spec.clusterIP is \"None\""));
            }
        }
        if str_at(spec, "sessionAffinity") != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    if is_set(spec, "externalName") && str_at(spec, "type") != "ExternalName" {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    found
}

/// `spec.type`
pub(super) fn type_of(service: &Value) -> &str {
    field(service, "spec").map(|spec| str_at(spec, "type")).unwrap_or_default()
}

/// Whether this spec has an address in the cluster, even if it is `None`.
pub(super) fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(str_at(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether its ports get node ports on their own.
pub(super) fn needs_node_port(spec: &Value) -> bool {
    match str_at(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            field(spec, "allocateLoadBalancerNodePorts").is_none()
                || bool_at(spec, "allocateLoadBalancerNodePorts")
        }
        _ => false,
    }
}

/// Whether load balancers ask nodes for local endpoints.
pub(super) fn needs_health_check_port(spec: &Value) -> bool {
    str_at(spec, "type") == "LoadBalancer" && str_at(spec, "externalTrafficPolicy") == "Local"
}

/// Whether traffic from outside can reach it.
pub(super) fn externally_accessible(spec: &Value) -> bool {
    match str_at(spec, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => is_set(spec, "externalIPs"),
        _ => false,
    }
}

/// Whether `clusterIPs` is just `None`.
pub(super) fn is_headless(spec: &Value) -> bool {
    matches!(list_at(spec, "clusterIPs"), [only] if only == "None")
}

fn node_ports(spec: &Value) -> Vec<i64> {
    list_at(spec, "ports")
        .iter()
        .filter_map(|port| int_at(port, "nodePort"))
        .filter(|port| *port != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_service_is_filled_up() {
        let mut service = json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}});
        default(&mut service);
        assert_eq!(
            service,
            json!({
                "spec": {
                    "internalTrafficPolicy": "Cluster", "selector": {"app": "a"}, "sessionAffinity": "None",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "type": "ClusterIP",
                },
                "status": {"loadBalancer": {}},
            })
        );
    }

    #[test]
    fn each_type_has_its_own_defaults() {
        let spec = |spec: Value| {
            let mut service = json!({"spec": spec});
            default(&mut service);
            service["spec"].clone()
        };
        assert_eq!(
            spec(json!({"type": "ExternalName", "externalName": "db.example.test"})),
            json!({"externalName": "db.example.test", "sessionAffinity": "None", "type": "ExternalName"})
        );
        let balanced = spec(json!({"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": "web"}]}));
        assert_eq!(balanced["allocateLoadBalancerNodePorts"], true);
        assert_eq!(balanced["externalTrafficPolicy"], "Cluster");
        assert_eq!(balanced["ports"][0]["targetPort"], "web");
        let sticky = spec(json!({"ports": [{"port": 1}], "sessionAffinity": "ClientIP"}));
        assert_eq!(sticky["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    }

    fn node_port_service() -> Value {
        json!({"spec": {
            "type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}],
            "sessionAffinity": "None",
        }})
    }

    #[test]
    fn a_put_without_addresses_keeps_them() {
        let old = node_port_service();
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        default(&mut new);
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.9"]));
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30080);
    }

    #[test]
    fn a_change_of_type_drops_what_the_new_type_has_not() {
        let old = node_port_service();
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        prepare_update(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({
                "type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            })
        );
        let mut external = old.clone();
        external["spec"]["type"] = "ExternalName".into();
        external["spec"]["externalName"] = "x.test".into();
        prepare_update(&mut external, &old);
        assert_eq!(
            external["spec"],
            json!({
                "externalName": "x.test", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "sessionAffinity": "None", "type": "ExternalName",
            })
        );
    }

    #[test]
    fn fields_without_effect_are_told() {
        let mut service =
            json!({"spec": {"clusterIP": "None", "sessionAffinity": "ClientIP", "externalName": "x"}});
        default(&mut service);
        prepare_create(&mut service);
        assert_eq!(
            warnings(&service),
            [
                "spec.SessionAffinity is ignored for headless services",
                "spec.externalName is ignored when spec.type is not \"ExternalName\""
            ]
        );
        assert!(warnings(&node_port_service()).is_empty());
    }

    #[test]
    fn a_new_address_in_the_old_field_moves_to_the_list() {
        let old = node_port_service();
        let mut new = old.clone();
        new["spec"]["clusterIP"] = "10.96.0.10".into();
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.10"]));
    }
}
