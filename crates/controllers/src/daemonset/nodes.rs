//! Which nodes a DaemonSet's pods belong on.

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint,
    Toleration,
};

/// Taints that every daemon tolerates: it is there for the node, whatever the node's state.
const ALWAYS: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Whether a pod should be started on the node, and whether one that runs there may stay.
pub fn belongs(spec: &PodSpec, node: &Node) -> (bool, bool) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if spec.node_name.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != name)
        || !selects(spec, node)
    {
        return (false, false);
    }
    let tolerations = tolerations(spec);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let refused = |effects: &[&str]| {
        let mut bad = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
        bad.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    };
    (!refused(&["NoSchedule", "NoExecute"]), !refused(&["NoExecute"]))
}

fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    let by_labels = spec.node_selector.as_ref().is_none_or(|selector| selector.iter().all(has));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels
        && required
            .is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// Whether a node matches a term of an affinity. A term that says nothing matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let field = |key: &str| node.metadata.name.as_deref().filter(|_| key == "metadata.name");
    expressions.iter().all(|requirement| holds(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| holds(requirement, field(&requirement.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = value.and_then(number).zip(values.first().and_then(|bound| number(bound)));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared.is_some_and(|(value, bound)| value > bound),
        "Lt" => compared.is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether a toleration covers a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
    let key = toleration.key.as_deref().filter(|key| !key.is_empty());
    effect.is_none_or(|effect| effect == taint.effect)
        && match toleration.operator.as_deref() {
            Some("Exists") => key.is_none_or(|key| key == taint.key),
            _ => {
                key == Some(taint.key.as_str())
                    && toleration.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default()
            }
        }
}

/// The pod's own tolerations, and those that all daemons have.
pub fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let host = spec
        .host_network
        .unwrap_or_default()
        .then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in ALWAYS.iter().copied().chain(host) {
        let added = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&added) {
            all.push(added);
        }
    }
    all
}

/// Ties a pod to one node by affinity, so that the scheduler places it there and nowhere else.
pub fn pin(spec: &mut PodSpec, node: &str) {
    let term = NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let nodes = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    nodes.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}
