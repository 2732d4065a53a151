//! EndpointSlices of Endpoints that were made by hand.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use shoal_objects::entropy::Entropy;

use super::legacy;
use super::slices::{self, Groups, MANAGED_BY, Plan, SERVICE_NAME};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints that carry this are a lock and lead nowhere.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations about the Endpoints themselves.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a slice was made here.
pub fn is_mirror(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == MANAGER)
}

/// The slices that the Endpoints should have: none unless their Service leaves the endpoints to people.
pub fn plan(
    endpoints: &Endpoints,
    service: Option<&Service>,
    existing: &[impl AsRef<EndpointSlice>],
    entropy: &Entropy,
) -> Plan {
    let mut wanted = Groups::default();
    if service.is_some_and(|service| is_mirrored(endpoints, service)) {
        for subset in endpoints.subsets.iter().flatten() {
            add(&mut wanted, subset);
        }
    }
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), endpoints.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let metadata = || {
        let mut annotations: BTreeMap<String, String> =
            endpoints.metadata.annotations.clone().unwrap_or_default();
        annotations.remove(LAST_APPLIED);
        let mut metadata = slices::new_metadata(endpoints, labels.clone(), entropy);
        metadata.annotations = (!annotations.is_empty()).then_some(annotations);
        metadata
    };
    slices::assign(wanted, existing, &labels, metadata)
}

fn is_mirrored(endpoints: &Endpoints, service: &Service) -> bool {
    let by_hand = |service: &Service| {
        service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_none_or(BTreeMap::is_empty)
    };
    let skipped = endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(SKIP));
    let lock =
        endpoints.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER));
    by_hand(service)
        && !legacy::is_managed(endpoints)
        && skipped.is_none_or(|skip| skip != "true")
        && !lock
        && endpoints.metadata.deletion_timestamp.is_none()
}

fn add(wanted: &mut Groups, subset: &EndpointSubset) {
    let ports: Vec<EndpointPort> = subset
        .ports
        .iter()
        .flatten()
        .map(|port| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port.port),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    let ready = subset.addresses.iter().flatten().map(|address| (address, true));
    let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
    for (address, ready) in ready.chain(not_ready) {
        let family = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
        wanted.add(family, &ports, [endpoint(address, ready)]);
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_endpoints_of_services_without_selector_are_mirrored() {
        let endpoints: Endpoints = serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "a", "uid": "1"},
            "subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 5432}]}]
        }))
        .unwrap();
        let by_hand: Service = serde_json::from_value(json!({"spec": {}})).unwrap();
        let selecting: Service = serde_json::from_value(json!({"spec": {"selector": {"app": "x"}}})).unwrap();
        let none: [Arc<EndpointSlice>; 0] = [];
        let entropy = Entropy::seeded(1);
        let made = plan(&endpoints, Some(&by_hand), &none, &entropy).create;
        let families: Vec<_> = made.iter().map(|slice| slice.address_type.as_str()).collect();
        assert_eq!(families, ["IPv4", "IPv6"]);
        assert!(made.iter().all(is_mirror));
        assert!(plan(&endpoints, Some(&selecting), &none, &entropy).create.is_empty());
        let made: Vec<_> = made.into_iter().map(Arc::new).collect();
        assert_eq!(plan(&endpoints, None, &made, &entropy).delete.len(), 2, "with the Service they go");
        assert_eq!(plan(&endpoints, Some(&by_hand), &made, &entropy), Plan::default());
    }
}
