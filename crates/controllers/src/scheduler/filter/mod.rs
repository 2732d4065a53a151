//! Whether a pod can be on a node: one file per rule, asked in the order of kube-scheduler.

pub mod fit;
pub mod node_affinity;
pub mod pod_affinity;
pub mod ports;
pub mod spread;
pub mod taints;
pub mod volumes;

use super::cycle::Cycle;
use super::reason::Reason;
use super::snapshot::NodeInfo;

/// Why the pod cannot be on the node; nothing if it can.
pub fn reasons(cycle: &Cycle<'_>, node: &NodeInfo) -> Vec<Reason> {
    let one = |reason: Option<Reason>| reason.map(|reason| vec![reason]);
    one(taints::cordon(cycle.pod, node))
        .or_else(|| one(taints::check(cycle.pod, node)))
        .or_else(|| one(node_affinity::check(cycle.pod, node)))
        .or_else(|| one(ports::check(cycle.pod, node)))
        .or_else(|| Some(fit::check(cycle.pod, node)).filter(|reasons| !reasons.is_empty()))
        .or_else(|| one(volumes::check(cycle.volumes, node)))
        .or_else(|| one(spread::check(cycle, node)))
        .or_else(|| one(pod_affinity::check(cycle, node)))
        .unwrap_or_default()
}
