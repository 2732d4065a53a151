//! Security contexts of pods and containers.

use serde_json::json;
use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{at, bool_at, field, int_at, list_at, part, str_at};
use crate::kinds::checks;

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Checks `spec.securityContext` and the host namespaces of a pod. Templates may leave host ports to the pod.
pub fn validate_pod_security(spec: &Value, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let context = part(spec, "securityContext");
    if bool_at(spec, "hostNetwork") {
        validate_host_ports(spec, is_pod, path, errors);
    }
    let path = path.child("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        checks::between(context, name, 0, i64::from(i32::MAX), &path, errors);
    }
    for (i, group) in list_at(context, "supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or(0);
        let messages = names::in_range(group, 0, i64::from(i32::MAX));
        checks::number(errors, &path.child("supplementalGroups").index(i), group, messages);
    }
    if bool_at(spec, "shareProcessNamespace") && bool_at(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), &json!(true), detail);
    }
    validate_sysctls(context, &path.child("sysctls"), errors);
    checks::optional_one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, errors);
    checks::optional_one_of(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, errors);
    checks::optional_one_of(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], &path, errors);
    validate_profiles(context, &path, errors);
}

fn validate_host_ports(spec: &Value, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("containers");
    for (i, container) in list_at(spec, "containers").iter().enumerate() {
        for (j, port) in list_at(container, "ports").iter().enumerate() {
            let host = int_at(port, "hostPort").unwrap_or(0);
            if (is_pod || host != 0) && host != int_at(port, "containerPort").unwrap_or(0) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(
                    &path.index(i).child("ports").index(j).child("hostPort"),
                    &json!(host),
                    detail,
                );
            }
        }
    }
}

fn validate_sysctls(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let sysctls = list_at(context, "sysctls");
    for (i, sysctl) in sysctls.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("name");
        let name = str_at(sysctl, "name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl_name(name) {
            let detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid_str(&path, name, detail);
        } else if sysctls[..i].iter().any(|other| str_at(other, "name") == name) {
            errors.duplicate(&path, &json!(name));
        }
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.first().copied().is_some_and(alphanumeric)
                && bytes.last().copied().is_some_and(alphanumeric)
                && bytes.iter().all(|b| alphanumeric(*b) || matches!(b, b'-' | b'_'))
        })
}

/// Checks the `securityContext` of a container.
pub fn validate_container_security(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["runAsUser", "runAsGroup"] {
        checks::between(context, name, 0, i64::from(i32::MAX), path, errors);
    }
    checks::optional_one_of(context, "procMount", &["Default", "Unmasked"], path, errors);
    validate_profiles(context, path, errors);
    if field(context, "allowPrivilegeEscalation").and_then(Value::as_bool) == Some(false) {
        if bool_at(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path, context, detail);
        }
        let adds = at(context, &["capabilities", "add"]).and_then(Value::as_array);
        if adds.is_some_and(|adds| adds.iter().any(|c| c == "CAP_SYS_ADMIN")) {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path, context, detail);
        }
    }
}

fn validate_profiles(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, word) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let Some(profile) = field(context, name) else { continue };
        let path = path.child(name);
        let local_path = path.child("localhostProfile");
        let local = field(profile, "localhostProfile").and_then(Value::as_str);
        match (str_at(profile, "type"), local) {
            ("", _) => errors.required(&path.child("type"), &format!("type is required when {name} is set")),
            ("Localhost", None | Some("")) => {
                errors.required(&local_path, &format!("must be set when {word} type is Localhost"));
            }
            ("Localhost", Some(local)) => checks::local_descending_path(local, &local_path, errors),
            (given, local) => {
                if let Some(local) = local {
                    let detail = format!("can only be set when {word} type is Localhost");
                    errors.invalid_str(&local_path, local, &detail);
                }
                checks::supported_text(given, &PROFILE_TYPES, &path.child("type"), errors);
            }
        }
    }
}
