//! Soft topology spread: the fewer pods of the kind are near, the better.

use super::{BEST, stretch};
use crate::scheduler::cycle::Cycle;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

/// How even the spread would be. Labels with more values weigh more; a node without the label is worst.
pub fn evenness(cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
    let soft: Vec<_> = cycle.spread.iter().filter(|counts| !counts.constraint.hard).collect();
    let raw: Vec<Option<i64>> = nodes
        .iter()
        .map(|node| {
            let mut sum = 0.0;
            for counts in &soft {
                let value = node.label(&counts.constraint.topology_key)?;
                let there = counts.by_value.get(value).copied().unwrap_or_default() as f64;
                let weight = ((counts.by_value.len() + 2) as f64).ln();
                sum += there * weight + (counts.constraint.max_skew - 1) as f64;
            }
            Some(sum.round() as i64)
        })
        .collect();
    let most = raw.iter().flatten().copied().max().unwrap_or_default();
    let least = raw.iter().flatten().copied().min().unwrap_or_default();
    let score = |raw: Option<i64>| match raw {
        None => 0,
        Some(_) if most == 0 => BEST,
        Some(value) => BEST * (most + least - value) / most,
    };
    raw.into_iter().map(score).collect()
}

/// Where a pod does not say how it is spread: the fewer pods of its own template are on the node, the better.
pub fn apart(pod: &Shape, nodes: &[&NodeInfo]) -> Vec<i64> {
    let kin = |node: &&NodeInfo| {
        let same = node.shapes.iter().find(|(shape, _)| shape.id == pod.id);
        same.map_or(0, |(_, count)| i64::from(*count))
    };
    stretch(nodes.iter().map(kin).collect(), true)
}
