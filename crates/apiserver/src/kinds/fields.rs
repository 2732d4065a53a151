//! Field selectors: which fields of a kind can be selected by, and what they hold.

use shoal_objects::Value;

use super::access::{at, field, list_at, str_at};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
    NAMESPACE,
    NAME,
];

const EVENTS_GROUP_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
    NAMESPACE,
    NAME,
];

/// The fields a list or watch of this resource can be narrowed by.
pub fn supported(group: &str, resource: &str) -> &'static [&'static str] {
    special(group, resource).unwrap_or(&[NAME, NAMESPACE])
}

/// Kinds with more (or less) than the name and the namespace.
fn special(group: &str, resource: &str) -> Option<&'static [&'static str]> {
    Some(match (group, resource) {
        ("", "pods") => &[
            NAME,
            NAMESPACE,
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => EVENT_FIELDS,
        ("events.k8s.io", "events") => EVENTS_GROUP_FIELDS,
        ("", "nodes") => &[NAME, "spec.unschedulable"],
        ("", "namespaces") => &["status.phase", NAME],
        ("", "secrets") => &["type", NAMESPACE, NAME],
        ("", "services") => &[NAMESPACE, NAME, "spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &[NAME, NAMESPACE, "status.replicas"],
        ("batch", "jobs") => &[NAME, NAMESPACE, "status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &[NAME, "spec.signerName"],
        _ => return None,
    })
}

/// What the server says of a field that cannot be selected by.
pub fn unsupported_message(group: &str, resource: &str, field: &str) -> String {
    if special(group, resource).is_some() {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}

/// What the field holds in an object as it is stored, as text; `""` when it holds nothing.
pub fn value(obj: &Value, name: &str) -> String {
    match name {
        "spec.host" => text(at(obj, &["spec", "nodeName"])),
        "spec.hostNetwork" | "spec.unschedulable" => with_zero(obj, name, "false"),
        "status.replicas" => with_zero(obj, name, "0"),
        "status.successful" => text(at(obj, &["status", "succeeded"]).or(Some(&Value::from(0)))),
        "status.podIPs" => {
            let ips = field(obj, "status").map(|status| list_at(status, "podIPs")).unwrap_or_default();
            ips.iter().map(|ip| str_at(ip, "ip")).collect::<Vec<_>>().join(",")
        }
        "source" => {
            let component = text(at(obj, &["source", "component"]));
            if component.is_empty() { text(field(obj, "reportingComponent")) } else { component }
        }
        // Events are stored as core/v1 has them.
        "reportingController" => text(field(obj, "reportingComponent")),
        _ => match name.strip_prefix("regarding.") {
            Some(part) => text(at(obj, &["involvedObject", part])),
            None => text(by_dots(obj, name)),
        },
    }
}

fn with_zero(obj: &Value, name: &str, zero: &str) -> String {
    by_dots(obj, name).map_or_else(|| zero.to_owned(), |v| text(Some(v)))
}

fn by_dots<'a>(obj: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(obj, field)
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_can_be_selected_by_where_and_how_they_run() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"nodeName": "a", "restartPolicy": "Never"},
            "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]},
        });
        let read = |name: &str| value(&pod, name);
        assert_eq!(read("spec.nodeName"), "a");
        assert_eq!(read("spec.host"), "a");
        assert_eq!(read("spec.hostNetwork"), "false");
        assert_eq!(read("status.podIPs"), "1.2.3.4,::1");
        assert_eq!(read("status.podIP"), "");
        for name in supported("", "pods") {
            read(name);
        }
    }

    #[test]
    fn numbers_and_switches_have_a_zero() {
        assert_eq!(value(&json!({}), "status.successful"), "0");
        assert_eq!(value(&json!({"status": {"succeeded": 2}}), "status.successful"), "2");
        assert_eq!(value(&json!({}), "spec.unschedulable"), "false");
        assert_eq!(value(&json!({"spec": {"unschedulable": true}}), "spec.unschedulable"), "true");
        assert_eq!(value(&json!({}), "status.replicas"), "0");
    }

    #[test]
    fn events_answer_to_the_names_of_both_groups() {
        let event = json!({"source": {}, "reportingComponent": "c", "involvedObject": {"kind": "Pod"}});
        assert_eq!(value(&event, "source"), "c");
        assert_eq!(value(&event, "reportingController"), "c");
        assert_eq!(value(&event, "regarding.kind"), "Pod");
        assert_eq!(value(&event, "involvedObject.kind"), "Pod");
    }

    #[test]
    fn unsupported_fields_are_named() {
        assert_eq!(
            unsupported_message("", "pods", "spec.containers"),
            "field label not supported: spec.containers"
        );
        assert_eq!(
            unsupported_message("", "configmaps", "data.k"),
            "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert!(!supported("", "configmaps").contains(&"data.k"));
        assert!(supported("", "secrets").contains(&"type"));
    }
}
