//! NetworkPolicy.

use std::net::IpAddr;

use serde_json::json;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value};

use super::access::{child_mut, field, int_at, is_set, list_at, list_mut, set, set_default, str_at};
use super::{Rules, checks, net};

/// The rules of NetworkPolicy.
pub const RULES: Rules = Rules { default, validate, ..Rules::NONE };

fn default(policy: &mut Value) {
    let Some(spec) = child_mut(policy, "spec") else { return };
    for direction in ["ingress", "egress"] {
        for rule in list_mut(spec, direction) {
            for port in list_mut(rule, "ports") {
                set_default(port, "protocol", "TCP");
            }
        }
    }
    if !is_set(spec, "policyTypes") {
        let types = if is_set(spec, "egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        set(spec, "policyTypes", types);
    }
}

fn validate(policy: &Value, errors: &mut Errors) {
    let spec = field(policy, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    if let Some(selector) = field(spec, "podSelector") {
        validate_label_selector(selector, &path.child("podSelector"), errors);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = path.child(direction);
        for (i, rule) in list_at(spec, direction).iter().enumerate() {
            let path = rules.index(i);
            let ports = path.child("ports");
            for (j, port) in list_at(rule, "ports").iter().enumerate() {
                validate_port(port, &ports.index(j), errors);
            }
            let peers_path = path.child(peers);
            for (j, peer) in list_at(rule, peers).iter().enumerate() {
                validate_peer(peer, &peers_path.index(j), errors);
            }
        }
    }
    let types = list_at(spec, "policyTypes");
    let types_path = path.child("policyTypes");
    if types.len() > 2 {
        let given = Value::from(types.to_vec());
        errors.invalid(&types_path, &given, "may not specify more than two policyTypes");
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        checks::supported_text(kind, &["Egress", "Ingress"], &types_path.index(i), errors);
    }
}

fn validate_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::optional_one_of(port, "protocol", &net::PROTOCOLS, path, errors);
    let end = int_at(port, "endPort");
    let end_path = path.child("endPort");
    match field(port, "port") {
        None if end.is_some() => {
            errors.invalid(&end_path, &end.into(), "may not be specified when `port` is not specified");
        }
        None => {}
        Some(first) => {
            net::port_number_or_name(errors, &path.child("port"), Some(first));
            let Some(end) = end else { return };
            match first.as_i64() {
                None => {
                    let detail = "may not be specified when `port` is non-numeric";
                    errors.invalid(&end_path, &end.into(), detail);
                }
                Some(first) if end < first => {
                    errors.invalid(&end_path, &end.into(), "must be greater than or equal to `port`");
                }
                Some(_) => net::port_number(errors, &end_path, end),
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut selects = false;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = field(peer, name) {
            selects = true;
            validate_label_selector(selector, &path.child(name), errors);
        }
    }
    match field(peer, "ipBlock") {
        Some(_) if selects => {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
        Some(block) => validate_block(block, &path.child("ipBlock"), errors),
        None if !selects => errors.required(path, "must specify a peer"),
        None => {}
    }
}

fn validate_block(block: &Value, path: &Path<'_>, errors: &mut Errors) {
    let cidr = str_at(block, "cidr");
    if cidr.is_empty() {
        errors.required(&path.child("cidr"), "");
        return;
    }
    net::cidr(errors, &path.child("cidr"), cidr);
    let Some(outer) = net::parse_cidr(cidr) else { return };
    let except = path.child("except");
    for (i, inner) in list_at(block, "except").iter().enumerate() {
        let path = except.index(i);
        let text = inner.as_str().unwrap_or_default();
        net::cidr(errors, &path, text);
        if let Some(inner) = net::parse_cidr(text)
            && !is_strict_part(inner, outer)
        {
            errors.invalid_str(&path, text, &format!("must be a strict subset of `cidr` {cidr:?}"));
        }
    }
}

fn is_strict_part(inner: (IpAddr, u8), outer: (IpAddr, u8)) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => u128::from(ip),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(outer.1)).unwrap_or(0);
    let same_family = inner.0.is_ipv4() == outer.0.is_ipv4();
    same_family && inner.1 > outer.1 && number(inner.0) & mask == number(outer.0) & mask
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn types_follow_the_rules_given() {
        let types = |spec: Value| {
            let mut policy = json!({"spec": spec});
            default(&mut policy);
            policy["spec"]["policyTypes"].clone()
        };
        assert_eq!(types(json!({"podSelector": {}})), json!(["Ingress"]));
        assert_eq!(types(json!({"podSelector": {}, "egress": [{}]})), json!(["Ingress", "Egress"]));
        assert_eq!(types(json!({"policyTypes": ["Egress"]})), json!(["Egress"]));
    }

    #[test]
    fn peers_and_ports_make_sense() {
        let policy = json!({"spec": {"podSelector": {}, "ingress": [{
            "ports": [{"port": 80, "endPort": 79}, {"endPort": 1}],
            "from": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16", "10.1.0.0/16"]}},
                     {"ipBlock": {"cidr": "::/0"}, "podSelector": {}}],
        }]}});
        assert_eq!(
            causes(|e| validate(&policy, e)),
            [
                "spec.ingress[0].ports[0].endPort FieldValueInvalid",
                "spec.ingress[0].ports[1].endPort FieldValueInvalid",
                "spec.ingress[0].from[0] FieldValueRequired",
                "spec.ingress[0].from[1].ipBlock.except[0] FieldValueInvalid",
                "spec.ingress[0].from[2] FieldValueForbidden",
            ]
        );
    }
}
