//! Probes and lifecycle hooks of a container.

use serde_json::json;
use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{field, int_at, list_at, str_at};
use crate::kinds::checks;

/// Checks the three probes and the lifecycle hooks of a container that may have them.
pub fn validate_probes(container: &Value, pod_spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let grace = int_at(pod_spec, "terminationGracePeriodSeconds").unwrap_or(30);
    if let Some(lifecycle) = field(container, "lifecycle") {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = field(lifecycle, hook) {
                validate_handler(handler, grace, &path.child(hook), errors);
            }
        }
        if !str_at(lifecycle, "stopSignal").is_empty() && field(pod_spec, "os").is_none() {
            let detail = "may not be set for containers with empty `spec.os.name`";
            errors.forbidden(&path.child("stopSignal"), detail);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = field(container, kind) {
            validate_probe(kind, probe, grace, &path.child(kind), errors);
        }
    }
}

fn validate_probe(kind: &str, probe: &Value, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    validate_handler(probe, grace, path, errors);
    for name in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        checks::not_negative(probe, name, path, errors);
    }
    let own_grace = int_at(probe, "terminationGracePeriodSeconds");
    let grace_path = path.child("terminationGracePeriodSeconds");
    if let Some(n) = own_grace.filter(|n| *n <= 0) {
        errors.invalid(&grace_path, &json!(n), "must be greater than 0");
    }
    if kind == "readinessProbe" {
        if let Some(n) = own_grace {
            errors.invalid(&grace_path, &json!(n), "must not be set for readinessProbes");
        }
    } else if let Some(n) = int_at(probe, "successThreshold").filter(|n| *n != 1) {
        errors.invalid(&path.child("successThreshold"), &json!(n), "must be 1");
    }
}

fn validate_handler(handler: &Value, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = field(handler, kind) else { continue };
        let path = path.child(kind);
        if found {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match kind {
            "exec" if list_at(action, "command").is_empty() => errors.required(&path.child("command"), ""),
            "httpGet" => http_get(action, &path, errors),
            "tcpSocket" => port(action, &path, errors),
            "grpc" => {
                let number = int_at(action, "port").unwrap_or(0);
                checks::number(errors, &path.child("port"), number, names::port_number(number));
            }
            "sleep" => {
                let seconds = int_at(action, "seconds").unwrap_or(0);
                if !(0..=grace).contains(&seconds) {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&path, &json!(seconds), &detail);
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required(action, "path", path, errors);
    port(action, path, errors);
    checks::supported_text(str_at(action, "scheme"), &["HTTP", "HTTPS"], &path.child("scheme"), errors);
    for header in list_at(action, "httpHeaders") {
        let name = str_at(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid_str(&path.child("httpHeaders"), name, detail);
        }
    }
}

/// A port by number or by name.
fn port(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("port");
    match field(action, "port") {
        Some(Value::String(name)) => checks::text(errors, &path, name, names::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            checks::number(errors, &path, number, names::port_number(number));
        }
    }
}
