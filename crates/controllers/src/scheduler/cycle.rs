//! One decision: the pod, the nodes, and what is worth knowing of all nodes before looking at one.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::NodeSelector;
use shoal_objects::selector::LabelSelector;
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
    pub waiting: Vec<Waiting>,
}

/// A claim that gets a volume when its pod has a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The claim.
    pub claim: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The node that was chosen for it already, perhaps with another pod.
    pub node: Option<String>,
    /// Volumes that would do, the best first.
    pub volumes: Vec<Candidate>,
    /// Whether one can be made for it,
    pub is_made: bool,
    /// and where; nothing for everywhere.
    pub made_at: Option<NodeSelector>,
}

/// A volume that would do for a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The volume.
    pub name: String,
    /// As it was when it was looked at.
    pub version: Option<String>,
    /// Where it can be used.
    pub affinity: Option<NodeSelector>,
}

/// One decision.
pub struct Cycle<'a> {
    /// All nodes.
    pub snapshot: &'a Snapshot,
    /// What is to be placed.
    pub pod: &'a Shape,
    /// Where its volumes are.
    pub volumes: &'a Volumes,
    /// The pods that it is rather not beside, if it does not say itself how it is spread.
    pub kin: Option<&'a LabelSelector>,
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
            kin: None,
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
