//! What is wrong with a pod, a pod template or a pod spec.

use serde_json::json;
use shoal_objects::meta::{validate_annotations, validate_labels};
use shoal_objects::{Errors, Path, Value, names};

use super::containers::{self, InPod, no_blanks_around_image};
use super::defaults::CONTAINER_LISTS;
use super::resources::validate_pod_resources;
use super::scheduling::{validate_affinity, validate_gates, validate_spread, validate_tolerations};
use super::security::validate_pod_security;
use super::volumes::validate_volumes;
use crate::kinds::access::{field, is_set, list_at, object_at, part, str_at};
use crate::kinds::checks;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Checks a Pod.
pub fn validate_pod(pod: &Value, errors: &mut Errors) {
    let spec = part(pod, "spec");
    let path = Path::new("spec");
    validate_spec(spec, true, &path, errors);
    if str_at(spec, "serviceAccountName").is_empty() {
        forbid_tokens(spec, &path, errors);
    }
    for list in &CONTAINER_LISTS[..2] {
        for (i, container) in list_at(spec, list).iter().enumerate() {
            no_blanks_around_image(container, &path.child(list).index(i), errors);
        }
    }
}

/// Checks what only matters when a Pod is created, besides [`validate_pod`].
pub fn validate_pod_create(pod: &Value, errors: &mut Errors) {
    let spec = part(pod, "spec");
    let path = Path::new("spec");
    if is_set(spec, "ephemeralContainers") {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if is_set(spec, "schedulingGates") && is_set(spec, "nodeName") {
        errors
            .forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// A token needs an account to belong to.
fn forbid_tokens(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, volume) in list_at(spec, "volumes").iter().enumerate() {
        let Some(projected) = field(volume, "projected") else { continue };
        for (j, source) in list_at(projected, "sources").iter().enumerate() {
            if field(source, "serviceAccountToken").is_some() {
                let volumes = path.child("volumes");
                let sources = volumes.index(i);
                let sources = sources.child("projected");
                let sources = sources.child("sources");
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&sources.index(j).child("serviceAccountToken"), detail);
            }
        }
    }
}

/// Checks a pod template: `metadata` and `spec`.
pub fn validate_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_template_metadata(template, path, errors);
    let spec = part(template, "spec");
    validate_spec(spec, false, &path.child("spec"), errors);
    if is_set(spec, "ephemeralContainers") {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&path.child("spec").child("ephemeralContainers"), detail);
    }
}

fn validate_template_metadata(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(metadata) = field(template, "metadata") else { return };
    if let Some(labels) = object_at(metadata, "labels") {
        validate_labels(labels, &path.child("labels"), errors);
    }
    if let Some(annotations) = object_at(metadata, "annotations") {
        validate_annotations(annotations, &path.child("annotations"), errors);
    }
}

/// Checks a pod spec. Pods are stricter than templates about what will be defaulted later.
pub fn validate_spec(spec: &Value, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let volumes = validate_volumes(spec, &path.child("volumes"), errors);
    let claims = validate_resource_claims(spec, &path.child("resourceClaims"), errors);
    containers::validate_all(&InPod { spec, volumes: &volumes, claims: &claims }, path, errors);
    validate_pod_resources(spec, &path.child("resources"), errors);
    checks::one_of(spec, "restartPolicy", &RESTART_POLICIES, path, errors);
    checks::one_of(spec, "dnsPolicy", &DNS_POLICIES, path, errors);
    if let Some(selector) = object_at(spec, "nodeSelector") {
        validate_labels(selector, &path.child("nodeSelector"), errors);
    }
    validate_pod_security(spec, is_pod, path, errors);
    if let Some(affinity) = field(spec, "affinity") {
        validate_affinity(affinity, &path.child("affinity"), errors);
    }
    validate_dns_config(spec, &path.child("dnsConfig"), errors);
    for (i, gate) in list_at(spec, "readinessGates").iter().enumerate() {
        let condition = str_at(gate, "conditionType");
        let path = path.child("readinessGates");
        let path = path.index(i);
        checks::text(errors, &path.child("conditionType"), condition, names::qualified_name(condition));
    }
    validate_gates(list_at(spec, "schedulingGates"), &path.child("schedulingGates"), errors);
    validate_spread(
        list_at(spec, "topologySpreadConstraints"),
        &path.child("topologySpreadConstraints"),
        errors,
    );
    validate_names_and_limits(spec, path, errors);
}

fn validate_names_and_limits(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::optional_text(spec, "serviceAccountName", path, errors, names::dns1123_subdomain);
    checks::optional_text(spec, "nodeName", path, errors, names::dns1123_subdomain);
    checks::between(spec, "activeDeadlineSeconds", 1, i64::from(i32::MAX), path, errors);
    checks::optional_text(spec, "hostname", path, errors, names::dns1123_label);
    checks::optional_text(spec, "subdomain", path, errors, names::dns1123_label);
    validate_tolerations(list_at(spec, "tolerations"), &path.child("tolerations"), errors);
    let aliases = path.child("hostAliases");
    for (i, alias) in list_at(spec, "hostAliases").iter().enumerate() {
        let path = aliases.index(i);
        let ip = str_at(alias, "ip");
        checks::text(errors, &path.child("ip"), ip, names::ip_address(ip));
        for (j, host) in list_at(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            checks::text(errors, &path.child("hostnames").index(j), host, names::dns1123_subdomain(host));
        }
    }
    checks::optional_text(spec, "priorityClassName", path, errors, names::dns1123_subdomain);
    checks::optional_text(spec, "runtimeClassName", path, errors, names::dns1123_subdomain);
    checks::optional_one_of(spec, "preemptionPolicy", &["Never", "PreemptLowerPriority"], path, errors);
    if let Some(os) = field(spec, "os") {
        checks::one_of(os, "name", &["linux", "windows"], &path.child("os"), errors);
    }
}

fn validate_resource_claims<'a>(spec: &'a Value, path: &Path<'_>, errors: &mut Errors) -> Vec<&'a str> {
    let mut known = Vec::new();
    for (i, claim) in list_at(spec, "resourceClaims").iter().enumerate() {
        let path = path.index(i);
        let name = str_at(claim, "name");
        if known.contains(&name) {
            errors.duplicate(&path.child("name"), &json!(name));
        }
        checks::required_text(claim, "name", &path, errors, names::dns1123_label);
        match (field(claim, "resourceClaimName"), field(claim, "resourceClaimTemplateName")) {
            (None, None) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&path, claim, detail);
            }
            (Some(_), Some(_)) => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&path, claim, detail);
            }
            _ => {}
        }
        known.push(name);
    }
    known
}

fn validate_dns_config(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = field(spec, "dnsConfig");
    let nameservers = config.map(|c| list_at(c, "nameservers")).unwrap_or_default();
    if str_at(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if nameservers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), detail);
            return;
        }
    }
    let Some(config) = config else { return };
    if nameservers.len() > 3 {
        errors.invalid(
            &path.child("nameservers"),
            &json!(nameservers),
            "must not have more than 3 nameservers",
        );
    }
    for (i, server) in nameservers.iter().filter_map(Value::as_str).enumerate() {
        checks::text(errors, &path.child("nameservers").index(i), server, names::ip_address(server));
    }
    let searches = list_at(config, "searches");
    if searches.len() > 32 {
        errors.invalid(&path.child("searches"), &json!(searches), "must not have more than 32 search paths");
    }
    let length: usize = searches.iter().filter_map(Value::as_str).map(|s| s.len() + 1).sum();
    if length > 2049 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&path.child("searches"), &json!(searches), detail);
    }
    for (i, search) in searches.iter().filter_map(Value::as_str).enumerate() {
        if search != "." {
            let bare = search.strip_suffix('.').unwrap_or(search);
            checks::text(errors, &path.child("searches").index(i), bare, names::dns1123_subdomain(bare));
        }
    }
    for (i, option) in list_at(config, "options").iter().enumerate() {
        if str_at(option, "name").is_empty() {
            errors.required(&path.child("options").index(i), "must not be empty");
        }
    }
}
