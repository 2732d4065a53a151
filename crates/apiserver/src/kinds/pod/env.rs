//! Environment variables of a container, and references to fields of the pod.

use shoal_objects::quantity::Quantity;
use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{field, list_at, str_at};
use crate::kinds::checks;

/// The fields a variable can show.
const ENV_FIELD_PATHS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields a file of a downward API volume can show.
pub const VOLUME_FIELD_PATHS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// All fields of the downward API, whether usable here or not.
const KNOWN_FIELD_PATHS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.host",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_PATHS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks `env` and `envFrom` of a container.
pub fn validate_env(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let env_path = path.child("env");
    for (i, variable) in list_at(container, "env").iter().enumerate() {
        let path = env_path.index(i);
        checks::required_text(variable, "name", &path, errors, names::env_var_name);
        if let Some(source) = field(variable, "valueFrom") {
            value_from(variable, source, &path.child("valueFrom"), errors);
        }
    }
    let from_path = path.child("envFrom");
    for (i, source) in list_at(container, "envFrom").iter().enumerate() {
        let path = from_path.index(i);
        checks::optional_text(source, "prefix", &path, errors, names::env_var_name);
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if let Some(reference) = field(source, kind) {
                sources += 1;
                checks::required(reference, "name", &path.child(kind), errors);
            }
        }
        if sources == 0 {
            errors.invalid_str(&from_path, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if sources > 1 {
            errors.invalid_str(&from_path, "", "may not have more than one field specified at a time");
        }
    }
}

fn value_from(variable: &Value, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    if let Some(reference) = field(source, "fieldRef") {
        sources += 1;
        field_ref(reference, &ENV_FIELD_PATHS, &path.child("fieldRef"), errors);
    }
    if let Some(reference) = field(source, "resourceFieldRef") {
        sources += 1;
        resource_field_ref(reference, false, &path.child("resourceFieldRef"), errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = field(source, kind) {
            sources += 1;
            checks::required(reference, "name", &path.child(kind), errors);
            checks::required_text(reference, "key", &path.child(kind), errors, names::config_map_key);
        }
    }
    if let Some(reference) = field(source, "fileKeyRef") {
        sources += 1;
        checks::required_text(
            reference,
            "volumeName",
            &path.child("fileKeyRef"),
            errors,
            names::dns1123_label,
        );
        checks::required(reference, "path", &path.child("fileKeyRef"), errors);
        checks::required_text(reference, "key", &path.child("fileKeyRef"), errors, names::env_var_name);
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
        errors.invalid_str(path, "", detail);
    } else if !str_at(variable, "value").is_empty() {
        errors.invalid_str(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid_str(path, "", "may not have more than one field specified at a time");
    }
}

/// Checks a reference to a field of the pod, which must be one of `supported` or an annotation or label by key.
pub fn field_ref(reference: &Value, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for name in ["apiVersion", "fieldPath"] {
        if str_at(reference, name).is_empty() {
            errors.required(&path.child(name), "");
            return;
        }
    }
    let given = str_at(reference, "fieldPath");
    let keyed = given.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    match keyed {
        Some(("metadata.annotations", key)) => {
            checks::text(errors, path, key, names::qualified_name(&key.to_lowercase()));
        }
        Some(("metadata.labels", key)) => checks::text(errors, path, key, names::qualified_name(key)),
        Some((field, _)) => errors.invalid_str(path, field, "does not support subscript"),
        None if !KNOWN_FIELD_PATHS.contains(&given) => {
            let detail = format!("error converting fieldPath: field label not supported: {given}");
            errors.invalid_str(&path.child("fieldPath"), given, &detail);
        }
        None => {
            let given = if given == "spec.host" { "spec.nodeName" } else { given };
            checks::supported_text(given, supported, &path.child("fieldPath"), errors);
        }
    }
}

/// Checks a reference to a request or limit of a container.
pub fn resource_field_ref(reference: &Value, in_volume: bool, path: &Path<'_>, errors: &mut Errors) {
    let resource = str_at(reference, "resource");
    if in_volume && str_at(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCE_PATHS.contains(&resource)
        && !resource.starts_with("requests.hugepages-")
        && !resource.starts_with("limits.hugepages-")
    {
        errors.not_supported(&path.child("resource"), resource, &RESOURCE_PATHS);
    }
    let Some(divisor) = field(reference, "divisor").and_then(|d| Quantity::from_json(d).ok()) else { return };
    let divisor = divisor.to_string();
    let (allowed, detail): (&[&str], &str) = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => {
            (&["0", "1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource")
        }
        Some(_) => (
            &["0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"],
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the resource",
        ),
        None => return,
    };
    if !allowed.contains(&divisor.as_str()) {
        errors.invalid_str(&path.child("divisor"), &divisor, detail);
    }
}
