//! Soft topology spread: the fewer pods of the kind are near, the better.

use std::collections::HashMap;

use shoal_objects::selector::LabelSelector;

use super::BEST;
use crate::scheduler::cycle::{Cycle, Meant};
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
    even(raw)
}

/// The less, the better; nothing is worst.
fn even(raw: Vec<Option<i64>>) -> Vec<i64> {
    let most = raw.iter().flatten().copied().max().unwrap_or_default();
    let least = raw.iter().flatten().copied().min().unwrap_or_default();
    let score = |raw: Option<i64>| match raw {
        None => 0,
        Some(_) if most == 0 => BEST,
        Some(value) => BEST * (most + least - value) / most,
    };
    raw.into_iter().map(score).collect()
}

/// By how much counts may differ before it matters, by default: over nodes and over zones.
const NODE_SKEW: f64 = 3.0;
const ZONE_SKEW: f64 = 5.0;

/// Where a pod does not say how it is spread: the fewer of its kin are on the node and in its zone, the better. A node
/// that tells no zone is judged by itself alone.
pub fn apart(cycle: &Cycle<'_>, kin: &LabelSelector, nodes: &[&NodeInfo]) -> Vec<i64> {
    let mut meant = Meant::default();
    let mut is_kin = |shape: &Shape| {
        meant.ask(shape, |shape| shape.namespace == cycle.pod.namespace && shape.matches(kin))
    };
    let mut zones: HashMap<&str, i64> = HashMap::new();
    for zone in nodes.iter().filter_map(|node| node.zone.as_deref()) {
        zones.entry(zone).or_insert_with(|| {
            let pods = cycle.snapshot.in_zone(zone).filter(|(shape, _)| is_kin(shape));
            pods.map(|(_, count)| count).sum()
        });
    }
    let weight = |values: usize| ((values + 2) as f64).ln();
    let (of_nodes, of_zones) = (weight(nodes.len()), weight(zones.len()));
    let mut raw = Vec::with_capacity(nodes.len());
    for node in nodes {
        let here = node.shapes.iter().filter(|(shape, _)| is_kin(shape));
        let here: i64 = here.map(|(_, count)| i64::from(*count)).sum();
        let mut sum = here as f64 * of_nodes + NODE_SKEW - 1.0;
        if let Some(there) = node.zone.as_deref().and_then(|zone| zones.get(zone)) {
            sum += *there as f64 * of_zones + ZONE_SKEW - 1.0;
        }
        raw.push(Some(sum.round() as i64));
    }
    even(raw)
}
