//! Nodes, namespaces and what holds for the whole cluster.

use std::collections::BTreeSet;

use serde_json::Value;
use shoal_objects::{Timestamp, conditions, meta};

use super::Column;
use super::cells::{AGE, NAME, NONE, flag, number, or, text, text_or};
use super::duration::spell;
use crate::kinds::access::{at, bool_at, field, list_at, str_at};

const UNKNOWN: &str = "<unknown>";

/// Columns of nodes.
pub static NODE: &[Column] = &[
    NAME,
    Column::text("Status", "Whether the node is ready and takes pods.", |o, _| node_status(o).into()),
    Column::text("Roles", "The node's roles.", node_roles),
    AGE,
    Column::text("Version", "The kubelet's version.", |o, _| {
        text(o, &["status", "nodeInfo", "kubeletVersion"])
    }),
    Column::text("Internal-IP", "The address within the cluster.", |o, _| node_address(o, "InternalIP"))
        .wide(),
    Column::text("External-IP", "The address from outside the cluster.", |o, _| {
        node_address(o, "ExternalIP")
    })
    .wide(),
    Column::text("OS-Image", "The operating system.", |o, _| {
        text_or(o, &["status", "nodeInfo", "osImage"], UNKNOWN)
    })
    .wide(),
    Column::text("Kernel-Version", "The kernel's version.", |o, _| {
        text_or(o, &["status", "nodeInfo", "kernelVersion"], UNKNOWN)
    })
    .wide(),
    Column::text("Container-Runtime", "The container runtime and its version.", |o, _| {
        text_or(o, &["status", "nodeInfo", "containerRuntimeVersion"], UNKNOWN)
    })
    .wide(),
];

/// Columns of namespaces.
pub static NAMESPACE: &[Column] = &[
    NAME,
    Column::text("Status", "Whether the namespace is going away.", |o, _| text(o, &["status", "phase"])),
    AGE,
];

/// Columns of leases.
pub static LEASE: &[Column] =
    &[NAME, Column::text("Holder", "Who holds the lease.", |o, _| text(o, &["spec", "holderIdentity"])), AGE];

/// Columns of runtime classes.
pub static RUNTIME_CLASS: &[Column] = &[
    NAME,
    Column::text("Handler", "The runtime's configuration on nodes.", |o, _| text(o, &["handler"])),
    AGE,
];

/// Columns of priority classes.
pub static PRIORITY_CLASS: &[Column] = &[
    NAME,
    Column::number("Value", "The priority of pods of the class.", |o, _| number(o, &["value"]).into()),
    Column::boolean("Global-Default", "Whether pods without a class are of this one.", |o, _| {
        flag(o, &["globalDefault"], false)
    }),
    AGE,
    Column::text("PreemptionPolicy", "Whether pods of the class displace others.", |o, _| {
        text(o, &["preemptionPolicy"])
    }),
];

/// Columns of API services.
pub static API_SERVICE: &[Column] = &[
    NAME,
    Column::text("Service", "The service that serves the group and version.", |o, _| {
        at(o, &["spec", "service"]).map_or("Local".into(), |service| {
            format!("{}/{}", str_at(service, "namespace"), str_at(service, "name")).into()
        })
    }),
    Column::text("Available", "Whether it answers.", |o, _| {
        let Some(condition) = conditions::condition(o, "Available") else { return "Unknown".into() };
        match str_at(condition, "status") {
            "True" => "True".into(),
            status => format!("{status} ({})", str_at(condition, "reason")).into(),
        }
    }),
    AGE,
];

/// Columns of certificate signing requests.
pub static SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    Column::text("SignerName", "Who is asked to sign.", |o, _| text_or(o, &["spec", "signerName"], NONE)),
    Column::text("Requestor", "Who asked.", |o, _| text(o, &["spec", "username"])),
    Column::text("RequestedDuration", "How long the certificate should last.", |o, _| {
        let seconds = at(o, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
        seconds.map_or(NONE.into(), |seconds| spell(seconds).into())
    }),
    Column::text("Condition", "What became of the request.", |o, _| signing_status(o).into()),
];

fn node_status(node: &Value) -> String {
    let mut shown = match conditions::condition_status(node, "Ready") {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if field(node, "spec").is_some_and(|spec| bool_at(spec, "unschedulable")) {
        shown.push_str(",SchedulingDisabled");
    }
    shown
}

/// Roles are told by labels: in the key, or the older way in the value.
fn node_roles(node: &Value, _: Timestamp) -> Value {
    let mut roles = BTreeSet::new();
    for (key, value) in meta::labels(node).into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => "",
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    or(roles.into_iter().collect::<Vec<_>>().join(","), NONE)
}

fn node_address(node: &Value, kind: &str) -> Value {
    let addresses = field(node, "status").map_or(&[][..], |status| list_at(status, "addresses"));
    addresses.iter().find(|a| str_at(a, "type") == kind).map_or(NONE.into(), |a| str_at(a, "address").into())
}

fn signing_status(request: &Value) -> String {
    let has = |kind: &str| conditions::condition(request, kind).is_some();
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let issued = !field(request, "status").map_or("", |status| str_at(status, "certificate")).is_empty();
    let (failed, issued) = (if has("Failed") { ",Failed" } else { "" }, if issued { ",Issued" } else { "" });
    format!("{decision}{failed}{issued}")
}
