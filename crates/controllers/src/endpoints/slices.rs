//! The EndpointSlices of a Service, from its pods.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shoal_objects::entropy::Entropy;
use shoal_runtime::Object;

use crate::brief::Brief;
use crate::{claim, pods};

/// A slice holds no more endpoints than this.
const MAX_ENDPOINTS: usize = 100;
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// What to do to the slices of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Slices to create.
    pub create: Vec<EndpointSlice>,
    /// Slices to replace.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete, by name.
    pub delete: Vec<String>,
}

/// Whether a slice is one of ours, for this Service.
pub fn is_of(slice: &EndpointSlice, service: &Service) -> bool {
    let labels = slice.metadata.labels.as_ref();
    let label = |name: &str| labels.and_then(|labels| labels.get(name)).map(String::as_str);
    label(MANAGED_BY) == Some(MANAGER) && label(SERVICE_NAME) == service.metadata.name.as_deref()
}

/// Endpoints that go into slices together: of one address family and with the same ports.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<(String, Vec<PortKey>), Group>);

#[derive(Default)]
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl Groups {
    pub(super) fn add(
        &mut self,
        family: &str,
        ports: &[EndpointPort],
        endpoints: impl IntoIterator<Item = Endpoint>,
    ) {
        let key = (family.to_owned(), ports.iter().map(port_key).collect());
        let group = self.0.entry(key).or_default();
        group.ports = ports.to_vec();
        group.endpoints.extend(endpoints);
    }
}

/// The slices that the Service should have, with as few changes to those that exist as possible. `zone` tells where a
/// node is.
pub fn plan(
    service: &Service,
    selected: &[impl AsRef<Brief>],
    existing: &[impl AsRef<EndpointSlice>],
    zone: impl Fn(&str) -> Option<String>,
    entropy: &Entropy,
) -> Plan {
    let mut wanted = Groups::default();
    for pod in selected.iter().map(AsRef::as_ref) {
        let ports = ports_of(service, pod);
        for (family, endpoint) in endpoints_of(service, pod, &zone) {
            wanted.add(&family, &ports, [endpoint]);
        }
    }
    if wanted.0.is_empty() {
        // A Service without pods has one empty slice, so that readers can tell "none" from "not yet".
        for family in families(service) {
            wanted.add(&family, &[], []);
        }
    }
    let labels = labels(service);
    assign(wanted, existing, &labels, || new_metadata(service, labels.clone(), entropy))
}

/// Puts the wanted endpoints into slices: those that exist as far as they fit, and new ones of `metadata`.
pub(super) fn assign(
    wanted: Groups,
    existing: &[impl AsRef<EndpointSlice>],
    labels: &BTreeMap<String, String>,
    metadata: impl Fn() -> ObjectMeta,
) -> Plan {
    let mut plan = Plan::default();
    let mut free: Vec<&EndpointSlice> = existing.iter().map(AsRef::as_ref).collect();
    free.sort_by_key(|slice| slice.metadata.name.clone());
    for ((family, key), Group { ports, mut endpoints }) in wanted.0 {
        endpoints.sort_by_key(|endpoint| endpoint.target_ref.as_ref().and_then(|target| target.name.clone()));
        let fits = |slice: &&EndpointSlice| {
            slice.address_type == family
                && slice.ports.as_deref().unwrap_or_default().iter().map(port_key).collect::<Vec<_>>() == key
        };
        let (mut mine, rest): (Vec<&EndpointSlice>, Vec<&EndpointSlice>) =
            free.iter().copied().partition(|slice| fits(slice));
        free = rest;
        for part in distribute(endpoints, &mine) {
            let slice = |metadata| EndpointSlice {
                metadata,
                address_type: family.clone(),
                endpoints: Some(part.clone()),
                ports: Some(ports.clone()),
            };
            let present = if mine.is_empty() { None } else { Some(mine.remove(0)) };
            match present {
                Some(present) => {
                    let mut metadata = present.metadata.clone();
                    metadata.labels.get_or_insert_default().extend(labels.clone());
                    let same = metadata == present.metadata
                        // Some servers give nothing back for an empty list.
                        && present.endpoints.as_deref().unwrap_or_default() == part.as_slice();
                    if !same {
                        plan.update.push(slice(metadata));
                    }
                }
                None => plan.create.push(slice(metadata())),
            }
        }
        free.extend(mine);
    }
    plan.delete = free.iter().filter_map(|slice| slice.metadata.name.clone()).collect();
    plan
}

/// What makes an endpoint the same as one that is already told.
fn identity(endpoint: &Endpoint) -> (Option<&str>, &[String]) {
    let pod = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
    (pod, &endpoint.addresses)
}

/// Endpoints stay in the slice they are in; new ones fill the gaps.
fn distribute(endpoints: Vec<Endpoint>, slices: &[&EndpointSlice]) -> Vec<Vec<Endpoint>> {
    let mut parts: Vec<Vec<Endpoint>> = vec![Vec::new(); slices.len()];
    let mut homes: HashMap<(Option<&str>, &[String]), usize> = HashMap::new();
    for (home, slice) in slices.iter().enumerate() {
        let endpoints = slice.endpoints.iter().flatten();
        homes.extend(endpoints.map(|endpoint| (identity(endpoint), home)));
    }
    let mut rest = Vec::new();
    for endpoint in endpoints {
        match homes.get(&identity(&endpoint)) {
            Some(home) if parts[*home].len() < MAX_ENDPOINTS => parts[*home].push(endpoint),
            _ => rest.push(endpoint),
        }
    }
    let mut gap = 0;
    for endpoint in rest {
        while parts.get(gap).is_some_and(|part| part.len() >= MAX_ENDPOINTS) {
            gap += 1;
        }
        match parts.get_mut(gap) {
            Some(part) => part.push(endpoint),
            None => parts.push(vec![endpoint]),
        }
    }
    let used = parts.iter().any(|part| !part.is_empty());
    let mut first = true;
    parts.retain(|part| !part.is_empty() || (!used && std::mem::take(&mut first)));
    if parts.is_empty() { vec![Vec::new()] } else { parts }
}

fn endpoints_of(
    service: &Service,
    pod: &Brief,
    zone: impl Fn(&str) -> Option<String>,
) -> Vec<(String, Endpoint)> {
    if pod.is_finished() {
        return Vec::new();
    }
    let spec = service.spec.as_ref();
    let anyway = spec.and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default();
    let (serving, terminating) = (pod.ready, pod.deleting);
    let hostname = hostname(service, pod);
    let node = (!pod.node.is_empty()).then(|| pod.node.to_string());
    let zone = node.as_deref().and_then(zone);
    families(service)
        .into_iter()
        .filter_map(|family| {
            let address = pod.addresses.iter().find(|address| (family == "IPv6") == address.contains(':'))?;
            let endpoint = Endpoint {
                addresses: vec![address.to_string()],
                conditions: Some(EndpointConditions {
                    ready: Some(anyway || (serving && !terminating)),
                    serving: Some(serving),
                    terminating: Some(terminating),
                }),
                hostname: hostname.clone(),
                node_name: node.clone(),
                target_ref: Some(reference(pod)),
                zone: zone.clone(),
                ..Endpoint::default()
            };
            Some((family, endpoint))
        })
        .collect()
}

/// The name of a pod within a headless Service.
pub(super) fn hostname(service: &Service, pod: &Brief) -> Option<String> {
    let same = pod.subdomain.is_some() && pod.subdomain.as_deref() == service.metadata.name.as_deref();
    pod.hostname.as_deref().filter(|_| same).map(str::to_owned)
}

pub(super) fn reference(pod: &Brief) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.to_string()),
        name: Some(pod.name.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn families(service: &Service) -> Vec<String> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    if families.is_empty() { vec!["IPv4".to_owned()] } else { families }
}

/// The ports of a Service on one pod. A named port that the pod does not have is left out.
pub(super) fn ports_of(service: &Service, pod: &Brief) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    ports
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(target_port(port, pod)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

fn target_port(port: &ServicePort, pod: &Brief) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let mut declared = pod.ports.iter();
            declared
                .find(|declared| *declared.name == **name && *declared.protocol == *protocol)
                .map(|declared| declared.port)
        }
    }
}

pub(super) type PortKey = (Option<String>, Option<i32>, Option<String>, Option<String>);

fn port_key(port: &EndpointPort) -> PortKey {
    (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    if service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The metadata of a new slice of `owner`.
pub(super) fn new_metadata<K: Object>(
    owner: &K,
    labels: BTreeMap<String, String>,
    entropy: &Entropy,
) -> ObjectMeta {
    let prefix = format!("{}-", owner.meta().name.as_deref().unwrap_or_default());
    ObjectMeta {
        name: Some(pods::drawn_name(&prefix, entropy)),
        generate_name: Some(prefix),
        namespace: owner.meta().namespace.clone(),
        labels: Some(labels),
        owner_references: claim::reference(owner).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::brief::Port;

    fn service() -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "a", "uid": "1"},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
        }))
        .unwrap()
    }

    fn pod(index: usize, ready: bool) -> Arc<Brief> {
        let status = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": format!("p{index:03}"), "namespace": "a", "uid": format!("u{index}")},
                "spec": {"nodeName": "n", "containers": []},
                "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", index / 250, index % 250),
                    "conditions": [{"type": "Ready", "status": status}]}
            }))
            .unwrap(),
        )
    }

    fn act(
        service: &Service,
        pods: &[Arc<Brief>],
        existing: &mut Vec<Arc<EndpointSlice>>,
        entropy: &Entropy,
    ) -> usize {
        let plan = plan(service, pods, existing, |_| None, entropy);
        let writes = plan.create.len() + plan.update.len() + plan.delete.len();
        existing.retain(|slice| !plan.delete.contains(slice.metadata.name.as_ref().unwrap()));
        for slice in plan.update {
            let place =
                existing.iter_mut().find(|present| present.metadata.name == slice.metadata.name).unwrap();
            *place = Arc::new(slice);
        }
        existing.extend(plan.create.into_iter().map(Arc::new));
        writes
    }

    #[test]
    fn slices_follow_pods_with_few_writes() {
        let (service, entropy) = (service(), Entropy::seeded(1));
        let mut slices = Vec::new();
        let none: [Arc<Brief>; 0] = [];
        assert_eq!(act(&service, &none, &mut slices, &entropy), 1, "an empty slice says: none");
        let mut pods: Vec<_> = (0..250).map(|index| pod(index, true)).collect();
        act(&service, &pods, &mut slices, &entropy);
        let sizes: Vec<_> = slices.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 250);
        assert!(sizes.iter().all(|size| *size <= MAX_ENDPOINTS));
        assert_eq!(act(&service, &pods, &mut slices, &entropy), 0);
        pods[120] = pod(120, false);
        assert_eq!(act(&service, &pods, &mut slices, &entropy), 1, "one pod, one slice");
        pods.truncate(1);
        act(&service, &pods, &mut slices, &entropy);
        assert_eq!(slices.len(), 1);
    }

    #[test]
    fn named_ports_are_looked_up_in_the_pod() {
        let mut service = service();
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].target_port =
            Some(IntOrString::String("web".to_owned()));
        let mut named = (*pod(1, true)).clone();
        assert!(ports_of(&service, &named).is_empty());
        named.ports = [Port { name: "web".into(), protocol: "TCP".into(), port: 9000 }].into();
        assert_eq!(ports_of(&service, &named)[0].port, Some(9000));
    }
}
