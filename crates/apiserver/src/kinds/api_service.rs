//! apiregistration.k8s.io/v1 APIService.

use serde_json::{Value, json};
use shoal_objects::{Errors, Path, meta, names};

use super::access::{bool_at, existing_mut, field, int_at, is_set, part, set, set_default, str_at};
use super::{NameRule, Rules, checks, net};

/// What the condition of an APIService without a Service says.
pub const LOCAL: &str = "Local APIServices are always available";

/// The rules of APIService.
pub const RULES: Rules = Rules {
    default: |service| {
        if let Some(reference) = existing_mut(service, "spec").and_then(|spec| existing_mut(spec, "service"))
        {
            set_default(reference, "port", 443);
        }
    },
    prepare_create: |service| {
        if field(part(service, "spec"), "service").is_none() {
            let since = part(part(service, "metadata"), "creationTimestamp").clone();
            let condition = json!({
                "type": "Available", "status": "True", "reason": "Local", "message": LOCAL, "lastTransitionTime": since,
            });
            set(service, "status", json!({"conditions": [condition]}));
        }
    },
    validate,
    name: NameRule::PathSegment,
    ..Rules::NONE
};

fn validate(service: &Value, errors: &mut Errors) {
    let spec = field(service, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    let (group, version) = (str_at(spec, "group"), str_at(spec, "version"));
    let required = format!("{version}.{group}");
    if meta::name(service) != required {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
        errors.invalid_str(&Path::new("metadata").child("name"), meta::name(service), &detail);
    }
    if group.is_empty() && version != "v1" {
        errors.required(&path.child("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        let found = names::dns1123_subdomain(group);
        if !found.is_empty() {
            errors.invalid_str(&path.child("group"), group, &found.join(","));
        }
    }
    let found = names::dns1035_label(version);
    if !found.is_empty() {
        errors.invalid_str(&path.child("version"), version, &found.join(","));
    }
    for (name, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let value = int_at(spec, name).unwrap_or_default();
        if value <= 0 || value > max {
            let detail = format!("must be positive and less than {max}");
            errors.invalid(&path.child(name), &value.into(), &detail);
        }
    }
    let insecure = bool_at(spec, "insecureSkipTLSVerify");
    match field(spec, "service") {
        None => {
            if is_set(spec, "caBundle") {
                let detail = "local APIServices may not have a caBundle";
                errors.invalid_str(&path.child("caBundle"), "<redacted>", detail);
            }
            if insecure {
                let detail = "local APIServices may not have insecureSkipTLSVerify";
                errors.invalid(&path.child("insecureSkipTLSVerify"), &Value::Bool(true), detail);
            }
        }
        Some(reference) => {
            let path = path.child("service");
            checks::required(reference, "namespace", &path, errors);
            checks::required(reference, "name", &path, errors);
            if let Some(port) = int_at(reference, "port") {
                net::port_number(errors, &path.child("port"), port);
            }
        }
    }
    if insecure && is_set(spec, "caBundle") {
        let detail = "may not be true if caBundle is present";
        errors.invalid(&path.child("insecureSkipTLSVerify"), &Value::Bool(true), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn the_name_says_what_is_served() {
        let mut service = json!({"metadata": {"name": "v1.g.test"}, "spec": {
            "group": "g.test", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "n", "name": "s"},
        }});
        (RULES.default)(&mut service);
        assert_eq!(service["spec"]["service"]["port"], 443);
        assert!(causes(|e| validate(&service, e)).is_empty());
        let bad = json!({"metadata": {"name": "x"}, "spec": {"group": "g.test", "version": "v1"}});
        assert_eq!(
            causes(|e| validate(&bad, e)),
            [
                "metadata.name FieldValueInvalid",
                "spec.groupPriorityMinimum FieldValueInvalid",
                "spec.versionPriority FieldValueInvalid"
            ]
        );
    }
}
