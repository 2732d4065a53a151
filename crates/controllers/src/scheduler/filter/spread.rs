//! Topology spread: how many pods of a kind each value of a node label has.

use std::collections::HashMap;

use super::{node_affinity, taints};
use crate::scheduler::cycle::{Cycle, Meant};
use crate::scheduler::reason::Reason;
use crate::scheduler::shape::{Shape, Spread};
use crate::scheduler::snapshot::{NodeInfo, Snapshot};

/// The counts for one constraint.
pub struct Counts<'a> {
    /// The constraint.
    pub constraint: &'a Spread,
    /// Pods by the label's value.
    pub by_value: HashMap<&'a str, i64>,
    /// The least of them.
    least: i64,
    /// 1 if the pod itself will be counted.
    own: i64,
}

impl<'a> Counts<'a> {
    /// The counts for all constraints of a pod.
    pub fn all(snapshot: &'a Snapshot, pod: &'a Shape) -> Vec<Counts<'a>> {
        pod.spread.iter().map(|constraint| Counts::new(snapshot, pod, constraint)).collect()
    }

    fn new(snapshot: &'a Snapshot, pod: &'a Shape, constraint: &'a Spread) -> Counts<'a> {
        let selects = |shape: &Shape| {
            shape.namespace == pod.namespace
                && constraint.selector.as_ref().is_some_and(|selector| shape.matches(selector))
        };
        let mut meant = Meant::default();
        let mut by_value: HashMap<&str, i64> = HashMap::new();
        for node in snapshot.nodes() {
            let Some(value) = node.label(&constraint.topology_key) else { continue };
            if !is_counted(pod, constraint, node) {
                continue;
            }
            let pods = node.shapes.iter().filter(|(shape, _)| meant.ask(shape, selects));
            *by_value.entry(value).or_default() += pods.map(|(_, count)| i64::from(*count)).sum::<i64>();
        }
        let few = i64::try_from(by_value.len()).unwrap_or(i64::MAX) < constraint.min_domains;
        let least = if few { 0 } else { by_value.values().copied().min().unwrap_or_default() };
        Counts { constraint, by_value, least, own: i64::from(selects(pod)) }
    }
}

/// Whether the pods of a node count: only where this pod could be, and where it could be counted by all constraints.
fn is_counted(pod: &Shape, constraint: &Spread, node: &NodeInfo) -> bool {
    let kin = pod.spread.iter().filter(|other| other.hard == constraint.hard);
    node.node.is_some()
        && kin.into_iter().all(|other| node.label(&other.topology_key).is_some())
        && (!constraint.honor_affinity || node_affinity::matches(pod, node))
        && (!constraint.honor_taints
            || taints::untolerated(pod, node, &["NoSchedule", "NoExecute"]).next().is_none())
}

/// Whether the pod may be there without making the spread too uneven.
pub fn check(cycle: &Cycle<'_>, node: &NodeInfo) -> Option<Reason> {
    for counts in cycle.spread.iter().filter(|counts| counts.constraint.hard) {
        let Some(value) = node.label(&counts.constraint.topology_key) else {
            return Some(Reason::SpreadLabel);
        };
        let there = counts.by_value.get(value).copied().unwrap_or_default();
        if there + counts.own - counts.least > counts.constraint.max_skew {
            return Some(Reason::Spread);
        }
    }
    None
}
