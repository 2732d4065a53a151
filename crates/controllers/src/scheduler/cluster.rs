//! What the informers tell, taken into the snapshot and the queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use shoal_runtime::cache::{Delta, Encoded, Informers, Uid};
use shoal_runtime::{Informer, Lister, ObjectKey, Subscription};

use super::claims;
use super::preempt::Budget;
use super::queue::{Pending, Queue};
use super::reason::Wakes;
use super::snapshot::{Placed, Snapshot};
use crate::{claim, pods};

/// The caches that are read.
pub(super) struct Caches {
    pub(super) pods: Informer<Pod>,
    pub(super) nodes: Informer<Node>,
    pub(super) namespaces: Informer<Namespace>,
    pub(super) claims: Informer<PersistentVolumeClaim>,
    pub(super) volumes: Informer<PersistentVolume>,
    pub(super) classes: Informer<StorageClass>,
    pub(super) budgets: Informer<PodDisruptionBudget>,
}

/// What they tell.
pub(super) struct Feeds {
    pub(super) pods: Subscription,
    pub(super) nodes: Subscription,
    pub(super) namespaces: Subscription,
    pub(super) claims: Subscription,
    pub(super) volumes: Subscription,
    pub(super) classes: Subscription,
}

impl Caches {
    pub(super) fn new(informers: &Informers) -> Caches {
        Caches {
            pods: informers.of(),
            nodes: informers.of(),
            namespaces: informers.of(),
            claims: informers.of(),
            volumes: informers.of(),
            classes: informers.of(),
            budgets: informers.of(),
        }
    }

    pub(super) async fn synced(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        self.namespaces.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.budgets.synced().await;
    }

    pub(super) fn subscribe(&self) -> Feeds {
        Feeds {
            pods: self.pods.subscribe(),
            nodes: self.nodes.subscribe(),
            namespaces: self.namespaces.subscribe(),
            claims: self.claims.subscribe(),
            volumes: self.volumes.subscribe(),
            classes: self.classes.subscribe(),
        }
    }

    /// What is known of claims and volumes.
    pub(super) fn of_claims(&self) -> claims::Listers {
        claims::Listers {
            claims: self.claims.lister(),
            volumes: self.volumes.lister(),
            classes: self.classes.lister(),
        }
    }

    /// All disruption budgets.
    pub(super) fn budgets(&self) -> Vec<Budget> {
        let budgets = self.budgets.lister().list();
        let of = |budget: &Arc<PodDisruptionBudget>| {
            Some(Budget {
                namespace: budget.metadata.namespace.clone().unwrap_or_default(),
                selector: claim::selector(budget.spec.as_ref()?.selector.as_ref())?,
                allowed: budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0),
            })
        };
        budgets.iter().filter_map(of).collect()
    }
}

/// Takes a change of a node; what it may help.
pub(super) fn take_node(snapshot: &mut Snapshot, nodes: &Lister<Node>, delta: &Delta) -> Wakes {
    let node = delta.new.as_ref().filter(|_| !delta.is_gone()).and_then(|new| nodes.decode(new));
    let Some(node) = node else {
        snapshot.remove_node(&delta.key.name);
        // Counts of spreads are others now.
        return Wakes::ARRIVAL;
    };
    let before = snapshot.index(&delta.key.name).and_then(|index| snapshot.nodes()[index].node.clone());
    let Some(before) = before else {
        snapshot.set_node(node);
        return Wakes::ALL;
    };
    let schedulable = |node: &Node| {
        node.spec.as_ref().map(|spec| (spec.unschedulable.unwrap_or_default(), spec.taints.clone()))
    };
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    let mut wakes = Wakes::NONE;
    if before.metadata.labels != node.metadata.labels || schedulable(&before) != schedulable(&node) {
        wakes = wakes.and(Wakes::NODE).and(Wakes::ARRIVAL);
    }
    if allocatable(&before) != allocatable(&node) {
        wakes = wakes.and(Wakes::CAPACITY);
    }
    if wakes != Wakes::NONE {
        snapshot.set_node(node);
    }
    wakes
}

/// Takes a change of a pod; what it may help.
pub(super) fn take_pod(
    scheduler: &str,
    snapshot: &mut Snapshot,
    queue: &mut Queue,
    pods: &Lister<Pod>,
    delta: &Delta,
) -> Wakes {
    let key = &delta.key;
    let encoded = delta.new.as_ref().filter(|_| !delta.is_gone());
    let Some((encoded, pod)) = encoded.and_then(|new| Some((new, pods.decode(new)?))) else {
        queue.remove(key);
        let freed = snapshot.forget_nomination(key);
        return left(snapshot.remove(key).is_some() || freed);
    };
    let (uid, leaving) = (encoded.uid().clone(), encoded.is_deleting());
    let known = snapshot.pods().get(key);
    if known.is_some_and(|known| known.uid != uid) {
        snapshot.remove(key);
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if pods::is_finished(&pod) {
        queue.remove(key);
        return left(snapshot.remove(key).is_some());
    }
    if node.is_empty() {
        // Its binding is on the way.
        if !snapshot.pods().contains_key(key) {
            wait(scheduler, snapshot, queue, key, uid, &pod);
        }
        return Wakes::NONE;
    }
    queue.remove(key);
    snapshot.forget_nomination(key);
    if let Some(known) = snapshot.pods().get(key)
        && *known.node == *node
        && is_as_known(known, encoded, delta)
    {
        let is_news = known.assumed;
        snapshot.confirm(key, leaving);
        return if is_news { Wakes::ARRIVAL } else { Wakes::NONE };
    }
    let shape = snapshot.shapes.of(&pod);
    let placed = Placed { uid, node: node.into(), shape, assumed: false, created: created(&pod), leaving };
    snapshot.place(key.clone(), placed);
    Wakes::ARRIVAL.and(Wakes::DEPARTURE)
}

fn left(was_there: bool) -> Wakes {
    if was_there { Wakes::DEPARTURE } else { Wakes::NONE }
}

/// Whether a placement still says all that matters: neither the specification nor the labels have changed.
fn is_as_known(known: &Placed, encoded: &Encoded, delta: &Delta) -> bool {
    let labels = &known.shape.labels;
    let same_spec = known.assumed || delta.same_generation() || encoded.generation() == 0;
    same_spec && encoded.labels().eq(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

/// Queues a pod without a node, unless it is not for us or not yet.
fn wait(scheduler: &str, snapshot: &mut Snapshot, queue: &mut Queue, key: &ObjectKey, uid: Uid, pod: &Pod) {
    let spec = pod.spec.as_ref();
    let named = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(super::DEFAULT);
    let gated =
        spec.is_some_and(|spec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()));
    if named != scheduler || gated || pod.metadata.deletion_timestamp.is_some() {
        queue.remove(key);
        snapshot.forget_nomination(key);
        return;
    }
    let shape = snapshot.shapes.of(pod);
    queue.add(Pending { key: key.clone(), uid, shape, created: created(pod) });
}

fn created(pod: &Pod) -> i64 {
    pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}
