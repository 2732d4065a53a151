//! How good a node is for a pod, among those where it can be: one file per view, weighed as kube-scheduler does.

pub mod allocation;
pub mod preference;
pub mod spread;

use super::cycle::Cycle;
use super::snapshot::NodeInfo;

/// Each view gives at most this.
pub const BEST: i64 = 100;

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;

/// The scores of nodes, in their order.
pub fn scores(cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
    let pod = cycle.pod;
    let mut scores: Vec<i64> = nodes
        .iter()
        .map(|node| allocation::least_allocated(pod, node) + allocation::balanced(pod, node))
        .collect();
    let mut add = |weight: i64, view: Vec<i64>| {
        for (score, more) in scores.iter_mut().zip(view) {
            *score += weight * more;
        }
    };
    if nodes.iter().any(|node| !node.taints().is_empty()) {
        add(TAINTS, preference::taints(pod, nodes));
    }
    if !pod.preferred_nodes.is_empty() {
        add(NODE_AFFINITY, preference::nodes(pod, nodes));
    }
    if cycle.spread.iter().any(|counts| !counts.constraint.hard) {
        add(SPREAD, spread::evenness(cycle, nodes));
    }
    if let Some(kin) = cycle.kin {
        add(SPREAD, spread::apart(cycle, kin, nodes));
    }
    if !cycle.affinity.liked.is_empty() {
        add(POD_AFFINITY, preference::pods(cycle, nodes));
    }
    scores
}

/// Brings the largest to [`BEST`], or with `reverse` to 0.
fn stretch(raw: Vec<i64>, reverse: bool) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or_default();
    let of = |value: i64| if most == 0 { 0 } else { value.saturating_mul(BEST) / most };
    raw.into_iter().map(|value| if reverse { BEST - of(value) } else { of(value) }).collect()
}

/// Brings the least to 0 and the largest to [`BEST`].
fn between(raw: Vec<i64>) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or_default();
    let least = raw.iter().copied().min().unwrap_or_default();
    let range = most.saturating_sub(least);
    raw.into_iter()
        .map(|value| if range == 0 { 0 } else { value.saturating_sub(least).saturating_mul(BEST) / range })
        .collect()
}
