//! Everything about a pod that a placement depends on. Pods of one template have one shape and share it: what holds for
//! one, holds for all.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, NodeSelector, Pod, PodAffinityTerm, PodSpec, PreferredSchedulingTerm,
    ResourceRequirements, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use serde::Serialize;
use shoal_objects::selector::LabelSelector;

use super::resources::{self, Requests};

/// A shape is forgotten when no pod has it; looked for when there are twice as many as after the last look.
const FIRST_SWEEP: usize = 1024;

/// What a placement depends on.
#[derive(Debug, Default)]
pub struct Shape {
    /// Unique in this process.
    pub id: u64,
    /// Of the pod.
    pub namespace: String,
    /// Of the pod.
    pub labels: BTreeMap<String, String>,
    /// Larger is more important.
    pub priority: i32,
    /// Whether it may take the place of others.
    pub preempts: bool,
    /// What it asks for.
    pub requests: Requests,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Nodes that it must be on.
    pub required_nodes: Option<NodeSelector>,
    /// Nodes that it would rather be on.
    pub preferred_nodes: Vec<PreferredSchedulingTerm>,
    /// Taints that it does not mind.
    pub tolerations: Vec<Toleration>,
    /// Ports of the node that it takes.
    pub ports: Vec<Port>,
    /// Pods that it must be beside.
    pub affinity: Vec<Term>,
    /// Pods that it must not be beside.
    pub anti_affinity: Vec<Term>,
    /// Pods that it would rather be beside, or not, with a weight that is negative then.
    pub preferences: Vec<(i64, Term)>,
    /// How it is spread with others of its kind.
    pub spread: Vec<Spread>,
    /// Claims for volumes that it mounts.
    pub claims: Vec<String>,
    /// The set that it is of, with its name.
    pub set: Option<(Set, String)>,
}

/// Sets of pods that are spread if they do not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Set {
    /// Of a Deployment, or alone.
    ReplicaSet,
    /// With names that stay.
    StatefulSet,
    /// The old form.
    ReplicationController,
}

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// `0.0.0.0` is all.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
}

/// Some pods, and how near.
#[derive(Clone, Debug)]
pub struct Term {
    /// Which labels; none for no pods at all.
    pub selector: Option<LabelSelector>,
    /// In these namespaces,
    pub namespaces: Vec<String>,
    /// and in those with such labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Near is: on nodes with the same value of this label.
    pub topology_key: String,
}

/// How pods are spread over the values of a node label.
#[derive(Clone, Debug)]
pub struct Spread {
    /// By how much the counts may differ.
    pub max_skew: i64,
    /// The node label.
    pub topology_key: String,
    /// Rather no placement than an uneven one.
    pub hard: bool,
    /// Which pods are counted.
    pub selector: Option<LabelSelector>,
    /// With fewer values than this, the least count is taken as zero.
    pub min_domains: i64,
    /// Whether only nodes that the pod may be on are counted (default true).
    pub honor_affinity: bool,
    /// Whether nodes with taints that the pod minds are left out (default false).
    pub honor_taints: bool,
}

impl Shape {
    /// The shape of a pod.
    pub fn of(pod: &Pod, id: u64) -> Shape {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let Some(spec) = &pod.spec else { return Shape { id, namespace, labels, ..Shape::default() } };
        let affinity = spec.affinity.clone().unwrap_or_default();
        let nodes = affinity.node_affinity.unwrap_or_default();
        let (with, without) =
            (affinity.pod_affinity.unwrap_or_default(), affinity.pod_anti_affinity.unwrap_or_default());
        let terms = |terms: Option<Vec<PodAffinityTerm>>| -> Vec<Term> {
            terms.unwrap_or_default().iter().map(|term| Term::of(term, &namespace)).collect()
        };
        let weighted = |terms: Option<Vec<WeightedPodAffinityTerm>>, sign: i64| {
            let namespace = namespace.clone();
            terms.unwrap_or_default().into_iter().map(move |term| {
                (sign * i64::from(term.weight), Term::of(&term.pod_affinity_term, &namespace))
            })
        };
        Shape {
            id,
            priority: spec.priority.unwrap_or_default(),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            requests: resources::requests(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_nodes: nodes.required_during_scheduling_ignored_during_execution,
            preferred_nodes: nodes.preferred_during_scheduling_ignored_during_execution.unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            ports: ports(spec),
            affinity: terms(with.required_during_scheduling_ignored_during_execution),
            anti_affinity: terms(without.required_during_scheduling_ignored_during_execution),
            preferences: weighted(with.preferred_during_scheduling_ignored_during_execution, 1)
                .chain(weighted(without.preferred_during_scheduling_ignored_during_execution, -1))
                .collect(),
            spread: spec.topology_spread_constraints.iter().flatten().map(Spread::of).collect(),
            claims: claims(pod, spec),
            set: set(pod),
            namespace,
            labels,
        }
    }

    /// Whether it says something about other pods, so that they must be looked at when others are placed.
    pub fn is_affine(&self) -> bool {
        !(self.affinity.is_empty() && self.anti_affinity.is_empty() && self.preferences.is_empty())
    }

    /// Whether its labels are meant.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.labels.get(key).map(String::as_str))
    }
}

impl Term {
    fn of(term: &PodAffinityTerm, namespace: &str) -> Term {
        let listed = term.namespaces.clone().unwrap_or_default();
        let namespace_selector = compile(term.namespace_selector.as_ref());
        let own = listed.is_empty() && term.namespace_selector.is_none();
        Term {
            selector: compile(term.label_selector.as_ref()),
            namespaces: if own { vec![namespace.to_owned()] } else { listed },
            namespace_selector,
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether a pod of this shape is meant. `namespaces` are the labels of all namespaces.
    pub fn matches(&self, pod: &Shape, namespaces: &HashMap<String, BTreeMap<String, String>>) -> bool {
        let Some(selector) = &self.selector else { return false };
        let by_labels = |selector: &LabelSelector| {
            let labels = namespaces.get(&pod.namespace);
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
        };
        let here = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(by_labels);
        here && pod.matches(selector)
    }
}

impl Spread {
    fn of(constraint: &TopologySpreadConstraint) -> Spread {
        Spread {
            max_skew: i64::from(constraint.max_skew).max(1),
            topology_key: constraint.topology_key.clone(),
            hard: constraint.when_unsatisfiable != "ScheduleAnyway",
            selector: compile(constraint.label_selector.as_ref()),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

/// An absent selector means nothing, an empty one everything.
pub(super) fn compile(selector: Option<&ApiSelector>) -> Option<LabelSelector> {
    let value = serde_json::to_value(selector?).ok()?;
    LabelSelector::from_object(Some(&value)).ok()
}

fn ports(spec: &PodSpec) -> Vec<Port> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let all = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    all.filter_map(|port| {
        let number = port.host_port.filter(|port| *port > 0)?;
        let text = |text: &Option<String>, usual: &str| {
            text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| usual.to_owned())
        };
        Some(Port { ip: text(&port.host_ip, "0.0.0.0"), protocol: text(&port.protocol, "TCP"), port: number })
    })
    .collect()
}

/// Names of the claims; those of ephemeral volumes are made after the pod.
fn claims(pod: &Pod, spec: &PodSpec) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
            _ => None,
        })
        .collect()
}

fn set(pod: &Pod) -> Option<(Set, String)> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let set = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => Set::ReplicaSet,
        ("apps/v1", "StatefulSet") => Set::StatefulSet,
        ("v1", "ReplicationController") => Set::ReplicationController,
        _ => return None,
    };
    Some((set, owner.name.clone()))
}

/// What makes two shapes the same, as they are written in pods.
#[derive(Serialize)]
struct Identity<'a> {
    namespace: Option<&'a str>,
    labels: Option<&'a BTreeMap<String, String>>,
    priority: Option<i32>,
    policy: Option<&'a str>,
    selector: Option<&'a BTreeMap<String, String>>,
    affinity: Option<&'a Affinity>,
    tolerations: Option<&'a [Toleration]>,
    spread: Option<&'a [TopologySpreadConstraint]>,
    overhead: Option<&'a BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
    resources: Option<&'a ResourceRequirements>,
    containers: Vec<OfContainer<'a>>,
    inits: Vec<OfContainer<'a>>,
    claims: Vec<String>,
    set: Option<(Set, String)>,
}

type OfContainer<'a> = (Option<&'a ResourceRequirements>, Option<&'a [ContainerPort]>, Option<&'a str>);

fn identity(pod: &Pod) -> Option<Vec<u8>> {
    let spec = pod.spec.as_ref()?;
    serde_json::to_vec(&Identity {
        namespace: pod.metadata.namespace.as_deref(),
        labels: pod.metadata.labels.as_ref(),
        priority: spec.priority,
        policy: spec.preemption_policy.as_deref(),
        selector: spec.node_selector.as_ref(),
        affinity: spec.affinity.as_ref(),
        tolerations: spec.tolerations.as_deref(),
        spread: spec.topology_spread_constraints.as_deref(),
        overhead: spec.overhead.as_ref(),
        resources: spec.resources.as_ref(),
        containers: parts(&spec.containers),
        inits: parts(spec.init_containers.as_deref().unwrap_or_default()),
        claims: claims(pod, spec),
        set: set(pod),
    })
    .ok()
}

fn parts(containers: &[Container]) -> Vec<OfContainer<'_>> {
    let parts = containers.iter();
    parts.map(|c| (c.resources.as_ref(), c.ports.as_deref(), c.restart_policy.as_deref())).collect()
}

/// All shapes that pods have.
#[derive(Debug, Default)]
pub struct Shapes {
    known: HashMap<Box<[u8]>, Arc<Shape>>,
    next: u64,
    sweep_at: usize,
}

impl Shapes {
    /// The shape of a pod, shared with all pods that have the same.
    pub fn of(&mut self, pod: &Pod) -> Arc<Shape> {
        let identity = identity(pod).unwrap_or_default();
        if let Some(known) = self.known.get(identity.as_slice()) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
            self.sweep_at = self.known.len() * 2;
        }
        self.next += 1;
        let shape = Arc::new(Shape::of(pod, self.next));
        self.known.insert(identity.into(), shape.clone());
        shape
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "a", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_one_template_share_a_shape() {
        let mut shapes = Shapes::default();
        let first = shapes.of(&pod("one", "1"));
        assert!(Arc::ptr_eq(&first, &shapes.of(&pod("two", "1"))));
        assert!(!Arc::ptr_eq(&first, &shapes.of(&pod("three", "2"))));
    }

    #[test]
    fn shapes_that_no_pod_has_are_forgotten() {
        let mut shapes = Shapes::default();
        let kept = shapes.of(&pod("kept", "1"));
        for cpu in 0..3 * FIRST_SWEEP {
            shapes.of(&pod("p", &format!("{cpu}m")));
        }
        assert!(shapes.known.len() <= FIRST_SWEEP + 1, "{}", shapes.known.len());
        assert!(Arc::ptr_eq(&kept, &shapes.of(&pod("kept", "1"))));
    }
}
