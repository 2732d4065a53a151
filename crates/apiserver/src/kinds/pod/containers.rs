//! Containers of a pod: ordinary, init and ephemeral ones.

use std::collections::BTreeSet;

use serde_json::json;
use shoal_objects::{Errors, Path, Value, names};

use super::env::validate_env;
use super::mounts::{validate_devices, validate_mounts};
use super::probes::validate_probes;
use super::resources::validate_container_resources;
use super::security::validate_container_security;
use super::volumes::Volumes;
use crate::kinds::access::{field, int_at, is_set, list_at, object_at, str_at};
use crate::kinds::checks;

/// When an image is pulled.
pub const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

const NO_PROBES: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

/// What of the pod the check of a container needs.
pub struct InPod<'a> {
    /// The pod's spec.
    pub spec: &'a Value,
    /// Volumes that can be mounted.
    pub volumes: &'a Volumes<'a>,
    /// Names of `spec.resourceClaims`.
    pub claims: &'a [&'a str],
}

/// Checks all containers of a pod spec.
pub fn validate_all(pod: &InPod<'_>, path: &Path<'_>, errors: &mut Errors) {
    validate_ordinary(pod, &path.child("containers"), errors);
    validate_init(pod, &path.child("initContainers"), errors);
    validate_ephemeral(pod, &path.child("ephemeralContainers"), errors);
}

fn validate_ordinary(pod: &InPod<'_>, path: &Path<'_>, errors: &mut Errors) {
    let containers = list_at(pod.spec, "containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        validate_any(container, pod, &path, errors);
        unique_name(container, &mut seen, &path, errors);
        validate_probes(container, pod.spec, &path, errors);
        validate_restart(container, &path, errors);
    }
    let mut host_ports = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        unique_host_ports(container, &mut host_ports, &path.index(i), errors);
    }
}

fn validate_init(pod: &InPod<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: BTreeSet<&str> = container_names(pod.spec, "containers").collect();
    for (i, container) in list_at(pod.spec, "initContainers").iter().enumerate() {
        let path = path.index(i);
        validate_any(container, pod, &path, errors);
        unique_name(container, &mut seen, &path, errors);
        unique_host_ports(container, &mut BTreeSet::new(), &path, errors);
        if str_at(container, "restartPolicy") == "Always" {
            validate_probes(container, pod.spec, &path, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if field(container, name).is_some() {
                    errors.forbidden(&path.child(name), NO_PROBES);
                }
            }
            if let Some(policy) = field(container, "resizePolicy") {
                errors.invalid(&path.child("resizePolicy"), policy, "must not be set for init containers");
            }
        }
        validate_restart(container, &path, errors);
    }
}

/// Checks the ephemeral containers alone, as their subresource does.
pub fn validate_ephemeral(pod: &InPod<'_>, path: &Path<'_>, errors: &mut Errors) {
    let others: BTreeSet<&str> =
        container_names(pod.spec, "containers").chain(container_names(pod.spec, "initContainers")).collect();
    let mut seen = others.clone();
    for (i, container) in list_at(pod.spec, "ephemeralContainers").iter().enumerate() {
        let path = path.index(i);
        validate_any(container, pod, &path, errors);
        no_blanks_around_image(container, &path, errors);
        unique_name(container, &mut seen, &path, errors);
        let target = str_at(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target);
        }
        for name in [
            "ports",
            "resources",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resizePolicy",
        ] {
            let given = match object_at(container, name) {
                Some(object) => !object.is_empty(),
                None => is_set(container, name),
            };
            if given {
                errors.forbidden(&path.child(name), NOT_EPHEMERAL);
            }
        }
        for (j, mount) in list_at(container, "volumeMounts").iter().enumerate() {
            for name in ["subPath", "subPathExpr"] {
                if is_set(mount, name) {
                    errors.forbidden(&path.child("volumeMounts").index(j).child(name), NOT_EPHEMERAL);
                }
            }
        }
    }
}

/// Only pods, not templates, refuse blanks around the image.
pub fn no_blanks_around_image(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = str_at(container, "image");
    if image.trim() != image {
        errors.invalid_str(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
}

fn container_names<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    list_at(spec, list).iter().map(|c| str_at(c, "name")).filter(|name| !name.is_empty())
}

fn unique_name<'a>(container: &'a Value, seen: &mut BTreeSet<&'a str>, path: &Path<'_>, errors: &mut Errors) {
    let name = str_at(container, "name");
    if !name.is_empty() && !seen.insert(name) {
        errors.duplicate(&path.child("name"), &json!(name));
    }
}

fn validate_any(container: &Value, pod: &InPod<'_>, path: &Path<'_>, errors: &mut Errors) {
    checks::required_text(container, "name", path, errors, names::dns1123_label);
    checks::required(container, "image", path, errors);
    checks::one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    validate_ports(container, &path.child("ports"), errors);
    validate_env(container, path, errors);
    validate_mounts(container, pod.volumes, path, errors);
    validate_devices(container, pod.volumes, path, errors);
    checks::one_of(container, "imagePullPolicy", &PULL_POLICIES, path, errors);
    if let Some(resources) = field(container, "resources") {
        validate_container_resources(resources, pod.claims, &path.child("resources"), errors);
    }
    validate_resize_policy(container, str_at(pod.spec, "restartPolicy"), &path.child("resizePolicy"), errors);
    if let Some(context) = field(container, "securityContext") {
        validate_container_security(context, &path.child("securityContext"), errors);
    }
}

fn validate_ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, port) in list_at(container, "ports").iter().enumerate() {
        let path = path.index(i);
        let name = str_at(port, "name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            if messages.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.child("name"), &json!(name));
            }
            checks::text(errors, &path.child("name"), name, messages);
        }
        match int_at(port, "containerPort").unwrap_or(0) {
            0 => errors.required(&path.child("containerPort"), ""),
            number => {
                checks::number(errors, &path.child("containerPort"), number, names::port_number(number));
            }
        }
        let host_port = int_at(port, "hostPort").unwrap_or(0);
        if host_port != 0 {
            checks::number(errors, &path.child("hostPort"), host_port, names::port_number(host_port));
        }
        checks::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
    }
}

fn unique_host_ports(container: &Value, seen: &mut BTreeSet<String>, path: &Path<'_>, errors: &mut Errors) {
    for (i, port) in list_at(container, "ports").iter().enumerate() {
        let number = int_at(port, "hostPort").unwrap_or(0);
        let key = format!("{}/{}/{number}", str_at(port, "protocol"), str_at(port, "hostIP"));
        if number != 0 && !seen.insert(key.clone()) {
            errors.duplicate(&path.child("ports").index(i).child("hostPort"), &json!(key));
        }
    }
}

fn validate_resize_policy(container: &Value, pod_restart: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, policy) in list_at(container, "resizePolicy").iter().enumerate() {
        let name = str_at(policy, "resourceName");
        let restart = str_at(policy, "restartPolicy");
        if !seen.insert(name) {
            errors.duplicate(&path.index(i), &json!(name));
        }
        checks::one_of(policy, "resourceName", &["cpu", "memory"], path, errors);
        checks::one_of(policy, "restartPolicy", &["NotRequired", "RestartContainer"], path, errors);
        if pod_restart == "Never" && restart == "RestartContainer" {
            let detail = format!("must be 'NotRequired' when `restartPolicy` is '{pod_restart}'");
            errors.invalid_str(path, restart, &detail);
        }
    }
}

/// A container's own restart policy and the rules by exit code that need one.
fn validate_restart(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = list_at(container, "restartPolicyRules");
    if field(container, "restartPolicy").is_none() {
        if !rules.is_empty() {
            errors.required(
                &path.child("restartPolicy"),
                "must specify restartPolicy when restart rules are used",
            );
        }
        return;
    }
    checks::optional_one_of(container, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        checks::one_of(rule, "action", &["Restart"], &path, errors);
        let Some(codes) = field(rule, "exitCodes") else {
            errors.required(&path.child("exitCodes"), "must be specified");
            continue;
        };
        let path = path.child("exitCodes");
        checks::one_of(codes, "operator", &["In", "NotIn"], &path, errors);
        let values = list_at(codes, "values");
        if values.is_empty() {
            errors.required(&path.child("values"), "must specify at least one value");
        }
        if values.len() > 255 {
            errors.too_many(&path.child("values"), values.len(), 255);
        }
    }
}
