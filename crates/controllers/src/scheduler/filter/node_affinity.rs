//! Node selector and node affinity.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelector;

use crate::daemonset::nodes::term_matches;
use crate::scheduler::reason::Reason;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

/// Whether the node is among those that the pod wants.
pub fn check(pod: &Shape, node: &NodeInfo) -> Option<Reason> {
    (!matches(pod, node)).then_some(Reason::NodeAffinity)
}

/// The same as a yes or no.
pub fn matches(pod: &Shape, node: &NodeInfo) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.label(key) == Some(value))
        && pod.required_nodes.as_ref().is_none_or(|selector| selects(selector, node))
}

/// Whether one of the terms means the node.
pub fn selects(selector: &NodeSelector, node: &NodeInfo) -> bool {
    let Some(node) = &node.node else { return false };
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// The only nodes that can be meant, if the pod names them: so a pod of a DaemonSet costs one look.
pub fn names(pod: &Shape) -> Option<BTreeSet<&str>> {
    let terms = &pod.required_nodes.as_ref()?.node_selector_terms;
    let mut names = BTreeSet::new();
    for term in terms {
        let mut fields = term.match_fields.iter().flatten();
        let named = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
        names.extend(named.values.iter().flatten().map(String::as_str));
    }
    Some(names)
}
