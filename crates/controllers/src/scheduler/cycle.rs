//! One decision: the pod, the nodes, and what is worth knowing of all nodes before looking at one.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::NodeSelector;
use shoal_runtime::ObjectKey;

use super::filter::{pod_affinity, spread};
use super::shape::Shape;
use super::snapshot::Snapshot;

/// What a pod's claims say about where it can be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volumes {
    /// Why it can be nowhere.
    pub problem: Option<String>,
    /// Where the volumes are.
    pub required: Vec<NodeSelector>,
    /// Claims that get a volume when the pod has a node.
    pub waiting: Vec<ObjectKey>,
}

/// One decision.
pub struct Cycle<'a> {
    /// All nodes.
    pub snapshot: &'a Snapshot,
    /// What is to be placed.
    pub pod: &'a Shape,
    /// Where its volumes are.
    pub volumes: &'a Volumes,
    pub(super) affinity: pod_affinity::Counts<'a>,
    pub(super) spread: Vec<spread::Counts<'a>>,
}

impl<'a> Cycle<'a> {
    /// Looks at all nodes once, if the pod or one that is placed says something about others.
    pub fn new(snapshot: &'a Snapshot, pod: &'a Shape, volumes: &'a Volumes) -> Cycle<'a> {
        Cycle {
            snapshot,
            pod,
            volumes,
            affinity: pod_affinity::Counts::new(snapshot, pod),
            spread: spread::Counts::all(snapshot, pod),
        }
    }
}

/// Whether shapes are meant, asked once for each.
#[derive(Default)]
pub(super) struct Meant(HashMap<u64, bool>);

impl Meant {
    pub(super) fn ask(&mut self, shape: &Shape, matches: impl FnOnce(&Shape) -> bool) -> bool {
        *self.0.entry(shape.id).or_insert_with(|| matches(shape))
    }
}
