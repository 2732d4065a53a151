//! The Services of the cluster: their names, and where their addresses lead.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use shoal_objects::Entropy;
use shoal_runtime::{Informer, Informers, ObjectKey, Subscription};
use tokio::sync::Mutex;

use crate::dns::{self, DOMAIN};

/// Changes that come together are told together.
const SETTLE: Duration = Duration::from_millis(20);
/// More Services than this are not told by name.
const MOST: usize = 2000;

/// Follows Services and their endpoints.
pub struct Directory {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    changes: Mutex<(Subscription, Subscription)>,
    api_server: Option<SocketAddr>,
    /// Where the cluster's name server listens.
    dns: OnceLock<SocketAddr>,
    entropy: Entropy,
}

impl Directory {
    /// A directory; `api_server` is where the Service `kubernetes` leads.
    pub fn new(informers: &Informers, api_server: Option<SocketAddr>, entropy: Entropy) -> Directory {
        let (services, slices) = (informers.of::<Service>(), informers.of::<EndpointSlice>());
        slices.add_index("service", |slice| {
            let name = slice.label("kubernetes.io/service-name").unwrap_or_default();
            vec![format!("{}/{name}", slice.key().namespace)]
        });
        let changes = Mutex::new((services.subscribe(), slices.subscribe()));
        Directory { services, slices, changes, api_server, dns: OnceLock::new(), entropy }
    }

    /// Waits until everything is known.
    pub async fn synced(&self) {
        self.services.synced().await;
        self.slices.synced().await;
    }

    /// All Services.
    pub fn services(&self) -> Vec<Service> {
        self.services.lister().list().iter().map(|service| (**service).clone()).collect()
    }

    /// Waits until names may have changed.
    pub async fn changed(&self) {
        let mut changes = self.changes.lock().await;
        let (services, slices) = &mut *changes;
        let told = tokio::select! { change = services.recv() => change, change = slices.recv() => change };
        if told.is_none() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(SETTLE).await;
        while services.try_recv().is_some() || slices.try_recv().is_some() {}
    }

    /// Where the cluster's name server listens; the first word counts.
    pub fn set_dns(&self, address: SocketAddr) {
        let _ = self.dns.set(address);
    }

    /// By which address pods know the name server, if there is one.
    pub fn dns(&self) -> Option<String> {
        self.dns.get().map(|_| dns::SERVER.to_string())
    }

    /// An endpoint behind a cluster IP and port.
    pub fn resolve(&self, address: SocketAddr) -> Option<SocketAddr> {
        let ip = address.ip().to_string();
        let services = self.services.lister().list();
        let service = services.iter().find(|service| cluster_ip(service) == Some(ip.as_str()));
        if service.is_none() && address == SocketAddr::new(dns::SERVER.into(), dns::PORT) {
            return self.dns.get().copied();
        }
        let service = service?;
        let (namespace, name) = names(service);
        if (namespace, name) == ("default", "kubernetes") {
            return self.api_server;
        }
        let ports = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
        let port = ports.iter().find(|port| port.port == i32::from(address.port()))?;
        let port_name = port.name.as_deref().unwrap_or_default();
        let mut found: Vec<SocketAddr> = Vec::new();
        for slice in self.slices_of(namespace, name) {
            let ports = slice.ports.as_deref().unwrap_or_default();
            let number = ports.iter().find(|port| port.name.as_deref().unwrap_or_default() == port_name);
            let Some(number) = number.and_then(|port| u16::try_from(port.port?).ok()) else { continue };
            found.extend(ready_addresses(&slice).map(|ip| SocketAddr::new(ip, number)));
        }
        let chosen = self.entropy.below(u64::try_from(found.len()).unwrap_or(0).max(1));
        found.get(usize::try_from(chosen).unwrap_or(0)).copied()
    }

    fn slices_of(&self, namespace: &str, name: &str) -> Vec<std::sync::Arc<EndpointSlice>> {
        self.slices.lister().by_index("service", &format!("{namespace}/{name}"))
    }

    /// Lines for the `/etc/hosts` of pods of a namespace.
    pub fn names_for(&self, namespace: &str) -> String {
        let mut out = String::new();
        let mut line = |ip: &str, of: &str, name: &str| {
            let short = if of == namespace { format!("\t{name}") } else { String::new() };
            let _ = writeln!(out, "{ip}\t{name}.{of}.svc.{DOMAIN}\t{name}.{of}.svc\t{name}.{of}{short}");
        };
        for service in self.services.lister().list().iter().take(MOST) {
            let (of, name) = names(service);
            match cluster_ip(service) {
                Some("None") => {
                    for slice in self.slices_of(of, name) {
                        for endpoint in slice.endpoints.iter().flatten() {
                            let Some(ip) = endpoint.addresses.first() else { continue };
                            line(ip, of, name);
                            // Pods of StatefulSets are known by their own names.
                            if let Some(host) = endpoint.hostname.as_deref().filter(|host| !host.is_empty()) {
                                line(ip, of, &format!("{host}.{name}"));
                            }
                        }
                    }
                }
                Some(ip) => line(ip, of, name),
                None => {}
            }
        }
        out
    }
}

impl dns::Cluster for Directory {
    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        self.services.lister().get(&ObjectKey::new(namespace, name)).map(|service| (*service).clone())
    }

    fn slices(&self, namespace: &str, name: &str) -> Vec<EndpointSlice> {
        self.slices_of(namespace, name).iter().map(|slice| (**slice).clone()).collect()
    }
}

fn names(service: &Service) -> (&str, &str) {
    let meta = &service.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn cluster_ip(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.cluster_ip.as_deref().filter(|ip| !ip.is_empty())
}

fn ready_addresses(slice: &EndpointSlice) -> impl Iterator<Item = IpAddr> {
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready.flat_map(|endpoint| endpoint.addresses.iter()).filter_map(|ip| ip.parse().ok())
}
