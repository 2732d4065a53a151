//! What Kubernetes fills in for pods and pod templates.

use serde_json::json;
use shoal_objects::quantity::Quantity;
use shoal_objects::{Map, Value};

use super::resources::{container_requests, is_pod_level};
use super::volumes::default_volume;
use crate::kinds::access::{
    bool_at, child_mut, existing_mut, field, int_at, is_set, list_at, list_mut, set, set_default,
    set_default_str, str_at,
};
use crate::kinds::resource_lists::{self, round_up};

/// The lists of a pod spec that hold containers.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a whole Pod: those of a template and a few that only a real pod gets.
pub fn default_pod(pod: &mut Value) {
    if let Some(spec) = child_mut(pod, "spec") {
        default_pod_spec(spec);
        for list in ["containers", "initContainers"] {
            for container in list_mut(spec, list) {
                if let Some(resources) = existing_mut(container, "resources") {
                    requests_from_limits(resources);
                }
            }
        }
        default_pod_level_requests(spec);
        set_default(spec, "enableServiceLinks", true);
        if bool_at(spec, "hostNetwork") {
            default_host_ports(spec);
        }
    }
    if let Some(status) = existing_mut(pod, "status") {
        default_pod_ips(status);
    }
}

/// Defaults of a pod template (`metadata` and `spec`), which is made when absent from its parent.
pub fn default_template_of(parent: &mut Value) {
    if let Some(template) = child_mut(parent, "template") {
        child_mut(template, "metadata");
        if let Some(spec) = child_mut(template, "spec") {
            default_pod_spec(spec);
        }
    }
}

/// Defaults shared by pods and pod templates.
pub fn default_pod_spec(spec: &mut Value) {
    set_default_str(spec, "dnsPolicy", "ClusterFirst");
    set_default_str(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", Map::new());
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default_str(spec, "schedulerName", "default-scheduler");
    default_service_account(spec);
    round_up(spec, "overhead");
    if let Some(resources) = existing_mut(spec, "resources") {
        round_requirements(resources);
    }
    for volume in list_mut(spec, "volumes") {
        default_volume(volume);
    }
    for list in CONTAINER_LISTS {
        for container in list_mut(spec, list) {
            default_container(container);
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are always shown.
fn default_service_account(spec: &mut Value) {
    let name = match (str_at(spec, "serviceAccountName"), str_at(spec, "serviceAccount")) {
        ("", old) => old.to_owned(),
        (name, _) => name.to_owned(),
    };
    if !name.is_empty() {
        set(spec, "serviceAccountName", name.as_str());
        set(spec, "serviceAccount", name);
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(str_at(container, "image"));
    set_default_str(container, "imagePullPolicy", policy);
    set_default_str(container, "terminationMessagePath", "/dev/termination-log");
    set_default_str(container, "terminationMessagePolicy", "File");
    if let Some(resources) = child_mut(container, "resources") {
        round_requirements(resources);
    }
    for port in list_mut(container, "ports") {
        set_default_str(port, "protocol", "TCP");
    }
    for env in list_mut(container, "env") {
        if let Some(source) = existing_mut(env, "valueFrom") {
            default_env_source(source);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing_mut(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = existing_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(get) = existing_mut(lifecycle, hook).and_then(|h| existing_mut(h, "httpGet")) {
                default_http_get(get);
            }
        }
    }
}

/// `Always` for a tag `latest`, written or implied; a reference that does not parse has no tag.
pub fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].rfind(':') {
        Some(colon) => (&name[..path_start + colon], Some(&name[path_start + colon + 1..])),
        None => (name, None),
    };
    let path = match repository.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => repository,
    };
    let well_formed = !path.is_empty()
        && path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b));
    let latest = match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    };
    if well_formed && latest { "Always" } else { "IfNotPresent" }
}

fn default_env_source(source: &mut Value) {
    if let Some(field) = existing_mut(source, "fieldRef") {
        set_default_str(field, "apiVersion", "v1");
    }
    if let Some(resource) = existing_mut(source, "resourceFieldRef") {
        set_default(resource, "divisor", "0");
    }
    if let Some(file) = existing_mut(source, "fileKeyRef") {
        set_default(file, "optional", false);
    }
}

fn default_probe(probe: &mut Value) {
    for (name, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if int_at(probe, name).unwrap_or(0) == 0 {
            set(probe, name, value);
        }
    }
    if let Some(get) = existing_mut(probe, "httpGet") {
        default_http_get(get);
    }
    if let Some(grpc) = existing_mut(probe, "grpc") {
        set_default(grpc, "service", "");
    }
}

fn default_http_get(get: &mut Value) {
    set_default_str(get, "path", "/");
    set_default_str(get, "scheme", "HTTP");
}

fn round_requirements(resources: &mut Value) {
    round_up(resources, "limits");
    round_up(resources, "requests");
}

/// A limit without a request is also the request.
fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = field(resources, "limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = child_mut(resources, "requests") {
        for (name, limit) in limits {
            set_default(requests, &name, limit);
        }
    }
}

/// Pod-level requests: what the containers ask for together, else the pod-level limit.
fn default_pod_level_requests(spec: &mut Value) {
    let Some(resources) = field(spec, "resources").filter(|r| is_set(r, "limits") || is_set(r, "requests"))
    else {
        return;
    };
    let limits = resource_lists::amounts(resources, "limits").map(|(name, limit)| (name.clone(), limit));
    let wanted: Vec<(String, Quantity)> = container_requests(spec).into_iter().chain(limits).collect();
    if let Some(requests) = child_mut(spec, "resources").and_then(|r| child_mut(r, "requests")) {
        for (name, amount) in wanted.iter().filter(|(name, _)| is_pod_level(name)) {
            set_default(requests, name, amount.to_string());
        }
    }
}

/// On the host's network a container's port is the host's port.
fn default_host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in list_mut(spec, list) {
            for port in list_mut(container, "ports") {
                if int_at(port, "hostPort").unwrap_or(0) == 0
                    && let Some(number) = int_at(port, "containerPort")
                {
                    set(port, "hostPort", number);
                }
            }
        }
    }
}

/// `podIP` is the first of `podIPs` and wins when they differ.
fn default_pod_ips(status: &mut Value) {
    let ip = str_at(status, "podIP").to_owned();
    let first = list_at(status, "podIPs").first().map(|p| str_at(p, "ip").to_owned());
    match first {
        Some(first) if ip.is_empty() => set(status, "podIP", first),
        Some(first) if first == ip => {}
        _ if ip.is_empty() => {}
        _ => set(status, "podIPs", json!([{"ip": ip}])),
    }
}
