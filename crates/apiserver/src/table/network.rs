//! Services, ingresses, policies and the addresses of services.

use std::collections::BTreeSet;

use serde_json::Value;
use shoal_objects::Timestamp;

use super::Column;
use super::cells::{AGE, NAME, NONE, joined, labels, or, selector, text};
use crate::kinds::access::{at, field, int_at, list_at, str_at};

/// Columns of services.
pub static SERVICE: &[Column] = &[
    NAME,
    Column::text("Type", "How the service is exposed.", |o, _| text(o, &["spec", "type"])),
    Column::text("Cluster-IP", "The address within the cluster.", |o, _| {
        let first = field(o, "spec").and_then(|spec| list_at(spec, "clusterIPs").first());
        first.and_then(Value::as_str).unwrap_or(NONE).into()
    }),
    Column::text("External-IP", "Addresses from outside the cluster.", external_addresses),
    Column::text("Port(s)", "Ports, with the port on the node where there is one.", ports),
    AGE,
    Column::text("Selector", "Labels of the pods behind the service.", |o, _| {
        labels(at(o, &["spec", "selector"]))
    })
    .wide(),
];

/// Columns of ingresses.
pub static INGRESS: &[Column] = &[
    NAME,
    Column::text("Class", "The class whose controller serves the ingress.", |o, _| {
        at(o, &["spec", "ingressClassName"]).and_then(Value::as_str).unwrap_or(NONE).into()
    }),
    Column::text("Hosts", "Hosts with rules.", |o, _| hosts(o).into()),
    Column::text("Address", "Where the ingress can be reached.", |o, _| load_balancer(o).into()),
    Column::text("Ports", "Ports that are open.", |o, _| {
        let tls = field(o, "spec").is_some_and(|spec| !list_at(spec, "tls").is_empty());
        (if tls { "80, 443" } else { "80" }).into()
    }),
    AGE,
];

/// Columns of ingress classes.
pub static INGRESS_CLASS: &[Column] = &[
    NAME,
    Column::text("Controller", "Who serves ingresses of the class.", |o, _| text(o, &["spec", "controller"])),
    Column::text("Parameters", "Where more is said about the class.", |o, _| {
        let Some(parameters) = at(o, &["spec", "parameters"]) else { return NONE.into() };
        let (kind, name) = (str_at(parameters, "kind"), str_at(parameters, "name"));
        match field(parameters, "apiGroup").and_then(Value::as_str) {
            Some(group) => format!("{kind}.{group}/{name}").into(),
            None => format!("{kind}/{name}").into(),
        }
    }),
    AGE,
];

/// Columns of network policies.
pub static NETWORK_POLICY: &[Column] = &[
    NAME,
    Column::text("Pod-Selector", "The pods the policy is about.", |o, _| {
        selector(at(o, &["spec", "podSelector"])).into()
    }),
    AGE,
];

/// Columns of service addresses.
pub static IP_ADDRESS: &[Column] = &[
    NAME,
    Column::text("ParentRef", "Whose address it is.", |o, _| {
        let Some(parent) = at(o, &["spec", "parentRef"]) else { return NONE.into() };
        let (group, resource) = (str_at(parent, "group"), str_at(parent, "resource"));
        let mut shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        shown.make_ascii_lowercase();
        let parts = [shown.as_str(), str_at(parent, "namespace"), str_at(parent, "name")];
        parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("/").into()
    }),
];

/// Columns of ranges of service addresses.
pub static SERVICE_CIDR: &[Column] =
    &[NAME, Column::text("CIDRs", "The ranges.", |o, _| joined(field(o, "spec"), "cidrs").into()), AGE];

fn external_addresses(service: &Value, _: Timestamp) -> Value {
    let spec = field(service, "spec").unwrap_or(&Value::Null);
    let external = joined(Some(spec), "externalIPs");
    match str_at(spec, "type") {
        "ClusterIP" | "NodePort" => or(external, NONE),
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if external.is_empty() => or(balancer, "<pending>"),
            (balancer, external) if balancer.is_empty() => external.into(),
            (balancer, external) => format!("{balancer},{external}").into(),
        },
        "ExternalName" => text(spec, &["externalName"]),
        _ => "<unknown>".into(),
    }
}

/// Addresses a load balancer gave, each once and sorted.
fn load_balancer(object: &Value) -> String {
    let points =
        at(object, &["status", "loadBalancer"]).map_or(&[][..], |balancer| list_at(balancer, "ingress"));
    let addresses: BTreeSet<&str> = points
        .iter()
        .map(|point| {
            Some(str_at(point, "ip")).filter(|ip| !ip.is_empty()).unwrap_or(str_at(point, "hostname"))
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn ports(service: &Value, _: Timestamp) -> Value {
    let ports = field(service, "spec").map_or(&[][..], |spec| list_at(spec, "ports"));
    let shown: Vec<String> = ports
        .iter()
        .map(|port| {
            let (number, protocol) = (int_at(port, "port").unwrap_or_default(), str_at(port, "protocol"));
            match int_at(port, "nodePort") {
                Some(node_port @ 1..) => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    or(shown.join(","), NONE)
}

/// Up to three hosts. What follows counts rules, with or without a host.
fn hosts(ingress: &Value) -> String {
    const MOST: usize = 3;
    let rules = field(ingress, "spec").map_or(&[][..], |spec| list_at(spec, "rules"));
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more = shown.len() == MOST;
        if more {
            break;
        }
        shown.extend(Some(str_at(rule, "host")).filter(|host| !host.is_empty()));
    }
    match shown.join(",") {
        none if none.is_empty() => "*".to_owned(),
        some if more => format!("{some} + {} more...", rules.len() - MOST),
        some => some,
    }
}
