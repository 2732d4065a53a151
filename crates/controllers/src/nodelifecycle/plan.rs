//! What a node's conditions say, and which taints follow from them.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The node says that it cannot run pods.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The node says nothing any more.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

const NO_SCHEDULE: &str = "NoSchedule";
/// Pods that do not tolerate it are evicted.
pub const NO_EXECUTE: &str = "NoExecute";

/// Taints that this controller sets and removes, all with NoSchedule.
const MANAGED: [&str; 7] = [
    NOT_READY,
    UNREACHABLE,
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];

/// Conditions that only the node can tell: without it they are not known.
const TOLD_BY_NODE: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Whether the node can run pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It says so.
    Ready,
    /// It says that it cannot, or has not said anything yet.
    NotReady,
    /// It has stopped saying anything.
    Unreachable,
}

/// What the conditions say.
pub fn health(node: &Node) -> Health {
    match condition(node, "Ready").map(|condition| condition.status.as_str()) {
        Some("True") => Health::Ready,
        Some("Unknown") => Health::Unreachable,
        _ => Health::NotReady,
    }
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// The conditions of a node that has been silent for too long. Nothing, if they say so already.
pub fn silent(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let mut conditions = node.status.as_ref()?.conditions.clone().unwrap_or_default();
    let mut changed = false;
    for type_ in TOLD_BY_NODE {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(known) if known.status == "Unknown" => {}
            Some(known) => {
                changed = true;
                known.status = "Unknown".to_owned();
                known.reason = Some("NodeStatusUnknown".to_owned());
                known.message = Some("Kubelet stopped posting node status.".to_owned());
                known.last_transition_time = Some(Time(now));
            }
            None => {
                changed = true;
                conditions.push(NodeCondition {
                    type_: type_.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(Time(now)),
                });
            }
        }
    }
    changed.then_some(conditions)
}

/// The taints that a node should have, others' left alone. `evict`: whether its pods may be driven away if it is not ready;
/// nothing is said while that is not decided.
pub fn taints(node: &Node, evict: Option<bool>, now: Timestamp) -> Vec<Taint> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = no_schedule(node).into_iter().map(|key| (key, NO_SCHEDULE)).collect();
    let reason = match health(node) {
        Health::Ready => None,
        Health::NotReady => Some(NOT_READY),
        Health::Unreachable => Some(UNREACHABLE),
    };
    let executes =
        |taint: &Taint| taint.effect == NO_EXECUTE && matches!(taint.key.as_str(), NOT_READY | UNREACHABLE);
    match (reason, evict) {
        (Some(reason), Some(true)) => wanted.push((reason, NO_EXECUTE)),
        // Whoever is being evicted goes on being evicted, for the reason of the day.
        (Some(reason), None) if present.iter().any(executes) => wanted.push((reason, NO_EXECUTE)),
        _ => {}
    }
    let is_ours = |taint: &Taint| {
        executes(taint) || (taint.effect == NO_SCHEDULE && MANAGED.contains(&taint.key.as_str()))
    };
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut taints: Vec<Taint> =
        present.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            taints.push(Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                value: None,
                time_added: Some(Time(now)),
            });
        }
    }
    taints
}

fn no_schedule(node: &Node) -> Vec<&'static str> {
    let is = |type_: &str, status: &str| condition(node, type_).is_some_and(|found| found.status == status);
    let mut keys = Vec::new();
    let mut add = |wanted: bool, key| {
        if wanted {
            keys.push(key);
        }
    };
    add(is("Ready", "False"), NOT_READY);
    add(is("Ready", "Unknown"), UNREACHABLE);
    add(is("MemoryPressure", "True"), "node.kubernetes.io/memory-pressure");
    add(is("DiskPressure", "True"), "node.kubernetes.io/disk-pressure");
    add(is("NetworkUnavailable", "True"), "node.kubernetes.io/network-unavailable");
    add(is("PIDPressure", "True"), "node.kubernetes.io/pid-pressure");
    let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    add(closed, "node.kubernetes.io/unschedulable");
    keys
}

/// Nodes of one zone share their fate: region and zone, as labels tell.
pub fn zone(node: &Node) -> String {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let region = label("topology.kubernetes.io/region").unwrap_or_default();
    let zone = label("topology.kubernetes.io/zone").unwrap_or_default();
    format!("{region}:{zone}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: Value, conditions: Value) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn ready(status: &str) -> Value {
        json!([{"type": "Ready", "status": status}])
    }

    fn shown(taints: &[Taint]) -> Vec<String> {
        taints
            .iter()
            .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
            .collect()
    }

    #[test]
    fn taints_follow_conditions_and_leave_those_of_others_alone() {
        let own = json!({"taints": [{"key": "mine", "effect": "NoSchedule"}]});
        let now = Timestamp::from_second(7).unwrap();
        let of = |node: &Node, evict| shown(&taints(node, evict, now));
        assert_eq!(of(&node(own.clone(), ready("True")), Some(true)), ["mine:NoSchedule"]);
        assert_eq!(
            of(&node(own.clone(), ready("Unknown")), Some(true)),
            ["mine:NoSchedule", "unreachable:NoSchedule", "unreachable:NoExecute"]
        );
        assert_eq!(of(&node(own, ready("False")), None), ["mine:NoSchedule", "not-ready:NoSchedule"]);
        let closed = json!({"unschedulable": true});
        assert_eq!(of(&node(closed, ready("True")), None), ["unschedulable:NoSchedule"]);
    }

    #[test]
    fn taints_that_are_there_keep_their_time() {
        let spec = json!({"taints": [{"key": NOT_READY, "effect": "NoExecute", "timeAdded": "2024-01-01T00:00:00Z"}]});
        let stays = taints(&node(spec.clone(), ready("False")), None, Timestamp::from_second(7).unwrap());
        assert_eq!(shown(&stays), ["not-ready:NoExecute", "not-ready:NoSchedule"]);
        assert_ne!(stays[0].time_added.as_ref().unwrap().0.as_second(), 7);
        let back = taints(&node(spec, ready("True")), None, Timestamp::from_second(7).unwrap());
        assert!(back.is_empty());
    }

    #[test]
    fn a_silent_node_is_unknown_once() {
        let now = Timestamp::from_second(7).unwrap();
        let mut node = node(json!({}), ready("True"));
        let told = silent(&node, now).unwrap();
        assert_eq!(told.len(), 4);
        assert_eq!(told[0].reason.as_deref(), Some("NodeStatusUnknown"));
        assert_eq!(told[1].reason.as_deref(), Some("NodeStatusNeverUpdated"));
        node.status.as_mut().unwrap().conditions = Some(told);
        assert_eq!(silent(&node, now), None);
        assert_eq!(health(&node), Health::Unreachable);
    }
}
