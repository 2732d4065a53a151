//! The NetworkPolicy.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{metadata, name_of, selector, some_list};
use crate::Application;

/// The policy, if one is asked for.
pub fn network_policy(app: &Application) -> Option<NetworkPolicy> {
    let asked = app.spec.network.as_ref()?.network_policy.as_ref()?;
    let ports = app.spec.all_ports().into_iter().map(|port| NetworkPolicyPort {
        port: Some(IntOrString::Int(port.port)),
        protocol: Some(port.protocol),
        end_port: None,
    });
    let rule = NetworkPolicyIngressRule { from: some_list(&asked.from), ports: Some(ports.collect()) };
    Some(NetworkPolicy {
        metadata: metadata(app, name_of(app)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(app)),
            ingress: Some(vec![rule]),
            policy_types: Some(vec!["Ingress".to_owned()]),
            egress: None,
        }),
    })
}
