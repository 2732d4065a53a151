//! Nodes with much left, and with as much left of one resource as of the other.

use super::BEST;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

/// CPU and memory that the node would have given away, and what it has.
fn amounts(pod: &Shape, node: &NodeInfo) -> [(i64, i64); 2] {
    [
        (node.usual.0 + pod.requests.usual_cpu, node.allocatable.cpu),
        (node.usual.1 + pod.requests.usual_memory, node.allocatable.memory),
    ]
}

/// The more is left, the better.
pub fn least_allocated(pod: &Shape, node: &NodeInfo) -> i64 {
    let left = |(taken, has): (i64, i64)| {
        if has <= 0 || taken > has {
            0
        } else {
            (i128::from(has - taken) * i128::from(BEST) / i128::from(has)) as i64
        }
    };
    let [cpu, memory] = amounts(pod, node).map(left);
    (cpu + memory) / 2
}

/// The nearer the parts that are taken are to each other, the better.
pub fn balanced(pod: &Shape, node: &NodeInfo) -> i64 {
    let [cpu, memory] = amounts(pod, node)
        .map(|(taken, has)| if has <= 0 { 1.0 } else { (taken as f64 / has as f64).clamp(0.0, 1.0) });
    ((1.0 - (cpu - memory).abs() / 2.0) * BEST as f64) as i64
}
