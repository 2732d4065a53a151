//! The names of a cluster: what is known of `cluster.local`. Pure.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::message::Record;

/// What all names of the cluster end with.
pub const DOMAIN: &str = "cluster.local";

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is none of the cluster's.
    Foreign,
    /// The cluster has no such name.
    Missing,
    /// Its addresses and ports.
    Records(Vec<Record>),
}

/// What the zone is made of.
pub trait Cluster {
    /// A Service by namespace and name.
    fn service(&self, namespace: &str, name: &str) -> Option<Service>;
    /// Where its programs are.
    fn slices(&self, namespace: &str, name: &str) -> Vec<EndpointSlice>;
}

/// Looks a name up.
pub fn find(name: &str, cluster: &dyn Cluster) -> Found {
    let Some(rest) = name.strip_suffix(DOMAIN).and_then(|rest| rest.strip_suffix('.')) else {
        return if name == DOMAIN { Found::Missing } else { Found::Foreign };
    };
    let labels: Vec<&str> = rest.split('.').collect();
    let records = match labels.as_slice() {
        [dashed, _, "pod"] => dashed.replace('-', ".").parse().ok().map(|ip| vec![Record::Address(ip)]),
        [name, namespace, "svc"] => {
            cluster.service(namespace, name).map(|service| addresses(&service, namespace, name, cluster))
        }
        [port, protocol, name, namespace, "svc"] if port.starts_with('_') && protocol.starts_with('_') => {
            let service = cluster.service(namespace, name);
            let port = (port.trim_start_matches('_'), protocol.trim_start_matches('_'));
            service.and_then(|service| ports(&service, port, namespace, name, cluster))
        }
        [host, name, namespace, "svc"] => {
            let service = cluster.service(namespace, name).filter(is_headless);
            service.and_then(|_| one_host(host, namespace, name, cluster))
        }
        _ => None,
    };
    records.map_or(Found::Missing, Found::Records)
}

fn cluster_ip(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.cluster_ip.as_deref()
}

fn is_headless(service: &Service) -> bool {
    cluster_ip(service) == Some("None")
}

/// Host names and addresses of the programs of a Service. A headless one tells those that are not ready if it says so.
fn hosts(namespace: &str, name: &str, cluster: &dyn Cluster) -> Vec<(String, Ipv4Addr)> {
    let everything = cluster.service(namespace, name).and_then(|service| service.spec);
    let everything = everything.and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let mut found = Vec::new();
    for endpoint in
        cluster.slices(namespace, name).into_iter().flat_map(|slice| slice.endpoints.into_iter().flatten())
    {
        let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
        let Some(ip) = endpoint.addresses.first().and_then(|ip| ip.parse::<Ipv4Addr>().ok()) else {
            continue;
        };
        if ready || everything {
            let own = endpoint.hostname.filter(|host| !host.is_empty());
            found.push((own.unwrap_or_else(|| ip.to_string().replace('.', "-")), ip));
        }
    }
    found
}

fn addresses(service: &Service, namespace: &str, name: &str, cluster: &dyn Cluster) -> Vec<Record> {
    if is_headless(service) {
        return hosts(namespace, name, cluster).into_iter().map(|(_, ip)| Record::Address(ip)).collect();
    }
    let ip = cluster_ip(service).and_then(|ip| ip.parse().ok());
    ip.map(Record::Address).into_iter().collect()
}

fn one_host(host: &str, namespace: &str, name: &str, cluster: &dyn Cluster) -> Option<Vec<Record>> {
    let all = hosts(namespace, name, cluster).into_iter();
    let mine: Vec<Record> =
        all.filter(|(known, _)| known == host).map(|(_, ip)| Record::Address(ip)).collect();
    (!mine.is_empty()).then_some(mine)
}

fn ports(
    service: &Service,
    (port, protocol): (&str, &str),
    namespace: &str,
    name: &str,
    cluster: &dyn Cluster,
) -> Option<Vec<Record>> {
    let is_meant =
        |known: &str, of: Option<&str>| known == port && of.unwrap_or("TCP").eq_ignore_ascii_case(protocol);
    let own = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
    let own = own.iter().find(|p| is_meant(p.name.as_deref().unwrap_or_default(), p.protocol.as_deref()))?;
    if !is_headless(service) {
        let number = u16::try_from(own.port).ok()?;
        return Some(vec![Record::Service(number, format!("{name}.{namespace}.svc.{DOMAIN}"))]);
    }
    let slices = cluster.slices(namespace, name);
    let numbers = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
    let number = numbers.filter(|p| is_meant(p.name.as_deref().unwrap_or_default(), p.protocol.as_deref()));
    let number = number.filter_map(|p| u16::try_from(p.port?).ok()).next()?;
    let all = hosts(namespace, name, cluster).into_iter();
    Some(
        all.map(|(host, _)| Record::Service(number, format!("{host}.{name}.{namespace}.svc.{DOMAIN}")))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Few;

    impl Cluster for Few {
        fn service(&self, namespace: &str, name: &str) -> Option<Service> {
            let ip = match (namespace, name) {
                ("default", "web") => "10.96.0.7",
                ("default", "db") => "None",
                _ => return None,
            };
            let ports = json!([{"name": "http", "port": 80}]);
            serde_json::from_value(json!({"spec": {"clusterIP": ip, "ports": ports}})).ok()
        }

        fn slices(&self, _: &str, name: &str) -> Vec<EndpointSlice> {
            let endpoints = json!([
                {"addresses": ["10.128.0.1"], "hostname": "db-0"},
                {"addresses": ["10.128.0.2"], "hostname": "db-1", "conditions": {"ready": false}},
                {"addresses": ["10.128.0.3"]},
            ]);
            let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
            let slice =
                json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
            if name == "db" { vec![serde_json::from_value(slice).unwrap()] } else { Vec::new() }
        }
    }

    fn found(name: &str) -> Found {
        find(name, &Few)
    }

    fn addresses(ips: &[&str]) -> Found {
        Found::Records(ips.iter().map(|ip| Record::Address(ip.parse().unwrap())).collect())
    }

    #[test]
    fn services_and_their_hosts_have_names() {
        assert_eq!(found("web.default.svc.cluster.local"), addresses(&["10.96.0.7"]));
        assert_eq!(found("db.default.svc.cluster.local"), addresses(&["10.128.0.1", "10.128.0.3"]));
        assert_eq!(found("db-0.db.default.svc.cluster.local"), addresses(&["10.128.0.1"]));
        assert_eq!(found("10-128-0-3.db.default.svc.cluster.local"), addresses(&["10.128.0.3"]));
        assert_eq!(found("10-128-0-9.default.pod.cluster.local"), addresses(&["10.128.0.9"]));
        for missing in ["db-1.db.default", "x.web.default", "web.other", "a.b.c.d.e"] {
            assert_eq!(found(&format!("{missing}.svc.cluster.local")), Found::Missing, "{missing}");
        }
        assert_eq!(found("cluster.local"), Found::Missing);
        assert_eq!(found("example.com"), Found::Foreign);
        assert_eq!(found("xcluster.local"), Found::Foreign);
    }

    #[test]
    fn ports_have_names() {
        let service = |port, host: &str| Record::Service(port, format!("{host}.default.svc.cluster.local"));
        assert_eq!(
            found("_http._tcp.web.default.svc.cluster.local"),
            Found::Records(vec![service(80, "web")])
        );
        assert_eq!(
            found("_http._tcp.db.default.svc.cluster.local"),
            Found::Records(vec![service(8080, "db-0.db"), service(8080, "10-128-0-3.db")])
        );
        assert_eq!(found("_http._udp.web.default.svc.cluster.local"), Found::Missing);
    }
}
