//! The Service, and where the application is reached.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{metadata, name_of, selector_labels, some_list, some_map};
use crate::Application;
use crate::api::ServiceType;

/// The Service; `None` where nothing listens.
pub fn service(app: &Application) -> Option<Service> {
    let ports = app.spec.all_ports();
    if ports.is_empty() {
        return None;
    }
    let network = app.spec.network.clone().unwrap_or_default();
    let mut metadata = metadata(app, name_of(app));
    metadata.annotations = some_map(&network.service_annotations);
    let ports = ports.into_iter().map(|port| ServicePort {
        name: Some(port.name.clone()),
        port: port.service_port.unwrap_or(port.port),
        target_port: Some(IntOrString::String(port.name)),
        protocol: Some(port.protocol),
        ..ServicePort::default()
    });
    let ranges = network.load_balancer.map(|balancer| balancer.source_ranges).unwrap_or_default();
    Some(Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(network.service_type.as_str().to_owned()),
            selector: Some(selector_labels(name_of(app))),
            ports: Some(ports.collect()),
            load_balancer_source_ranges: some_list(&ranges),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Where the application is reached: from outside if it is.
pub fn url(app: &Application, live: Option<&Service>) -> Option<String> {
    let network = app.spec.network.as_ref();
    if let Some(ingress) = network.and_then(|network| network.ingress.as_ref()) {
        let scheme = if ingress.tls_secret_name.is_some() { "https" } else { "http" };
        return Some(format!("{scheme}://{}{}", ingress.host, ingress.path));
    }
    let first = app.spec.all_ports().into_iter().next()?;
    let port = first.service_port.unwrap_or(first.port);
    let outside = network.is_some_and(|network| network.service_type == ServiceType::LoadBalancer);
    let address = live.filter(|_| outside).and_then(|service| {
        let entry = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
        entry.hostname.clone().or_else(|| entry.ip.clone())
    });
    let namespace = app.metadata.namespace.as_deref().unwrap_or("default");
    let host = address.unwrap_or_else(|| format!("{}.{namespace}.svc", name_of(app)));
    Some(if port == 80 { format!("http://{host}") } else { format!("http://{host}:{port}") })
}
