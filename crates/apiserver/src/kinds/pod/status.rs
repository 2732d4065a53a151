//! What is wrong with a change of a pod's status.

use shoal_objects::{Errors, Path, Value, names};

use crate::kinds::access::{field, int_at, list_at, part, str_at};
use crate::kinds::checks;

/// Checks the change of a pod's status.
pub fn validate_pod_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let (status, before) = (part(new, "status"), part(old, "status"));
    checks::optional_text(status, "nominatedNodeName", &path, errors, names::dns1123_subdomain);
    if str_at(part(old, "spec"), "restartPolicy") != "Always" {
        for list in ["containerStatuses", "initContainerStatuses"] {
            stays_terminated(status, before, part(old, "spec"), list, &path, errors);
        }
    }
    for (i, ip) in list_at(status, "podIPs").iter().enumerate() {
        let ip = str_at(ip, "ip");
        checks::text(errors, &path.child("podIPs").index(i), ip, names::ip_address(ip));
    }
    for (i, condition) in list_at(status, "conditions").iter().enumerate() {
        let kind = str_at(condition, "type");
        let path = path.child("conditions");
        let path = path.index(i);
        checks::text(errors, &path.child("type"), kind, names::qualified_name(kind));
    }
}

/// A container that ended and is not to be restarted does not run again.
fn stays_terminated(
    new: &Value,
    old: &Value,
    spec: &Value,
    list: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let on_failure = str_at(spec, "restartPolicy") == "OnFailure";
    for (i, before) in list_at(old, list).iter().enumerate() {
        let Some(ended) = field(part(before, "state"), "terminated") else { continue };
        let name = str_at(before, "name");
        if (on_failure && int_at(ended, "exitCode").unwrap_or(0) != 0) || restarts_by_itself(spec, name) {
            continue;
        }
        let after = list_at(new, list).iter().find(|status| str_at(status, "name") == name);
        if after.is_some_and(|after| field(part(after, "state"), "terminated").is_none()) {
            let path = path.child(list);
            let path = path.index(i);
            errors.forbidden(&path.child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// Sidecars and containers with a restart policy or rules of their own.
fn restarts_by_itself(spec: &Value, name: &str) -> bool {
    ["containers", "initContainers"].iter().any(|list| {
        list_at(spec, list)
            .iter()
            .any(|container| str_at(container, "name") == name && field(container, "restartPolicy").is_some())
    })
}
