//! Where the pod's volumes are.

use super::node_affinity::selects;
use crate::scheduler::cycle::Volumes;
use crate::scheduler::reason::Reason;
use crate::scheduler::snapshot::NodeInfo;

/// Whether all volumes can be reached from the node.
pub fn check(volumes: &Volumes, node: &NodeInfo) -> Option<Reason> {
    volumes.required.iter().any(|selector| !selects(selector, node)).then_some(Reason::VolumeAffinity)
}
