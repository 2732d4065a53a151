//! Ingress and IngressClass.

use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{at, existing_mut, field, int_at, is_set, list_at, set_default, str_at};
use super::{Rules, checks, net};

/// The rules of Ingress.
pub const RULES: Rules = Rules { validate, validate_status, ..Rules::NONE };

/// The rules of IngressClass.
pub const CLASS_RULES: Rules = Rules {
    default: |class| {
        if let Some(parameters) =
            existing_mut(class, "spec").and_then(|spec| existing_mut(spec, "parameters"))
        {
            set_default(parameters, "scope", "Cluster");
        }
    },
    validate: validate_class,
    validate_update: |new, old, errors| {
        let none = Value::Null;
        let (new, old) = (field(new, "spec").unwrap_or(&none), field(old, "spec").unwrap_or(&none));
        checks::immutable(new, old, "controller", &Path::new("spec"), errors);
    },
    ..Rules::NONE
};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const MAX_CONTROLLER: usize = 250;

fn validate(ingress: &Value, errors: &mut Errors) {
    let spec = field(ingress, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    if meta::annotation(ingress, CLASS_ANNOTATION).is_some_and(|class| !class.is_empty())
        && is_set(spec, "ingressClassName")
    {
        let metadata = Path::new("metadata");
        let annotations = metadata.child("annotations");
        let class = meta::annotation(ingress, CLASS_ANNOTATION).unwrap_or_default();
        let detail = "can not be set when the class field is also set";
        errors.invalid_str(&annotations.child(CLASS_ANNOTATION), class, detail);
    }
    if !is_set(spec, "rules") && field(spec, "defaultBackend").is_none() {
        errors.invalid(&path, spec, "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(backend) = field(spec, "defaultBackend") {
        validate_backend(backend, &path.child("defaultBackend"), errors);
    }
    let rules = path.child("rules");
    for (i, rule) in list_at(spec, "rules").iter().enumerate() {
        validate_rule(rule, &rules.index(i), errors);
    }
    let tls = path.child("tls");
    for (i, entry) in list_at(spec, "tls").iter().enumerate() {
        let entry_path = tls.index(i);
        let hosts = entry_path.child("hosts");
        for (j, host) in list_at(entry, "hosts").iter().enumerate() {
            validate_host(host.as_str().unwrap_or_default(), &hosts.index(j), errors);
        }
        checks::optional_text(entry, "secretName", &entry_path, errors, names::dns1123_subdomain);
    }
    if field(spec, "ingressClassName").is_some() {
        let class = str_at(spec, "ingressClassName");
        checks::text(errors, &path.child("ingressClassName"), class, names::dns1123_subdomain(class));
    }
}

fn validate_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    match host.strip_prefix("*.") {
        Some(rest) if !names::dns1123_subdomain(rest).is_empty() => {
            let detail = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
                          which must consist of lower case alphanumeric characters, '-' or '.' and end with an \
                          alphanumeric character (e.g. '*.example.com', regex used for validation is \
                          '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            errors.invalid_str(path, host, detail);
        }
        Some(_) => {}
        None => checks::text(errors, path, host, names::dns1123_subdomain(host)),
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let host = str_at(rule, "host");
    if !host.is_empty() {
        if names::parse_ip(host).is_some() {
            errors.invalid_str(&path.child("host"), host, "must be a DNS name, not an IP address");
        } else {
            validate_host(host, &path.child("host"), errors);
        }
    }
    let Some(http) = field(rule, "http") else { return };
    let http_path = path.child("http");
    let paths = http_path.child("paths");
    if !is_set(http, "paths") {
        errors.required(&paths, "");
    }
    for (i, entry) in list_at(http, "paths").iter().enumerate() {
        let path = paths.index(i);
        validate_path(entry, &path, errors);
        let backend = field(entry, "backend").unwrap_or(&Value::Null);
        validate_backend(backend, &path.child("backend"), errors);
    }
}

fn validate_path(entry: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (kind, value) = (str_at(entry, "pathType"), str_at(entry, "path"));
    let value_path = path.child("path");
    match kind {
        "" => errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                errors.invalid_str(&value_path, value, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|bad| value.contains(**bad)) {
                errors.invalid_str(&value_path, value, &format!("must not contain '{bad}'"));
            }
            for bad in ["/..", "/."].iter().filter(|bad| value.ends_with(**bad)) {
                errors.invalid_str(&value_path, value, &format!("cannot end with '{bad}'"));
            }
        }
        "ImplementationSpecific" => {
            if !value.is_empty() && !value.starts_with('/') {
                errors.invalid_str(&value_path, value, "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.child("pathType"), other, &PATH_TYPES),
    }
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (field(backend, "service"), field(backend, "resource")) {
        (Some(_), Some(_)) => errors.invalid_str(path, "", "cannot set both resource and service backends"),
        (None, None) => errors.invalid_str(path, "", "resource or service backend is required"),
        (None, Some(resource)) => {
            let path = path.child("resource");
            for name in ["kind", "name"] {
                checks::required(resource, name, &path, errors);
            }
        }
        (Some(service), None) => {
            let path = path.child("service");
            checks::required_text(service, "name", &path, errors, names::dns1035_label);
            let port = field(service, "port").unwrap_or(&Value::Null);
            let port_path = path.child("port");
            match (is_set(port, "name"), is_set(port, "number")) {
                (true, true) => errors.invalid_str(&path, "", "cannot set both port name & port number"),
                (false, false) => errors.required(&path, "port name or number is required"),
                (true, false) => {
                    let name = str_at(port, "name");
                    checks::text(errors, &port_path.child("name"), name, names::port_name(name));
                }
                (false, true) => {
                    let number = int_at(port, "number").unwrap_or_default();
                    net::port_number(errors, &port_path.child("number"), number);
                }
            }
        }
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let balancer = at(new, &["status", "loadBalancer"]).unwrap_or(&Value::Null);
    let status = Path::new("status");
    let path = status.child("loadBalancer");
    let list = path.child("ingress");
    for (i, ingress) in list_at(balancer, "ingress").iter().enumerate() {
        let path = list.index(i);
        if is_set(ingress, "ip") {
            net::ip(errors, &path.child("ip"), str_at(ingress, "ip"));
        }
        checks::optional_text(ingress, "hostname", &path, errors, names::dns1123_subdomain);
    }
}

fn validate_class(class: &Value, errors: &mut Errors) {
    let spec = field(class, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    let controller = str_at(spec, "controller");
    if controller.is_empty() {
        errors.required(&path.child("controller"), "");
    } else if controller.len() > MAX_CONTROLLER {
        errors.too_long(&path.child("controller"), MAX_CONTROLLER);
    } else {
        let (domain, rest) = controller.split_once('/').unwrap_or((controller, ""));
        if rest.is_empty() || !names::dns1123_subdomain(domain).is_empty() {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid_str(&path.child("controller"), controller, detail);
        }
    }
    let Some(parameters) = field(spec, "parameters") else { return };
    let path = path.child("parameters");
    for name in ["kind", "name"] {
        checks::required(parameters, name, &path, errors);
    }
    checks::optional_text(parameters, "apiGroup", &path, errors, names::dns1123_subdomain);
    match (str_at(parameters, "scope"), is_set(parameters, "namespace")) {
        ("", _) => errors.required(&path.child("scope"), ""),
        ("Namespace", false) => {
            errors.required(&path.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        ("Cluster", true) => {
            errors.forbidden(&path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        (scope, _) => {
            checks::supported_text(scope, &["Cluster", "Namespace"], &path.child("scope"), errors);
        }
    }
    checks::optional_text(parameters, "namespace", &path, errors, names::dns1123_label);
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn an_ingress_leads_somewhere() {
        assert_eq!(causes(|e| validate(&json!({"spec": {}}), e)), ["spec FieldValueInvalid"]);
        let good = json!({"spec": {"rules": [{"host": "*.a.test", "http": {"paths": [{
            "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}},
        }]}}]}});
        assert!(causes(|e| validate(&good, e)).is_empty());
        let bad = json!({"spec": {"rules": [{"host": "10.0.0.1", "http": {"paths": [
            {"path": "x", "pathType": "Exact", "backend": {}},
            {"path": "/", "backend": {"service": {"name": "s", "port": {}}}},
        ]}}]}});
        assert_eq!(
            causes(|e| validate(&bad, e)),
            [
                "spec.rules[0].host FieldValueInvalid",
                "spec.rules[0].http.paths[0].path FieldValueInvalid",
                "spec.rules[0].http.paths[0].backend FieldValueInvalid",
                "spec.rules[0].http.paths[1].pathType FieldValueRequired",
                "spec.rules[0].http.paths[1].backend.service FieldValueRequired",
            ]
        );
    }

    #[test]
    fn a_class_has_a_controller_that_stays() {
        let mut class = json!({"spec": {"controller": "a.test/c", "parameters": {"kind": "K", "name": "n"}}});
        (CLASS_RULES.default)(&mut class);
        assert_eq!(class["spec"]["parameters"]["scope"], "Cluster");
        assert!(causes(|e| validate_class(&class, e)).is_empty());
        let other = json!({"spec": {"controller": "nopath"}});
        assert_eq!(causes(|e| validate_class(&other, e)), ["spec.controller FieldValueInvalid"]);
        assert_eq!(
            causes(|e| (CLASS_RULES.validate_update)(&other, &class, e)),
            ["spec.controller FieldValueInvalid"]
        );
    }
}
