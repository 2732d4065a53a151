//! The Endpoints object of a Service, for readers that do not know EndpointSlices.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::slices::{hostname, ports_of, reference};
use crate::brief::Brief;

/// More addresses than this are cut off.
const MAX_ADDRESSES: usize = 1000;
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Whether the controller has made them, and not a person.
pub fn is_managed(endpoints: &Endpoints) -> bool {
    endpoints
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(MANAGED_BY))
        .is_some_and(|by| by == MANAGER)
}

/// Tells readers whether addresses were cut off.
pub fn mark_capacity(endpoints: &mut Endpoints, wanted: &Endpoints) {
    match wanted.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OVER_CAPACITY)) {
        Some(mark) => {
            let annotations = endpoints.metadata.annotations.get_or_insert_default();
            annotations.insert(OVER_CAPACITY.to_owned(), mark.clone());
        }
        None => {
            if let Some(annotations) = &mut endpoints.metadata.annotations {
                annotations.remove(OVER_CAPACITY);
            }
        }
    }
}

/// The Endpoints that the Service should have.
pub fn endpoints(service: &Service, selected: &[impl AsRef<Brief>]) -> Endpoints {
    let anyway = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default();
    let mut subsets: BTreeMap<String, EndpointSubset> = BTreeMap::new();
    let mut count = 0;
    let mut pods: Vec<&Brief> = selected.iter().map(AsRef::as_ref).collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    for pod in pods {
        let Some(ip) = pod.addresses.first().map(ToString::to_string) else { continue };
        if pod.is_finished() || (pod.deleting && !anyway) {
            continue;
        }
        count += 1;
        if count > MAX_ADDRESSES {
            break;
        }
        let ports: Vec<EndpointPort> = ports_of(service, pod)
            .into_iter()
            .map(|port| EndpointPort {
                name: port.name.filter(|name| !name.is_empty()),
                port: port.port.unwrap_or_default(),
                protocol: port.protocol,
                app_protocol: port.app_protocol,
            })
            .collect();
        let address = EndpointAddress {
            ip,
            hostname: hostname(service, pod),
            node_name: (!pod.node.is_empty()).then(|| pod.node.to_string()),
            target_ref: Some(reference(pod)),
        };
        let key = serde_json::to_string(&ports).unwrap_or_default();
        let subset = subsets.entry(key).or_insert_with(|| EndpointSubset {
            ports: (!ports.is_empty()).then_some(ports),
            ..EndpointSubset::default()
        });
        let list = if anyway || pod.ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None") {
        labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    }
    let truncated =
        (count > MAX_ADDRESSES).then(|| BTreeMap::from([(OVER_CAPACITY.to_owned(), "truncated".to_owned())]));
    Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: truncated,
            ..ObjectMeta::default()
        },
        subsets: (!subsets.is_empty()).then(|| subsets.into_values().collect()),
    }
}
