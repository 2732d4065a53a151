//! Where the pod's volumes are, or could be.

use super::node_affinity::selects;
use crate::scheduler::claims::Chosen;
use crate::scheduler::cycle::{Candidate, Volumes};
use crate::scheduler::reason::Reason;
use crate::scheduler::snapshot::NodeInfo;

/// Whether all volumes can be reached from the node, and claims that have none would get theirs there.
pub fn check(volumes: &Volumes, node: &NodeInfo) -> Option<Reason> {
    if volumes.required.iter().any(|selector| !selects(selector, node)) {
        return Some(Reason::VolumeAffinity);
    }
    choose(volumes, node).is_none().then_some(Reason::NoVolume)
}

/// What each claim that has no volume would get on this node; nothing if one of them would get none.
pub fn choose(volumes: &Volumes, node: &NodeInfo) -> Option<Vec<Chosen>> {
    let mut chosen: Vec<Chosen> = Vec::with_capacity(volumes.waiting.len());
    for waiting in &volumes.waiting {
        if waiting.node.as_ref().is_some_and(|other| **other != *node.name) {
            return None;
        }
        let is_free = |candidate: &&Candidate| {
            let mut taken = chosen.iter().filter_map(|chosen| chosen.volume.as_ref());
            !taken.any(|taken| taken.name == candidate.name)
        };
        let reaches = |candidate: &&Candidate| {
            candidate.affinity.as_ref().is_none_or(|selector| selects(selector, node))
        };
        let volume = waiting.volumes.iter().filter(reaches).find(is_free).cloned();
        let is_made = waiting.is_made && waiting.made_at.as_ref().is_none_or(|at| selects(at, node));
        if volume.is_none() && !is_made {
            return None;
        }
        chosen.push(Chosen { claim: waiting.claim.clone(), uid: waiting.uid.clone(), volume });
    }
    Some(chosen)
}
