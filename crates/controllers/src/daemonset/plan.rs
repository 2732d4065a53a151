//! What a DaemonSet needs next: pods on nodes that lack one, none where they do not belong, and new templates rolled
//! out node by node.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use super::nodes;
use crate::deployment::resolve;
use crate::pods::{self, Availability};

/// The label that tells the pods of one template from those of another.
pub const REVISION: &str = "controller-revision-hash";
/// The label of pods that came before revisions.
pub const GENERATION: &str = "pod-template-generation";
/// The annotation of sets that it is taken from.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What was read.
pub struct View<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// The pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// All nodes.
    pub nodes: Vec<&'a Node>,
    /// The name, without the set's, of the current template's ControllerRevision.
    pub revision: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of nodes that get a pod.
    pub create: Vec<String>,
    /// Names of pods to delete.
    pub delete: Vec<String>,
    /// The status that is true now.
    pub status: DaemonSetStatus,
    /// When to look again though nothing changes.
    pub again: Option<Duration>,
}

/// What the set needs next.
pub fn plan(view: &View<'_>) -> Plan {
    let Some(spec) = view.set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else {
        return Plan::default();
    };
    let min_ready = view.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in &view.pods {
        by_node.entry(target(pod)).or_default().push(pod);
    }
    let mut plan = Plan::default();
    let mut status =
        DaemonSetStatus { observed_generation: view.set.metadata.generation, ..DaemonSetStatus::default() };
    status.collision_count = view.set.status.as_ref().and_then(|status| status.collision_count);
    let mut settled: Vec<Vec<&Pod>> = Vec::new();
    let (mut updated, mut available) = (0, 0);
    for node in &view.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut here = by_node.remove(name).unwrap_or_default();
        let (start, stay) = nodes::belongs(spec, node);
        if !start {
            status.number_misscheduled += i32::from(!here.is_empty() && !stay);
            if !stay {
                plan.remove(&here);
            } else if !here.is_empty() {
                status.number_misscheduled += 1;
            }
            continue;
        }
        status.desired_number_scheduled += 1;
        // A pod that has ended makes way for its successor.
        let ended: Vec<&Pod> = here.iter().copied().filter(|pod| pods::is_finished(pod)).collect();
        plan.remove(&ended);
        here.retain(|pod| !pods::is_finished(pod));
        here.sort_by_key(|pod| {
            (!pods::is_ready(pod), pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
        });
        if let Some(pod) = here.first() {
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pods::is_ready(pod));
            updated += i32::from(is_current(view, pod));
            match pods::availability(pod, min_ready, view.now) {
                Availability::Available => available += 1,
                Availability::In(left) => plan.again = Some(plan.again.map_or(left, |again| again.min(left))),
                Availability::Unready => {}
            }
        } else if ended.is_empty() {
            plan.create.push(name.to_owned());
        }
        settled.push(here);
    }
    // Pods of nodes that are gone.
    for (_, pods) in by_node.iter().filter(|(node, _)| !node.is_empty()) {
        plan.remove(pods);
    }
    let some = |count: i32| (count != 0).then_some(count);
    status.updated_number_scheduled = some(updated);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    if view.set.metadata.deletion_timestamp.is_some() {
        plan.create.clear();
        plan.delete.clear();
    } else {
        update(view, &settled, status.desired_number_scheduled, min_ready, &mut plan);
    }
    plan.status = status;
    plan
}

/// Replaces pods of old templates, and removes doubles.
fn update(view: &View<'_>, settled: &[Vec<&Pod>], desired: i32, min_ready: i32, plan: &mut Plan) {
    let strategy = view.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let one = IntOrString::Int(1);
    let surge = rolling
        .and_then(|rolling| rolling.max_surge.as_ref())
        .map_or(0, |value| resolve(value, desired, true));
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    let most = if surge > 0 { resolve(most, desired, true) } else { resolve(most, desired, true).max(1) };
    let serves = |pod: &Pod| {
        pods::is_active(pod) && pods::availability(pod, min_ready, view.now) == Availability::Available
    };
    let unavailable = settled.iter().filter(|pods| !pods.iter().any(|pod| serves(pod))).count();
    let mut allowed = usize::try_from(most).unwrap_or_default().saturating_sub(unavailable);
    let surging = settled.iter().filter(|pods| pods.len() > 1).count();
    let mut surge = usize::try_from(surge).unwrap_or_default().saturating_sub(surging);
    for pods in settled {
        let (current, old): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().copied().partition(|pod| is_current(view, pod));
        if old.is_empty() || on_delete {
            plan.remove(pods.get(1..).unwrap_or_default());
        } else if current.iter().any(|pod| serves(pod)) || !old.iter().any(|pod| serves(pod)) {
            // The successor serves, or the old one does not: nothing is lost.
            plan.remove(&old);
        } else if current.is_empty() && surge > 0 {
            surge -= 1;
            plan.create.extend(old.first().map(|pod| target(pod).to_owned()));
        } else if current.is_empty()
            && allowed > 0
            && old.iter().all(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            allowed -= 1;
            plan.remove(&old);
        }
    }
}

fn is_current(view: &View<'_>, pod: &Pod) -> bool {
    pod.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(REVISION))
        .is_some_and(|hash| hash == view.revision)
}

/// The node that a pod runs on or is meant for.
pub fn target(pod: &Pod) -> &str {
    let Some(spec) = pod.spec.as_ref() else { return "" };
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return node;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required
        .into_iter()
        .flat_map(|selector| &selector.node_selector_terms)
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|field| field.key == "metadata.name" && field.operator == "In")
        .and_then(|field| field.values.as_ref()?.first())
        .map(String::as_str)
        .unwrap_or_default()
}

impl Plan {
    fn remove(&mut self, pods: &[&Pod]) {
        let going = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        self.delete.extend(going.filter_map(|pod| pod.metadata.name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(extra: Value) -> DaemonSet {
        let mut spec = json!({"selector": {}, "template": {"metadata": {}, "spec": {"containers": [], "nodeSelector": {"on": "yes"}}}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "d", "generation": 1}, "spec": spec})).unwrap()
    }

    fn node(name: &str, taints: Value) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"on": "yes"}}, "spec": {"taints": taints}}),
        )
        .unwrap()
    }

    fn pod(node: &str, revision: &str, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": format!("{node}-{revision}"), "labels": {REVISION: revision}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
        }))
        .unwrap()
    }

    fn run(set: &DaemonSet, nodes: &[Node], pods: &[Pod]) -> Plan {
        plan(&View {
            set,
            pods: pods.iter().collect(),
            nodes: nodes.iter().collect(),
            revision: "2",
            now: Timestamp::from_second(1000).unwrap(),
        })
    }

    #[test]
    fn every_node_that_belongs_gets_one_pod() {
        let mut off = node("off", json!([]));
        off.metadata.labels = None;
        let nodes = [
            node("a", json!([])),
            node("b", json!([])),
            off,
            node("t", json!([{"key": "x", "effect": "NoSchedule"}])),
        ];
        let first = run(&set(json!({})), &nodes, &[pod("a", "2", true)]);
        assert_eq!(first.create, ["b"]);
        assert_eq!((first.status.desired_number_scheduled, first.status.number_ready), (2, 1));
    }

    #[test]
    fn pods_leave_nodes_that_refuse_them_but_stay_where_only_new_ones_are_refused() {
        let executes = json!([{"key": "x", "effect": "NoExecute"}]);
        let schedules = json!([{"key": "x", "effect": "NoSchedule"}]);
        let nodes = [node("a", executes), node("b", schedules)];
        let plan =
            run(&set(json!({})), &nodes, &[pod("a", "2", true), pod("b", "2", true), pod("gone", "2", true)]);
        assert_eq!(plan.delete, ["a-2", "gone-2"]);
    }

    #[test]
    fn a_cordoned_node_keeps_its_daemons() {
        let cordoned = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        assert_eq!(run(&set(json!({})), &[node("a", cordoned)], &[]).create, ["a"]);
    }

    #[test]
    fn an_update_takes_one_node_at_a_time_unless_more_may_be_unavailable() {
        let nodes: Vec<Node> = ["a", "b", "c"].map(|name| node(name, json!([]))).into();
        let old: Vec<Pod> = ["a", "b", "c"].map(|name| pod(name, "1", true)).into();
        assert_eq!(run(&set(json!({})), &nodes, &old).delete, ["a-1"]);
        let two =
            set(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}}));
        assert_eq!(run(&two, &nodes, &old).delete.len(), 2);
        let waiting = [pod("a", "2", false), pod("b", "1", true), pod("c", "1", true)];
        assert!(run(&set(json!({})), &nodes, &waiting).delete.is_empty());
        assert!(run(&set(json!({"updateStrategy": {"type": "OnDelete"}})), &nodes, &old).delete.is_empty());
    }

    #[test]
    fn a_surge_starts_the_new_pod_before_the_old_one_goes() {
        let surge = set(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}),
        );
        let nodes = [node("a", json!([])), node("b", json!([]))];
        let old = [pod("a", "1", true), pod("b", "1", true)];
        let plan = run(&surge, &nodes, &old);
        assert_eq!((plan.create, plan.delete.len()), (vec!["a".to_owned()], 0));
        let both = [pod("a", "1", true), pod("a", "2", true), pod("b", "1", true)];
        assert_eq!(run(&surge, &nodes, &both).delete, ["a-1"]);
    }
}
