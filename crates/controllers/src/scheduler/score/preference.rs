//! What pods would rather have, without insisting.

use super::{BEST, between, stretch};
use crate::daemonset::nodes::term_matches;
use crate::scheduler::cycle::Cycle;
use crate::scheduler::filter::taints::untolerated;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

/// The fewer `PreferNoSchedule` taints that the pod does not tolerate, the better.
pub fn taints(pod: &Shape, nodes: &[&NodeInfo]) -> Vec<i64> {
    let count = |node: &&NodeInfo| untolerated(pod, node, &["PreferNoSchedule"]).count() as i64;
    let counts: Vec<i64> = nodes.iter().map(count).collect();
    if counts.iter().all(|count| *count == 0) { vec![BEST; nodes.len()] } else { stretch(counts, true) }
}

/// The more weight of preferred node affinity, the better.
pub fn nodes(pod: &Shape, nodes: &[&NodeInfo]) -> Vec<i64> {
    let weight = |node: &&NodeInfo| {
        let Some(node) = &node.node else { return 0 };
        let matching = pod.preferred_nodes.iter().filter(|term| term_matches(&term.preference, node));
        matching.map(|term| i64::from(term.weight)).sum()
    };
    stretch(nodes.iter().map(weight).collect(), false)
}

/// The more pods that are liked and the fewer that are not, the better.
pub fn pods(cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
    between(nodes.iter().map(|node| cycle.affinity.liking(node)).collect())
}
