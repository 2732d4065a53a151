//! Variables of a container, from everything that a pod may name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, ObjectFieldSelector, Pod, ResourceFieldSelector, Secret, Service,
};
use shoal_objects::Quantity;

/// What variables and volumes are made of.
#[derive(Default)]
pub struct Sources {
    /// ConfigMaps of the pod's namespace that it names; those that do not exist are missing.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// Secrets likewise.
    pub secrets: BTreeMap<String, Secret>,
    /// Services whose addresses the pod is told.
    pub services: Vec<Service>,
    /// The pod's address.
    pub pod_ip: String,
    /// The node's address.
    pub host_ip: String,
    /// What a container may use when it has no limit: CPU in thousandths, bytes of memory.
    pub allocatable: (i64, i64),
}

/// Replaces `$(NAME)` by its value where there is one; `$$` is a dollar.
pub fn expand(text: &str, value: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&rest[at..at + name.len() + 3]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The variables of a container, in order; an error says what is missing, as `kubectl describe` shows it.
pub fn variables(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
) -> Result<Vec<(String, String)>, String> {
    let mut values: Vec<(String, String)> = Vec::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(from) = &source.config_map_ref {
            let found = sources.config_maps.get(&from.name);
            if found.is_none() && from.optional != Some(true) {
                return Err(format!("configmap {:?} not found", from.name));
            }
            for (key, value) in found.and_then(|map| map.data.as_ref()).into_iter().flatten() {
                set(&mut values, format!("{prefix}{key}"), value.clone());
            }
        }
        if let Some(from) = &source.secret_ref {
            let found = sources.secrets.get(&from.name);
            if found.is_none() && from.optional != Some(true) {
                return Err(format!("secret {:?} not found", from.name));
            }
            for (key, value) in found.and_then(|secret| secret.data.as_ref()).into_iter().flatten() {
                set(&mut values, format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
            }
        }
    }
    let of_services = service_variables(pod, &sources.services);
    for variable in container.env.iter().flatten() {
        let value = {
            let known = |name: &str| get(&values, name).or_else(|| get(&of_services, name));
            variable_value(pod, container, variable, sources, &known)?
        };
        if let Some(value) = value {
            set(&mut values, variable.name.clone(), value);
        }
    }
    for (name, value) in of_services {
        if get(&values, &name).is_none() {
            values.push((name, value));
        }
    }
    Ok(values)
}

fn get(values: &[(String, String)], name: &str) -> Option<String> {
    values.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

fn set(values: &mut Vec<(String, String)>, name: String, value: String) {
    match values.iter_mut().find(|(key, _)| *key == name) {
        Some(known) => known.1 = value,
        None => values.push((name, value)),
    }
}

fn variable_value(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    sources: &Sources,
    known: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, String> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), known)));
    };
    if let Some(field) = &from.field_ref {
        return pod_field(pod, field, sources).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        return resource_field(pod, container, resource, sources).map(Some);
    }
    if let Some(key) = &from.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = sources.config_maps.get(&key.name) else {
            return if optional { Ok(None) } else { Err(format!("configmap {:?} not found", key.name)) };
        };
        let found = map.data.as_ref().and_then(|data| data.get(&key.key)).cloned();
        return match (found, optional) {
            (Some(value), _) => Ok(Some(value)),
            (None, true) => Ok(None),
            (None, false) => Err(format!("couldn't find key {} in ConfigMap {}", key.key, key.name)),
        };
    }
    if let Some(key) = &from.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = sources.secrets.get(&key.name) else {
            return if optional { Ok(None) } else { Err(format!("secret {:?} not found", key.name)) };
        };
        let found = secret.data.as_ref().and_then(|data| data.get(&key.key));
        return match (found, optional) {
            (Some(value), _) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            (None, true) => Ok(None),
            (None, false) => Err(format!("couldn't find key {} in Secret {}", key.key, key.name)),
        };
    }
    Ok(Some(String::new()))
}

/// A field of the pod itself (the downward API).
pub fn pod_field(pod: &Pod, field: &ObjectFieldSelector, sources: &Sources) -> Result<String, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let path = field.field_path.as_str();
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&empty);
    let key_of = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    if let Some(key) = key_of("metadata.labels['") {
        return Ok(labels.get(key).cloned().unwrap_or_default());
    }
    if let Some(key) = key_of("metadata.annotations['") {
        return Ok(annotations.get(key).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&pod.metadata.name),
        "metadata.namespace" => text(&pod.metadata.namespace),
        "metadata.uid" => text(&pod.metadata.uid),
        "metadata.labels" => as_lines(labels),
        "metadata.annotations" => as_lines(annotations),
        "spec.nodeName" => spec.map(|spec| text(&spec.node_name)).unwrap_or_default(),
        "spec.serviceAccountName" => spec.map(|spec| text(&spec.service_account_name)).unwrap_or_default(),
        "status.podIP" | "status.podIPs" => sources.pod_ip.clone(),
        "status.hostIP" | "status.hostIPs" => sources.host_ip.clone(),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// As the kubelet writes labels and annotations into files.
fn as_lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// A limit or request of a container.
pub fn resource_field(
    pod: &Pod,
    container: &Container,
    field: &ResourceFieldSelector,
    sources: &Sources,
) -> Result<String, String> {
    let named = field.container_name.as_deref().filter(|name| !name.is_empty());
    let all =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let container = match named {
        Some(name) => {
            all.into_iter().find(|c| c.name == name).ok_or_else(|| format!("container {name} not found"))?
        }
        None => container,
    };
    let (list, name) = field.resource.split_once('.').unwrap_or_default();
    let resources = container.resources.clone().unwrap_or_default();
    let map = match list {
        "limits" => resources.limits,
        "requests" => resources.requests,
        _ => return Err(format!("unsupported container resource : {}", field.resource)),
    };
    let quantity = map.unwrap_or_default().get(name).and_then(|q| Quantity::parse(&q.0).ok());
    let divisor = field.divisor.as_ref().and_then(|q| Quantity::parse(&q.0).ok()).filter(|q| !q.is_zero());
    let divide = |value: i64, divisor: i64| value.saturating_add(divisor - 1).div_euclid(divisor.max(1));
    Ok(match name {
        "cpu" => {
            let fallback = if list == "limits" { sources.allocatable.0 } else { 0 };
            let milli = quantity.map_or(fallback, |q| q.milli_value());
            divide(milli, divisor.map_or(1000, |d| d.milli_value())).to_string()
        }
        _ => {
            let fallback = if list == "limits" && name == "memory" { sources.allocatable.1 } else { 0 };
            let value = quantity.map_or(fallback, |q| q.value());
            divide(value, divisor.map_or(1, |d| d.value())).to_string()
        }
    })
}

/// `WEB_SERVICE_HOST` and the like, for Services of the pod's namespace and the API server's.
fn service_variables(pod: &Pod, services: &[Service]) -> Vec<(String, String)> {
    let enabled = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut out = Vec::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let of = service.metadata.namespace.as_deref().unwrap_or_default();
        let is_master = (of, name) == ("default", "kubernetes");
        let is_told = is_master || (enabled && of == namespace);
        if !is_told {
            continue;
        }
        let Some(spec) = &service.spec else { continue };
        let ip = spec.cluster_ip.as_deref().unwrap_or_default();
        let ports = spec.ports.as_deref().unwrap_or_default();
        let (false, false, Some(first)) = (ip.is_empty(), ip == "None", ports.first()) else { continue };
        let prefix = name.to_ascii_uppercase().replace('-', "_");
        out.push((format!("{prefix}_SERVICE_HOST"), ip.to_owned()));
        out.push((format!("{prefix}_SERVICE_PORT"), first.port.to_string()));
        for port in ports {
            if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                let suffix = port_name.to_ascii_uppercase().replace('-', "_");
                out.push((format!("{prefix}_SERVICE_PORT_{suffix}"), port.port.to_string()));
            }
        }
        for (at, port) in ports.iter().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let lower = protocol.to_ascii_lowercase();
            let url = format!("{lower}://{ip}:{}", port.port);
            if at == 0 {
                out.push((format!("{prefix}_PORT"), url.clone()));
            }
            let base = format!("{prefix}_PORT_{}_{protocol}", port.port);
            out.push((base.clone(), url));
            out.push((format!("{base}_PROTO"), lower));
            out.push((format!("{base}_PORT"), port.port.to_string()));
            out.push((format!("{base}_ADDR"), ip.to_owned()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(container: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [container]},
        }))
        .unwrap()
    }

    fn of(container: Value, sources: &Sources) -> Result<BTreeMap<String, String>, String> {
        let pod = pod(container);
        let container = pod.spec.clone().unwrap().containers.remove(0);
        Ok(variables(&pod, &container, sources)?.into_iter().collect())
    }

    #[test]
    fn references_are_replaced_and_dollars_escaped() {
        let value = |name: &str| (name == "A").then(|| "1".to_owned());
        let expand = |text| expand(text, &value);
        assert_eq!(expand("x$(A)y"), "x1y");
        assert_eq!(expand("$$(A) $$$(A)"), "$(A) $1");
        assert_eq!(expand("$(B) $A $( $"), "$(B) $A $( $");
        assert_eq!(expand("$(A"), "$(A");
    }

    #[test]
    fn variables_see_those_before_them() {
        let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}, {"name": "C", "value": "$(D)"}]);
        let found = of(json!({"name": "c", "env": env}), &Sources::default()).unwrap();
        assert_eq!((found["B"].as_str(), found["C"].as_str()), ("12", "$(D)"));
    }

    #[test]
    fn fields_and_resources_of_the_pod_are_told() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let container = json!({
            "name": "c",
            "resources": {"limits": {"cpu": "1500m", "memory": "1Mi"}},
            "env": [
                {"name": "NAME", "valueFrom": field("metadata.name")},
                {"name": "APP", "valueFrom": field("metadata.labels['app']")},
                {"name": "IP", "valueFrom": field("status.podIP")},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Ki"}}},
            ],
        });
        let sources = Sources { pod_ip: "127.0.1.2".to_owned(), ..Sources::default() };
        let found = of(container, &sources).unwrap();
        let get = |name: &str| found[name].as_str();
        assert_eq!(
            (get("NAME"), get("APP"), get("IP"), get("CPU"), get("MEM")),
            ("web", "web", "127.0.1.2", "2", "1024")
        );
    }

    #[test]
    fn what_is_missing_is_an_error_unless_optional() {
        let key = |optional: bool| json!({"name": "c", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": optional}}}]});
        assert_eq!(of(key(false), &Sources::default()).unwrap_err(), "configmap \"m\" not found");
        assert!(of(key(true), &Sources::default()).unwrap().is_empty());
        let mut sources = Sources::default();
        sources.config_maps.insert("m".to_owned(), ConfigMap::default());
        assert_eq!(of(key(false), &sources).unwrap_err(), "couldn't find key k in ConfigMap m");
    }

    #[test]
    fn services_are_told_as_variables() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "my-db", "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.9", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]},
        }))
        .unwrap();
        let sources = Sources { services: vec![service], ..Sources::default() };
        let found = of(json!({"name": "c"}), &sources).unwrap();
        assert_eq!(found["MY_DB_SERVICE_HOST"], "10.96.0.9");
        assert_eq!(found["MY_DB_SERVICE_PORT_SQL"], "5432");
        assert_eq!(found["MY_DB_PORT"], "tcp://10.96.0.9:5432");
        assert_eq!(found["MY_DB_PORT_5432_TCP_ADDR"], "10.96.0.9");
    }
}
