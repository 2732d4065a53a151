//! Where the programs behind a Service listen.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use shoal_objects::meta;
use shoal_store::Range;

use crate::handlers::served;
use crate::kinds::access::{int_at, list_at, part, str_at};
use crate::server::Inner;

/// Where the server itself reaches an address by which the cluster knows a program; most are what they are.
pub type Reach = Arc<dyn Fn(IpAddr) -> IpAddr + Send + Sync>;

/// Which port of a Service is meant.
#[derive(Clone, Copy, Debug)]
pub enum Port<'a> {
    /// By its number.
    Number(u16),
    /// By its name, which a single port need not have.
    Name(&'a str),
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// One of these.
    Addresses(Vec<SocketAddr>),
    /// A host elsewhere.
    Host(String, u16),
}

/// Why a Service leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// There is no such Service.
    NoService,
    /// The Service does not have the port.
    NoPort,
    /// Nothing says where the programs of the Service are.
    NoEndpoints,
    /// None of them is ready behind the port of this name.
    NotReady(String),
    /// The store holds something that cannot be read.
    Unreadable(String),
}

impl Unresolved {
    /// In the words for people who call the Service.
    pub fn told(&self, namespace: &str, name: &str, port: u16) -> String {
        match self {
            Unresolved::NoService => format!("service {name:?} not found in namespace {namespace:?}"),
            Unresolved::NoPort => format!("service {name:?} has no port {port}"),
            Unresolved::NoEndpoints | Unresolved::NotReady(_) => {
                format!("no endpoints available for service {name:?}")
            }
            Unresolved::Unreadable(why) => why.clone(),
        }
    }
}

/// Finds the addresses behind a port of a Service. Nothing routes the cluster's own addresses here, so they are those
/// of its endpoints.
pub async fn resolve(server: &Inner, namespace: &str, name: &str, port: u16) -> Result<Backend, Unresolved> {
    resolve_port(server, namespace, name, Port::Number(port)).await
}

/// The same for a port that may have a name.
pub async fn resolve_port(
    server: &Inner,
    namespace: &str,
    name: &str,
    port: Port<'_>,
) -> Result<Backend, Unresolved> {
    let registry = server.registry();
    let store = &server.store;
    let unreadable = |failure: crate::status::Failure| Unresolved::Unreadable(failure.message);
    let services = registry.find("", "v1", "services").ok_or(Unresolved::NoService)?;
    let found = store.get(&services.table, &format!("{namespace}/{name}")).await;
    let service = served(services, &*found.ok_or(Unresolved::NoService)?).map_err(unreadable)?;
    let spec = part(&service, "spec");
    if let (Port::Number(port), "ExternalName") = (port, str_at(spec, "type")) {
        return Ok(Backend::Host(str_at(spec, "externalName").to_owned(), port));
    }
    let port_name = match port {
        Port::Name(name) => name,
        Port::Number(number) => {
            let mut ports = list_at(spec, "ports").iter();
            let wanted = ports.find(|p| int_at(p, "port") == Some(i64::from(number)));
            str_at(wanted.ok_or(Unresolved::NoPort)?, "name")
        }
    };

    let mut addresses = Vec::new();
    let mut known = false;
    let range = Range::Namespace(namespace);
    if let Some(slices) = registry.find("discovery.k8s.io", "v1", "endpointslices") {
        for object in store.list(&slices.table, range, None, 0).await.objects {
            let slice = served(slices, &object).map_err(unreadable)?;
            if meta::label(&slice, "kubernetes.io/service-name") == Some(name) {
                known = true;
                addresses.extend(slice_addresses(&slice, port_name));
            }
        }
    }
    if addresses.is_empty()
        && let Some(endpoints) = registry.find("", "v1", "endpoints")
        && let Some(object) = store.get(&endpoints.table, &format!("{namespace}/{name}")).await
    {
        let endpoints = served(endpoints, &object).map_err(unreadable)?;
        known = true;
        addresses.extend(endpoints_addresses(&endpoints, port_name));
    }
    addresses.sort_unstable();
    addresses.dedup();
    match (addresses.is_empty(), known) {
        (false, _) => {
            let reached = |a: SocketAddr| SocketAddr::new((server.reach)(a.ip()), a.port());
            Ok(Backend::Addresses(addresses.into_iter().map(reached).collect()))
        }
        (true, true) => Err(Unresolved::NotReady(port_name.to_owned())),
        (true, false) => Err(Unresolved::NoEndpoints),
    }
}

fn port_number(ports: &[Value], name: &str) -> Option<u16> {
    let port = ports.iter().find(|port| str_at(port, "name") == name)?;
    int_at(port, "port").and_then(|port| u16::try_from(port).ok())
}

fn slice_addresses(slice: &Value, port_name: &str) -> Vec<SocketAddr> {
    let Some(port) = port_number(list_at(slice, "ports"), port_name) else { return Vec::new() };
    let ready = list_at(slice, "endpoints")
        .iter()
        .filter(|endpoint| part(endpoint, "conditions").get("ready") != Some(&Value::Bool(false)));
    let texts = ready.flat_map(|endpoint| list_at(endpoint, "addresses")).filter_map(Value::as_str);
    texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| SocketAddr::new(ip, port)).collect()
}

fn endpoints_addresses(endpoints: &Value, port_name: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for subset in list_at(endpoints, "subsets") {
        let Some(port) = port_number(list_at(subset, "ports"), port_name) else { continue };
        let texts = list_at(subset, "addresses").iter().map(|address| str_at(address, "ip"));
        found.extend(texts.filter_map(|t| t.parse::<IpAddr>().ok()).map(|ip| SocketAddr::new(ip, port)));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_that_are_ready_are_found() {
        let slice = json!({
            "ports": [{"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["not an address"]},
            ],
        });
        let address: SocketAddr = "10.0.0.1:8443".parse().unwrap();
        assert_eq!(slice_addresses(&slice, "https"), [address]);
        assert!(slice_addresses(&slice, "other").is_empty());
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 8443}]}]});
        assert_eq!(endpoints_addresses(&endpoints, ""), [address]);
    }
}
