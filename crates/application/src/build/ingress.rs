//! The Ingress.

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend,
    IngressSpec, IngressTLS, ServiceBackendPort,
};

use super::{metadata, name_of, some_map};
use crate::Application;

/// The Ingress, if one is asked for. It leads to the first port.
pub fn ingress(app: &Application) -> Option<Ingress> {
    let asked = app.spec.network.as_ref()?.ingress.as_ref()?;
    let port = app.spec.all_ports().into_iter().next()?.name;
    let mut metadata = metadata(app, name_of(app));
    metadata.annotations = some_map(&asked.annotations);
    let backend = IngressBackend {
        service: Some(IngressServiceBackend {
            name: name_of(app).to_owned(),
            port: Some(ServiceBackendPort { name: Some(port), number: None }),
        }),
        resource: None,
    };
    let path = HTTPIngressPath { path: Some(asked.path.clone()), path_type: "Prefix".to_owned(), backend };
    let tls = asked
        .tls_secret_name
        .clone()
        .map(|secret| vec![IngressTLS { hosts: Some(vec![asked.host.clone()]), secret_name: Some(secret) }]);
    Some(Ingress {
        metadata,
        spec: Some(IngressSpec {
            ingress_class_name: asked.class_name.clone(),
            rules: Some(vec![IngressRule {
                host: Some(asked.host.clone()),
                http: Some(HTTPIngressRuleValue { paths: vec![path] }),
            }]),
            tls,
            ..IngressSpec::default()
        }),
        status: None,
    })
}
