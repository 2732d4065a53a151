//! Pod affinity and anti-affinity, of the pod and of those that are there.

use std::collections::{HashMap, HashSet};

use crate::scheduler::cycle::{Cycle, Meant};
use crate::scheduler::reason::Reason;
use crate::scheduler::shape::{Shape, Term};
use crate::scheduler::snapshot::{NodeInfo, Snapshot};

/// A node label with its value: a place.
type Place<'a> = (&'a str, &'a str);

/// Who is where, as far as this pod minds, or they do.
#[derive(Default)]
pub struct Counts<'a> {
    /// Places near pods that match all terms of the affinity.
    near: HashSet<Place<'a>>,
    /// Places near pods that match a term of the anti-affinity.
    avoided: HashSet<Place<'a>>,
    /// Places near pods that do not want this one.
    forbidden: HashSet<Place<'a>>,
    /// The pod is the first of its kind: it need not be beside others.
    first: bool,
    /// How much a place is wanted by the preferences of the pod and of those that are there.
    pub liked: HashMap<Place<'a>, i64>,
}

impl<'a> Counts<'a> {
    /// Looks at all nodes once, if anybody minds.
    pub fn new(snapshot: &'a Snapshot, pod: &'a Shape) -> Counts<'a> {
        let mut counts = Counts::default();
        if !pod.is_affine() && !snapshot.has_affine_pods() {
            return counts;
        }
        let names = &snapshot.namespaces;
        let mut all_terms = Meant::default();
        let mut anti: Vec<Meant> = pod.anti_affinity.iter().map(|_| Meant::default()).collect();
        let mut liked: Vec<Meant> = pod.preferences.iter().map(|_| Meant::default()).collect();
        for node in snapshot.nodes().iter().filter(|node| node.node.is_some()) {
            for (shape, count) in &node.shapes {
                let count = i64::from(*count);
                if !pod.affinity.is_empty()
                    && all_terms
                        .ask(shape, |shape| pod.affinity.iter().all(|term| term.matches(shape, names)))
                {
                    counts.near.extend(pod.affinity.iter().filter_map(|term| place(node, term)));
                }
                for (term, meant) in pod.anti_affinity.iter().zip(&mut anti) {
                    if meant.ask(shape, |shape| term.matches(shape, names)) {
                        counts.avoided.extend(place(node, term));
                    }
                }
                for ((weight, term), meant) in pod.preferences.iter().zip(&mut liked) {
                    if meant.ask(shape, |shape| term.matches(shape, names))
                        && let Some(place) = place(node, term)
                    {
                        *counts.liked.entry(place).or_default() += weight * count;
                    }
                }
                if shape.is_affine() {
                    counts.mind(node, shape, count, pod, snapshot);
                }
            }
        }
        counts.first = counts.near.is_empty() && pod.affinity.iter().all(|term| term.matches(pod, names));
        counts
    }

    /// What a pod that is there thinks of this one.
    fn mind(&mut self, node: &'a NodeInfo, there: &'a Shape, count: i64, pod: &Shape, snapshot: &Snapshot) {
        let names = &snapshot.namespaces;
        let wants = |term: &&Term| term.matches(pod, names);
        self.forbidden.extend(there.anti_affinity.iter().filter(wants).filter_map(|term| place(node, term)));
        // Who must be beside such pods is glad of one more, a little.
        let glad = there.affinity.iter().map(|term| (1, term));
        let preferring = there.preferences.iter().map(|(weight, term)| (*weight, term));
        for (weight, term) in glad.chain(preferring).filter(|(_, term)| wants(term)) {
            if let Some(place) = place(node, term) {
                *self.liked.entry(place).or_default() += weight * count;
            }
        }
    }

    /// How much a node is wanted.
    pub fn liking(&self, node: &NodeInfo) -> i64 {
        let mut sum = 0;
        for ((key, value), weight) in &self.liked {
            if node.label(key) == Some(value) {
                sum += weight;
            }
        }
        sum
    }
}

fn place<'a>(node: &'a NodeInfo, term: &'a Term) -> Option<Place<'a>> {
    node.label(&term.topology_key).map(|value| (term.topology_key.as_str(), value))
}

/// Whether those that the pod must be beside are near, and none that mind.
pub fn check(cycle: &Cycle<'_>, node: &NodeInfo) -> Option<Reason> {
    let (pod, counts) = (cycle.pod, &cycle.affinity);
    let beside = pod.affinity.iter().all(|term| match place(node, term) {
        None => false,
        Some(place) => counts.first || counts.near.contains(&place),
    });
    if !beside {
        return Some(Reason::PodAffinity);
    }
    if pod.anti_affinity.iter().filter_map(|term| place(node, term)).any(|p| counts.avoided.contains(&p)) {
        return Some(Reason::PodAntiAffinity);
    }
    let forbidden = counts.forbidden.iter().any(|(key, value)| node.label(key) == Some(value));
    forbidden.then_some(Reason::ExistingAntiAffinity)
}
