//! Where a pod goes. Pure: the snapshot and the pod give the node, or why there is none.

use shoal_objects::selector::LabelSelector;

use super::cycle::{Cycle, Volumes};
use super::filter::{self, node_affinity};
use super::reason::{Failure, Reason};
use super::score;
use super::shape::Shape;
use super::snapshot::{NodeInfo, Snapshot};

/// So many nodes where the pod can be are enough to choose from.
const ENOUGH: usize = 100;
/// In large clusters, one in so many.
const ONE_IN: usize = 20;

/// What is asked.
pub struct Question<'a> {
    /// The pod.
    pub pod: &'a Shape,
    /// Where its volumes are.
    pub volumes: &'a Volumes,
    /// Where the last search ended: the next begins there, so that all nodes get their turn.
    pub from: usize,
    /// A node that was made free for the pod: taken if the pod can be there.
    pub nominated: Option<&'a str>,
    /// The pods that it is spread with, if it does not say so itself.
    pub kin: Option<&'a LabelSelector>,
}

/// Where the pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node's place in the snapshot.
    pub node: usize,
    /// Where the next search begins.
    pub next: usize,
}

/// The best node, or why there is none.
pub fn place(snapshot: &Snapshot, question: &Question<'_>) -> Result<Choice, Failure> {
    let mut failure = Failure { nodes: snapshot.len(), ..Failure::default() };
    if snapshot.is_empty() {
        return Err(failure);
    }
    if let Some(problem) = &question.volumes.problem {
        failure.reasons.insert(Reason::Everywhere(problem.clone()), snapshot.len());
        return Err(failure);
    }
    let cycle = Cycle { kin: question.kin, ..Cycle::new(snapshot, question.pod, question.volumes) };
    let nodes = snapshot.nodes();
    let fits =
        |index: usize| nodes[index].node.is_some() && filter::reasons(&cycle, &nodes[index]).is_empty();
    if let Some(index) = question.nominated.and_then(|name| snapshot.index(name))
        && fits(index)
    {
        return Ok(Choice { node: index, next: question.from });
    }
    if let Some(names) = node_affinity::names(question.pod) {
        let named: Vec<usize> = names.iter().filter_map(|name| snapshot.index(name)).collect();
        let can: Vec<usize> = named.iter().copied().filter(|index| fits(*index)).collect();
        if let Some(node) = best(&cycle, &can) {
            return Ok(Choice { node, next: question.from });
        }
    }
    let enough = ENOUGH.max(nodes.len() / ONE_IN);
    let mut can = Vec::with_capacity(enough.min(nodes.len()));
    let mut looked = 0;
    for offset in 0..nodes.len() {
        let index = (question.from + offset) % nodes.len();
        if nodes[index].node.is_none() {
            continue;
        }
        looked = offset + 1;
        let reasons = filter::reasons(&cycle, &nodes[index]);
        if !reasons.is_empty() {
            failure.note(index, reasons);
            continue;
        }
        can.push(index);
        if can.len() >= enough {
            break;
        }
    }
    match best(&cycle, &can) {
        Some(node) => Ok(Choice { node, next: (question.from + looked) % nodes.len() }),
        None => Err(failure),
    }
}

/// The best of the nodes; of equals the one with the fewest pods, then the first.
fn best(cycle: &Cycle<'_>, can: &[usize]) -> Option<usize> {
    if let [only] = can {
        return Some(*only);
    }
    let nodes: Vec<&NodeInfo> = can.iter().map(|index| &cycle.snapshot.nodes()[*index]).collect();
    let scores = score::scores(cycle, &nodes);
    let mut best: Option<((i64, i64), usize)> = None;
    for ((index, score), node) in can.iter().zip(scores).zip(nodes) {
        let merit = (score, -node.pods);
        if best.is_none_or(|(most, _)| merit > most) {
            best = Some((merit, *index));
        }
    }
    best.map(|(_, index)| index)
}
