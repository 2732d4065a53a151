//! What is particular to a kind and stands in no schema: defaults, validation, what an update may change.
//! One file per kind (or family); all functions are pure and work on the JSON of the served version.

use shoal_objects::{Errors, Value};

pub mod access;
pub mod addresses;
pub mod admission_policy;
mod admission_rules;
pub mod api_service;
pub mod approval;
pub mod certificates;
pub mod checks;
pub mod claim;
pub mod config_map;
mod controller_revision;
mod cron;
mod cron_job;
pub mod csi;
mod daemon_set;
pub mod definition;
mod deployment;
mod disruption_budget;
pub mod edits;
pub mod endpoints;
pub mod event;
pub mod fields;
pub mod flow_control;
#[cfg(test)]
mod hostile;
pub mod hpa;
pub mod ingress;
mod job;
pub mod lease;
pub mod limit_range;
pub mod namespace;
pub mod net;
pub mod network_policy;
pub mod node;
pub mod options;
pub mod pod;
pub mod pod_template;
pub mod quota;
pub mod rbac;
mod replica_set;
mod replication_controller;
pub mod resource_lists;
pub mod scheduling;
pub mod secret;
pub mod seen;
pub mod service;
pub mod service_alloc;
mod service_validation;
mod stateful_set;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod token_request;
pub mod volume;
pub mod webhooks;
#[cfg(test)]
mod workload_scenarios;

/// The rules of one kind. Every function may assume that the object passed `decode` (right JSON types, no nulls,
/// no unknown fields) and must not panic when an optional or required field is absent.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Fills what the client left out. Runs on every decoded body and after every patch.
    pub default: fn(&mut Value),
    /// Before validation of a create: resets what a client may not set. The status of kinds with a status
    /// subresource is already gone.
    pub prepare_create: fn(&mut Value),
    /// Before validation of an update `(new, old)`: carries over what a client may not change silently.
    /// The status of kinds with a status subresource is already the old one.
    pub prepare_update: fn(&mut Value, &Value),
    /// Before validation of a status update `(new, old)`: everything but the status is already the old one.
    pub prepare_status: fn(&mut Value, &Value),
    /// What is wrong with the object as such; metadata is checked elsewhere.
    pub validate: fn(&Value, &mut Errors),
    /// What is wrong with the change `(new, old)`, in addition to `validate` of the new object.
    pub validate_update: fn(&Value, &Value, &mut Errors),
    /// What is wrong with the change of the status `(new, old)`; `validate` does not run for these.
    pub validate_status: fn(&Value, &Value, &mut Errors),
    /// What is fine but unwise: texts for `Warning` headers.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Which names are allowed.
    pub name: NameRule,
}

/// Which names a kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, up to 253 characters: the usual one.
    Subdomain,
    /// RFC 1123 label, up to 63 characters.
    Label,
    /// RFC 1035 label, up to 63 characters, starting with a letter.
    Label1035,
    /// Anything that can stand in a URL path (RBAC).
    PathSegment,
    /// Checked by the kind itself.
    Free,
}

impl Rules {
    /// No defaults and nothing to refuse.
    pub const NONE: Rules = Rules {
        default: |_| {},
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        prepare_status: |_, _| {},
        validate: |_, _| {},
        validate_update: |_, _, _| {},
        validate_status: |_, _, _| {},
        warnings: |_| Vec::new(),
        name: NameRule::Subdomain,
    };
}

/// The rules of a built-in resource (plural name) as served in this version.
pub fn rules(group: &str, version: &str, resource: &str) -> Rules {
    workloads(group, version, resource).or_else(|| platform(group, version, resource)).unwrap_or(Rules::NONE)
}

/// Kinds that make pods, and pods.
fn workloads(group: &str, version: &str, resource: &str) -> Option<Rules> {
    Some(match (group, resource) {
        ("", "pods") => pod::RULES,
        ("", "podtemplates") => pod_template::RULES,
        ("", "replicationcontrollers") => replication_controller::RULES,
        ("apps", "deployments") => deployment::RULES,
        ("apps", "replicasets") => replica_set::RULES,
        ("apps", "statefulsets") => stateful_set::RULES,
        ("apps", "daemonsets") => daemon_set::RULES,
        ("apps", "controllerrevisions") => controller_revision::RULES,
        ("batch", "jobs") => job::RULES,
        ("batch", "cronjobs") => cron_job::RULES,
        ("policy", "poddisruptionbudgets") => disruption_budget::RULES,
        ("autoscaling", "horizontalpodautoscalers") if version == "v1" => hpa::RULES_V1,
        ("autoscaling", "horizontalpodautoscalers") => hpa::RULES,
        _ => return None,
    })
}

/// All other kinds.
fn platform(group: &str, _version: &str, resource: &str) -> Option<Rules> {
    let rules = match (group, resource) {
        ("", "configmaps") => config_map::RULES,
        ("", "endpoints") => endpoints::RULES,
        ("", "events") => event::CORE_RULES,
        ("", "limitranges") => limit_range::RULES,
        ("", "namespaces") => namespace::RULES,
        ("", "nodes") => node::RULES,
        ("", "persistentvolumeclaims") => claim::RULES,
        ("", "persistentvolumes") => volume::RULES,
        ("", "resourcequotas") => quota::RULES,
        ("", "secrets") => secret::RULES,
        ("", "services") => service::RULES,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => admission_policy::MUTATING_RULES,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => {
            admission_policy::MUTATING_BINDING_RULES
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => webhooks::MUTATING_RULES,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => admission_policy::VALIDATING_RULES,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            admission_policy::VALIDATING_BINDING_RULES
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => webhooks::VALIDATING_RULES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::RULES,
        ("apiregistration.k8s.io", "apiservices") => api_service::RULES,
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::RULES,
        ("coordination.k8s.io", "leases") => lease::RULES,
        ("discovery.k8s.io", "endpointslices") => endpoints::SLICE_RULES,
        ("events.k8s.io", "events") => event::EVENTS_RULES,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow_control::SCHEMA_RULES,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => flow_control::LEVEL_RULES,
        ("networking.k8s.io", "ingressclasses") => ingress::CLASS_RULES,
        ("networking.k8s.io", "ingresses") => ingress::RULES,
        ("networking.k8s.io", "ipaddresses") => addresses::ADDRESS_RULES,
        ("networking.k8s.io", "networkpolicies") => network_policy::RULES,
        ("networking.k8s.io", "servicecidrs") => addresses::CIDR_RULES,
        ("node.k8s.io", "runtimeclasses") => scheduling::RUNTIME_RULES,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => rbac::CLUSTER_ROLE_BINDING_RULES,
        ("rbac.authorization.k8s.io", "clusterroles") => rbac::CLUSTER_ROLE_RULES,
        ("rbac.authorization.k8s.io", "rolebindings") => rbac::ROLE_BINDING_RULES,
        ("rbac.authorization.k8s.io", "roles") => rbac::ROLE_RULES,
        ("scheduling.k8s.io", "priorityclasses") => scheduling::PRIORITY_RULES,
        ("storage.k8s.io", "csidrivers") => csi::DRIVER_RULES,
        ("storage.k8s.io", "csinodes") => csi::NODE_RULES,
        ("storage.k8s.io", "csistoragecapacities") => csi::CAPACITY_RULES,
        ("storage.k8s.io", "storageclasses") => storage::CLASS_RULES,
        ("storage.k8s.io", "volumeattachments") => storage::ATTACHMENT_RULES,
        ("storage.k8s.io", "volumeattributesclasses") => storage::ATTRIBUTES_CLASS_RULES,
        _ => return None,
    };
    Some(rules)
}

/// Whether an object of this resource may be created with a status although it has a status subresource.
pub fn keeps_status_on_create(group: &str, resource: &str) -> bool {
    matches!((group, resource), ("", "nodes"))
}
