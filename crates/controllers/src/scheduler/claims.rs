//! What the claims of a pod say about where it can be, and what was promised to claims of pods that are being bound.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim,
};
use k8s_openapi::api::storage::v1::StorageClass;
use shoal_runtime::{Lister, ObjectKey};

use super::cycle::{Candidate, Volumes, Waiting};
use super::queue::Pending;
use crate::persistentvolume::SELECTED_NODE;
use crate::persistentvolume::plan::{self, class_of};

/// Says that nobody makes volumes of a class.
const NOBODY: &str = "kubernetes.io/no-provisioner";

/// What a claim gets, decided here and not yet seen in the cluster.
struct Promise {
    pod: ObjectKey,
    node: Arc<str>,
    volume: Option<String>,
}

/// What claims get, by claim.
#[derive(Default)]
pub(super) struct Promises(HashMap<ObjectKey, Promise>);

impl Promises {
    /// The pod goes to this node, where its claims get these volumes, or such that are yet to be made.
    pub(super) fn make(&mut self, pod: &ObjectKey, node: &Arc<str>, chosen: &[Chosen]) {
        for one in chosen {
            let volume = one.volume.as_ref().map(|volume| volume.name.clone());
            let promise = Promise { pod: pod.clone(), node: node.clone(), volume };
            self.0.insert(one.claim.clone(), promise);
        }
    }

    /// The pod could not be bound.
    pub(super) fn take_back(&mut self, pod: &ObjectKey) {
        self.0.retain(|_, promise| promise.pod != *pod);
    }

    fn forget_kept(&mut self, listers: &Listers) {
        self.0.retain(|claim, promise| {
            let waits = listers.claims.get(claim).is_some_and(|claim| bound_to(&claim).is_none());
            let is_free = |name: &String| {
                let volume = listers.volumes.get(&ObjectKey::cluster(name));
                volume.is_some_and(|volume| plan::claim_of(&volume).is_none())
            };
            waits || promise.volume.as_ref().is_some_and(is_free)
        });
    }
}

/// The caches that are read.
pub(super) struct Listers {
    pub(super) claims: Lister<PersistentVolumeClaim>,
    pub(super) volumes: Lister<PersistentVolume>,
    pub(super) classes: Lister<StorageClass>,
}

/// What a claim gets with the node that was chosen: a volume that is there, or one that is made for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The claim.
    pub claim: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The volume that is there.
    pub volume: Option<Candidate>,
}

/// What the claims of a pod say.
pub(super) fn volumes_of(pod: &Pending, listers: &Listers, promises: &mut Promises) -> Volumes {
    promises.forget_kept(listers);
    let mut volumes = Volumes::default();
    let mut unbound = Vec::new();
    for name in &pod.shape.claims {
        let key = ObjectKey::new(&pod.key.namespace, name);
        let Some(claim) = listers.claims.get(&key) else {
            volumes.problem = Some(format!("persistentvolumeclaim {name:?} not found"));
            return volumes;
        };
        if claim.metadata.deletion_timestamp.is_some() {
            volumes.problem = Some(format!("persistentvolumeclaim {name:?} is being deleted"));
        } else if let Some(bound) = bound_to(&claim) {
            let volume = listers.volumes.get(&ObjectKey::cluster(bound));
            volumes.required.extend(volume.and_then(|volume| affinity(&volume)));
        } else if let Some(class) = waits(&claim, &listers.classes) {
            unbound.push((key, claim, class));
        } else {
            volumes.problem = Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
    }
    // The smallest first, so that it does not take what only a larger one needs.
    unbound.sort_by_key(|(_, claim, _)| plan::wanted(claim));
    let all = if unbound.is_empty() { Vec::new() } else { listers.volumes.list() };
    for (key, claim, class) in unbound {
        volumes.waiting.push(waiting(key, &claim, &class, &all, promises));
    }
    volumes
}

/// What would do for a claim, and where.
fn waiting(
    key: ObjectKey,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    all: &[Arc<PersistentVolume>],
    promises: &Promises,
) -> Waiting {
    let promised = promises.0.get(&key);
    let annotations = claim.metadata.annotations.as_ref();
    let selected = annotations.and_then(|annotations| annotations.get(SELECTED_NODE)).cloned();
    let is_ours = |name: &str| promised.is_some_and(|promise| promise.volume.as_deref() == Some(name));
    let is_others = |name: &str| {
        !is_ours(name) && promises.0.values().any(|promise| promise.volume.as_deref() == Some(name))
    };
    let mut candidates = plan::candidates(claim, all.iter().map(AsRef::as_ref));
    candidates.retain(|volume| !is_others(volume.metadata.name.as_deref().unwrap_or_default()));
    if candidates.iter().any(|volume| is_ours(volume.metadata.name.as_deref().unwrap_or_default())) {
        candidates.retain(|volume| is_ours(volume.metadata.name.as_deref().unwrap_or_default()));
    }
    let candidate = |volume: &&PersistentVolume| Candidate {
        name: volume.metadata.name.clone().unwrap_or_default(),
        version: volume.metadata.resource_version.clone(),
        affinity: affinity(volume),
    };
    Waiting {
        claim: key,
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        node: promised.map(|promise| promise.node.to_string()).or(selected),
        volumes: candidates.iter().map(candidate).collect(),
        is_made: class.provisioner != NOBODY,
        made_at: topologies(class),
    }
}

fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn affinity(volume: &PersistentVolume) -> Option<NodeSelector> {
    volume.spec.as_ref()?.node_affinity.clone()?.required
}

/// The class of a claim, if its claims get their volumes when their pods have nodes.
fn waits(claim: &PersistentVolumeClaim, classes: &Lister<StorageClass>) -> Option<Arc<StorageClass>> {
    let class = classes.get(&ObjectKey::cluster(class_of(claim)))?;
    plan::waits_for_consumer(&class).then_some(class)
}

/// Where volumes of a class can be made; nothing for everywhere.
fn topologies(class: &StorageClass) -> Option<NodeSelector> {
    let terms = class.allowed_topologies.as_deref().filter(|terms| !terms.is_empty())?;
    let terms = terms.iter().map(|term| {
        let labels = term.match_label_expressions.iter().flatten();
        let requirements = labels.map(|label| NodeSelectorRequirement {
            key: label.key.clone(),
            operator: "In".to_owned(),
            values: Some(label.values.clone()),
        });
        NodeSelectorTerm { match_expressions: Some(requirements.collect()), match_fields: None }
    });
    Some(NodeSelector { node_selector_terms: terms.collect() })
}
