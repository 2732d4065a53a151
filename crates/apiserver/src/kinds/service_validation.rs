//! What is wrong with a Service.

use serde_json::json;
use shoal_objects::meta::validate_labels;
use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{at, field, int_at, is_set, list_at, object_at, str_at};
use super::seen::Seen;
use super::service::{externally_accessible, is_headless, needs_health_check_port, type_of};
use super::{checks, net};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameNode", "PreferSameZone"];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const SET_ONCE: &str = "may not change once set";
const MAX_AFFINITY_SECONDS: i64 = 86400;

pub(super) fn validate(service: &Value, errors: &mut Errors) {
    let Some(spec) = field(service, "spec") else { return };
    let path = Path::new("spec");
    let kind = str_at(spec, "type");
    if !is_set(spec, "ports") && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    validate_type_fields(spec, &path, errors);
    validate_ports(spec, &path.child("ports"), errors);
    if let Some(selector) = object_at(spec, "selector") {
        validate_labels(selector, &path.child("selector"), errors);
    }
    validate_affinity(spec, &path, errors);
    if kind != "ExternalName" {
        validate_cluster_ips(spec, errors);
    }
    let external_ips = path.child("externalIPs");
    for (i, ip) in list_at(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if net::ip(errors, &external_ips.index(i), ip) {
            net::non_special_ip(errors, &external_ips.index(i), ip);
        }
    }
    checks::one_of(spec, "type", &TYPES, &path, errors);
    validate_node_ports(spec, &path.child("ports"), errors);
    validate_source_ranges(service, spec, errors);
    if field(spec, "allocateLoadBalancerNodePorts").is_some() != (kind == "LoadBalancer") {
        if kind == "LoadBalancer" {
            errors.required(&Path::new("allocateLoadBalancerNodePorts"), "");
        } else {
            errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), BALANCER_ONLY);
        }
    }
    validate_balancer_class(spec, &path, errors);
    validate_traffic(spec, &path, errors);
}

fn validate_type_fields(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let cluster_ips = path.child("clusterIPs");
    match str_at(spec, "type") {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid_str(&cluster_ips.index(0), "None", &detail);
        }
        "ExternalName" => {
            for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if is_set(spec, name) {
                    errors.forbidden(&path.child(name), "may not be set for ExternalName services");
                }
            }
            // A dot at the end marks the name as fully qualified.
            let name = str_at(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.required(&path.child("externalName"), "");
            } else {
                checks::text(errors, &path.child("externalName"), name, names::dns1123_subdomain(name));
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports = list_at(spec, "ports");
    let mut seen = Seen::default();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = str_at(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.child("name"), "");
            }
        } else {
            checks::text(errors, &path.child("name"), name, names::dns1123_label(name));
            if seen.again(name) {
                errors.duplicate(&path.child("name"), &name.into());
            }
        }
        net::port_number(errors, &path.child("port"), int_at(port, "port").unwrap_or_default());
        checks::one_of(port, "protocol", &net::PROTOCOLS, &path, errors);
        net::port_number_or_name(errors, &path.child("targetPort"), field(port, "targetPort"));
        if let Some(protocol) = field(port, "appProtocol").and_then(Value::as_str) {
            checks::text(errors, &path.child("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
}

fn validate_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::one_of(spec, "sessionAffinity", &["ClientIP", "None"], path, errors);
    let config = path.child("sessionAffinityConfig");
    match str_at(spec, "sessionAffinity") {
        "ClientIP" => {
            let client = config.child("clientIP");
            let seconds = at(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
            let seconds = seconds.and_then(Value::as_i64).unwrap_or_default();
            if seconds <= 0 || seconds > MAX_AFFINITY_SECONDS {
                let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                errors.invalid(&client.child("timeoutSeconds"), &seconds.into(), &detail);
            }
        }
        "None" if field(spec, "sessionAffinityConfig").is_some() => {
            errors.forbidden(&config, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// How `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` fit together.
pub(super) fn validate_cluster_ips(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (plural, families_path) = (path.child("clusterIPs"), path.child("ipFamilies"));
    let ips: Vec<&str> =
        list_at(spec, "clusterIPs").iter().map(|ip| ip.as_str().unwrap_or_default()).collect();
    let given = json!(ips);
    let single = str_at(spec, "clusterIP");
    match ips.first() {
        None if !single.is_empty() => errors.required(&plural, ""),
        Some(_) if single.is_empty() => {
            errors.invalid(&plural, &given, "must be empty when `clusterIP` is not specified");
        }
        Some(first) if *first != single => {
            errors.invalid(&plural, &given, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = list_at(spec, "ipFamilies");
    let mut seen = Seen::default();
    for (i, family) in families.iter().enumerate() {
        checks::supported_text(
            family.as_str().unwrap_or_default(),
            &FAMILIES,
            &families_path.index(i),
            errors,
        );
        if seen.again(family.as_str().unwrap_or_default()) {
            errors.duplicate(&families_path.index(i), family);
        }
    }
    checks::optional_one_of(spec, "ipFamilyPolicy", &FAMILY_POLICIES, &path, errors);
    let mut sound = true;
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                sound = false;
                errors.invalid(&plural, &given, "'None' must be the first and only value");
            }
        } else {
            sound &= net::ip(errors, &plural.index(i), ip);
        }
    }
    if ips.len() > 2 {
        errors.invalid(&plural, &given, "may only hold up to 2 values");
    }
    if !sound || is_headless(spec) {
        return;
    }
    let is_v6 = |ip: &str| ip.contains(':');
    if ips.len() > 1 && (ips.iter().all(|ip| is_v6(ip)) || !ips.iter().any(|ip| is_v6(ip))) {
        errors.invalid(&plural, &given, "may specify no more than one IP for each IP family");
    }
    for (i, (ip, family)) in ips.iter().zip(families).enumerate() {
        let wanted = family.as_str().unwrap_or_default();
        if FAMILIES.contains(&wanted) && (wanted == "IPv6") != is_v6(ip) {
            let detail = format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`");
            errors.invalid_str(&plural.index(i), ip, &detail);
        }
    }
}

fn validate_node_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports = list_at(spec, "ports");
    if str_at(spec, "type") == "ClusterIP" {
        for (i, port) in ports.iter().enumerate() {
            if is_set(port, "nodePort") {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.forbidden(&path.index(i).child("nodePort"), detail);
            }
        }
    }
    let key = |number: i64, port: &Value| format!("{number} {}", str_at(port, "protocol"));
    let mut seen = Seen::default();
    for (i, port) in ports.iter().enumerate() {
        let number = int_at(port, "nodePort").unwrap_or_default();
        if number != 0 && seen.again(key(number, port)) {
            errors.duplicate(&path.index(i).child("nodePort"), &number.into());
        }
    }
    let mut seen = Seen::default();
    for (i, port) in ports.iter().enumerate() {
        let number = int_at(port, "port").unwrap_or_default();
        if seen.again(key(number, port)) {
            let value = json!({"port": number, "protocol": str_at(port, "protocol")});
            errors.duplicate(&path.index(i), &value);
        }
    }
}

fn validate_source_ranges(service: &Value, spec: &Value, errors: &mut Errors) {
    let balanced = str_at(spec, "type") == "LoadBalancer";
    let (spec_path, metadata) = (Path::new("spec"), Path::new("metadata"));
    let ranges = list_at(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = spec_path.child("LoadBalancerSourceRanges");
        if !balanced {
            errors.forbidden(&path, BALANCER_ONLY);
        }
        for (i, range) in ranges.iter().enumerate() {
            net::cidr(errors, &path.index(i), range.as_str().unwrap_or_default().trim());
        }
    } else if let Some(text) = meta::annotation(service, SOURCE_RANGES) {
        let annotations = metadata.child("annotations");
        let path = annotations.key(SOURCE_RANGES);
        if !balanced {
            errors.forbidden(&path, BALANCER_ONLY);
        }
        if !text.trim().is_empty() {
            text.split(',').for_each(|range| net::cidr(errors, &path, range.trim()));
        }
    }
}

fn validate_balancer_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(class) = field(spec, "loadBalancerClass").and_then(Value::as_str) else { return };
    if str_at(spec, "type") == "LoadBalancer" {
        checks::text(errors, &path.child("loadBalancerClass"), class, names::qualified_name(class));
    } else {
        errors.forbidden(&path.child("loadBalancerClass"), BALANCER_ONLY);
    }
}

fn validate_traffic(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = str_at(spec, "externalTrafficPolicy");
    if externally_accessible(spec) {
        checks::one_of(spec, "externalTrafficPolicy", &POLICIES, path, errors);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid_str(&path.child("externalTrafficPolicy"), policy, detail);
    }
    let port = int_at(spec, "healthCheckNodePort").unwrap_or_default();
    let port_path = path.child("healthCheckNodePort");
    match (needs_health_check_port(spec), port) {
        (false, 0) => {}
        (false, _) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&port_path, &port.into(), detail);
        }
        (true, 0) => errors.required(&port_path, ""),
        (true, _) => net::port_number(errors, &port_path, port),
    }
    let clustered = matches!(str_at(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer");
    if clustered && field(spec, "internalTrafficPolicy").is_none() {
        errors.required(&path.child("internalTrafficPolicy"), "");
    }
    checks::optional_one_of(spec, "internalTrafficPolicy", &POLICIES, path, errors);
    checks::optional_one_of(spec, "trafficDistribution", &DISTRIBUTIONS, path, errors);
}

pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (Some(new_spec), Some(old_spec)) = (field(new, "spec"), field(old, "spec")) else { return };
    if type_of(new) != "ExternalName" && type_of(old) != "ExternalName" {
        validate_address_change(new_spec, old_spec, errors);
        validate_family_change(new_spec, old_spec, errors);
    }
    let path = Path::new("spec");
    let class = |spec| field(spec, "loadBalancerClass");
    if type_of(new) == "LoadBalancer" && type_of(old) == "LoadBalancer" && class(new_spec) != class(old_spec)
    {
        let value = class(new_spec).unwrap_or(&Value::Null);
        errors.invalid(&path.child("loadBalancerClass"), value, SET_ONCE);
    }
    let port = |spec| int_at(spec, "healthCheckNodePort").unwrap_or_default();
    if needs_health_check_port(old_spec)
        && needs_health_check_port(new_spec)
        && port(old_spec) != port(new_spec)
    {
        errors.forbidden(&path.child("healthCheckNodePort"), checks::IMMUTABLE);
    }
}

/// The first address stays; the second may come, or go when the policy says so.
fn validate_address_change(new: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(old) && is_headless(new) {
        return;
    }
    let path = Path::new("spec");
    let plural = path.child("clusterIPs");
    let (now, before) = (list_at(new, "clusterIPs"), list_at(old, "clusterIPs"));
    let value = Value::from(now.to_vec());
    if now.len() == before.len() {
        for (i, _) in before.iter().zip(now).enumerate().filter(|(_, (a, b))| a != b) {
            errors.invalid(&plural.index(i), &value, SET_ONCE);
        }
        return;
    }
    if now.is_empty() {
        errors.invalid(&plural.index(0), &value, "primary clusterIP can not be unset");
    } else if before.first().is_some_and(|first| Some(first) != now.first()) {
        errors.invalid(&plural.index(0), &value, SET_ONCE);
    }
    if before.len() > now.len() && now.len() == 1 {
        single_stack(new, "must be set to 'SingleStack' when releasing the secondary clusterIP", errors);
    }
}

fn validate_family_change(new: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(old) || is_headless(new) {
        return;
    }
    let path = Path::new("spec");
    let families = path.child("ipFamilies");
    let (now, before) = (list_at(new, "ipFamilies"), list_at(old, "ipFamilies"));
    let value = Value::from(now.to_vec());
    if now.len() == before.len() {
        for _ in before.iter().zip(now).filter(|(a, b)| a != b) {
            errors.invalid(&families.index(0), &value, SET_ONCE);
        }
        return;
    }
    if now.is_empty() {
        errors.invalid(&families.index(0), &value, "primary ipFamily can not be unset");
    } else if before.first().is_some_and(|first| Some(first) != now.first()) {
        errors.invalid(&families.index(0), &value, SET_ONCE);
    }
    if before.len() > now.len() && now.len() == 1 {
        single_stack(new, "must be set to 'SingleStack' when releasing the secondary ipFamily", errors);
    }
}

fn single_stack(spec: &Value, detail: &str, errors: &mut Errors) {
    if str_at(spec, "ipFamilyPolicy") != "SingleStack" {
        let policy = field(spec, "ipFamilyPolicy").unwrap_or(&Value::Null);
        errors.invalid(&Path::new("spec").child("ipFamilyPolicy"), policy, detail);
    }
}

pub(super) fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(balancer) = at(new, &["status", "loadBalancer"]) else { return };
    let status = Path::new("status");
    let path = status.child("loadBalancer");
    let ingresses = path.child("ingress");
    if is_set(balancer, "ingress") && type_of(new) != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is \"LoadBalancer\"";
        errors.forbidden(&ingresses, detail);
    }
    for (i, ingress) in list_at(balancer, "ingress").iter().enumerate() {
        let path = ingresses.index(i);
        let ip = str_at(ingress, "ip");
        if ip.is_empty() {
            if field(ingress, "ipMode").is_some() {
                errors.forbidden(&path.child("ipMode"), "may not be specified when `ip` is not set");
            }
        } else {
            net::ip(errors, &path.child("ip"), ip);
            if field(ingress, "ipMode").is_none() {
                errors.required(&path.child("ipMode"), "must be specified when `ip` is set");
            }
            checks::optional_one_of(ingress, "ipMode", &["Proxy", "VIP"], &path, errors);
        }
        let host = str_at(ingress, "hostname");
        if !host.is_empty() {
            checks::text(errors, &path.child("hostname"), host, names::dns1123_subdomain(host));
            if names::parse_ip(host).is_some() {
                errors.invalid_str(&path.child("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::RULES;
    use super::super::testing::causes;
    use super::*;

    fn refused(spec: &Value) -> Vec<String> {
        let mut service = json!({"spec": spec});
        (RULES.default)(&mut service);
        (RULES.prepare_create)(&mut service);
        causes(|e| validate(&service, e))
    }

    #[test]
    fn a_service_has_ports_unless_it_is_headless_or_elsewhere() {
        assert_eq!(refused(&json!({})), ["spec.ports FieldValueRequired"]);
        assert!(refused(&json!({"clusterIP": "None"})).is_empty());
        assert!(refused(&json!({"type": "ExternalName", "externalName": "a.test."})).is_empty());
        assert_eq!(refused(&json!({"type": "ExternalName"})), ["spec.externalName FieldValueRequired"]);
        assert_eq!(
            refused(&json!({"type": "NodePort", "clusterIP": "None", "ports": [{"port": 1}]})),
            ["spec.clusterIPs[0] FieldValueInvalid"]
        );
    }

    #[test]
    fn ports_are_named_and_told_apart() {
        let ports =
            json!([{"port": 80}, {"port": 80, "name": "a"}, {"port": 70000, "name": "a", "protocol": "X"}]);
        assert_eq!(
            refused(&json!({"ports": ports})),
            [
                "spec.ports[0].name FieldValueRequired",
                "spec.ports[2].name FieldValueDuplicate",
                "spec.ports[2].port FieldValueInvalid",
                "spec.ports[2].protocol FieldValueNotSupported",
                "spec.ports[2].targetPort FieldValueInvalid",
                "spec.ports[1] FieldValueDuplicate",
            ]
        );
        assert_eq!(
            refused(&json!({"ports": [{"port": 80, "nodePort": 30000}]})),
            ["spec.ports[0].nodePort FieldValueForbidden"]
        );
    }

    #[test]
    fn addresses_are_addresses() {
        assert_eq!(
            refused(&json!({"clusterIP": "x", "ports": [{"port": 1}]})),
            ["spec.clusterIPs[0] FieldValueInvalid"]
        );
        assert_eq!(
            refused(&json!({"type": "Odd", "externalIPs": ["127.0.0.1"], "ports": [{"port": 1}]})),
            ["spec.externalIPs[0] FieldValueInvalid", "spec.type FieldValueNotSupported"]
        );
    }

    #[test]
    fn fields_of_other_types_are_refused() {
        assert_eq!(
            refused(&json!({
                "ports": [{"port": 1}], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
                "loadBalancerClass": "a.test/b", "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "allocateLoadBalancerNodePorts": true,
            })),
            [
                "spec.LoadBalancerSourceRanges FieldValueForbidden",
                "spec.allocateLoadBalancerNodePorts FieldValueForbidden",
                "spec.loadBalancerClass FieldValueForbidden",
                "spec.externalTrafficPolicy FieldValueInvalid",
                "spec.healthCheckNodePort FieldValueInvalid",
            ]
        );
    }

    #[test]
    fn the_address_stays() {
        let with = |ip: &str| json!({"spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip]}});
        assert_eq!(
            causes(|e| validate_update(&with("10.96.0.2"), &with("10.96.0.1"), e)),
            ["spec.clusterIPs[0] FieldValueInvalid"]
        );
        assert_eq!(
            causes(|e| validate_update(&with("None"), &with("10.96.0.1"), e)),
            ["spec.clusterIPs[0] FieldValueInvalid"]
        );
        assert!(causes(|e| validate_update(&with("10.96.0.1"), &with("10.96.0.1"), e)).is_empty());
    }
}
