//! The nodes and what is on them, kept up to date event by event; never built anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use shoal_objects::Quantity;
use shoal_runtime::ObjectKey;
use shoal_runtime::cache::Uid;

use super::resources::Resources;
use super::shape::{Shape, Shapes};

/// The part of the world that a node is in.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A node, with the sum of what its pods take.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The Node. None while pods name a node that is not known.
    pub node: Option<Arc<Node>>,
    /// What pods can have.
    pub allocatable: Resources,
    /// How many pods it may have.
    pub allowed_pods: i64,
    /// What its pods asked for.
    pub requested: Resources,
    /// The same for comparisons, see [`Requests`](super::resources::Requests).
    pub usual: (i64, i64),
    /// How many pods it has.
    pub pods: i64,
    /// Which, by shape: pods of one template are one entry.
    pub shapes: Vec<(Arc<Shape>, u32)>,
    /// Its zone, if it is known and has one.
    pub zone: Option<Arc<str>>,
}

impl NodeInfo {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The taints.
    pub fn taints(&self) -> &[Taint] {
        self.node.as_ref().and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default()
    }

    /// Whether someone has cordoned it.
    pub fn is_unschedulable(&self) -> bool {
        self.node
            .as_ref()
            .is_some_and(|node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable.unwrap_or_default()))
    }

    fn set(&mut self, node: Arc<Node>) {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        self.allocatable = Resources::of(allocatable);
        let pods = allocatable.and_then(|list| Quantity::parse(&list.get("pods")?.0).ok());
        self.allowed_pods = pods.map_or(0, |pods| pods.value());
        self.node = Some(node);
        if self.label(ZONE) != self.zone.as_deref() {
            self.zone = self.label(ZONE).map(Into::into);
        }
    }
}

/// A pod that has a node.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Which of the pods that had this name.
    pub uid: Uid,
    /// On which node.
    pub node: Arc<str>,
    /// What it takes.
    pub shape: Arc<Shape>,
    /// Decided here, and not yet seen in the cluster.
    pub assumed: bool,
    /// When it was created, in seconds: of equals the younger goes first.
    pub created: i64,
    /// Being deleted already.
    pub leaving: bool,
}

/// How many pods of each shape a zone has.
type Zones = HashMap<Arc<str>, HashMap<u64, (Arc<Shape>, i64)>>;

/// What all nodes have and take.
#[derive(Debug, Default)]
pub struct Snapshot {
    nodes: Vec<NodeInfo>,
    by_name: HashMap<Arc<str>, usize>,
    known_nodes: usize,
    pods: HashMap<ObjectKey, Placed>,
    /// How many pods on nodes say something about other pods.
    affine: usize,
    /// Labels of namespaces.
    pub namespaces: HashMap<String, BTreeMap<String, String>>,
    nominated: BTreeMap<ObjectKey, (Arc<str>, Arc<Shape>)>,
    /// Pods of zones, by shape: so that a spread over zones need not look at all nodes.
    zones: Zones,
    /// The shapes of all pods.
    pub shapes: Shapes,
    generation: u64,
}

impl Snapshot {
    /// All nodes, those that only pods know of included.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.known_nodes
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.known_nodes == 0
    }

    /// Where a node stands in [`Snapshot::nodes`].
    pub fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The pods that have a node.
    pub fn pods(&self) -> &HashMap<ObjectKey, Placed> {
        &self.pods
    }

    /// The pods of a zone, by shape.
    pub fn in_zone(&self, zone: &str) -> impl Iterator<Item = (&Arc<Shape>, i64)> {
        self.zones.get(zone).into_iter().flat_map(|pods| pods.values().map(|(shape, count)| (shape, *count)))
    }

    /// Counts the pods of a node in its zone, or no more.
    fn count_in_zone(&mut self, index: usize, sign: i64) {
        let node = &self.nodes[index];
        let Some(zone) = &node.zone else { return };
        for (shape, count) in &node.shapes {
            add_to_zone(&mut self.zones, zone, shape, sign * i64::from(*count));
        }
    }

    /// Another number after each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether any pod on a node says something about other pods.
    pub fn has_affine_pods(&self) -> bool {
        self.affine > 0
    }

    /// Pods whose place is being made free, with the node.
    pub fn nominated(&self) -> &BTreeMap<ObjectKey, (Arc<str>, Arc<Shape>)> {
        &self.nominated
    }

    /// A place on this node is being made free for a pod.
    pub fn nominate(&mut self, key: ObjectKey, node: Arc<str>, shape: Arc<Shape>) {
        self.nominated.insert(key, (node, shape));
        self.generation += 1;
    }

    /// The pod needs no place any more, or has one; whether one was being made free.
    pub fn forget_nomination(&mut self, key: &ObjectKey) -> bool {
        let was = self.nominated.remove(key).is_some();
        self.generation += u64::from(was);
        was
    }

    /// A node was added or has changed.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let index = self.slot(node.metadata.name.as_deref().unwrap_or_default());
        self.known_nodes += usize::from(self.nodes[index].node.is_none());
        self.count_in_zone(index, -1);
        self.nodes[index].set(node);
        self.count_in_zone(index, 1);
        self.generation += 1;
    }

    /// A node is gone. Its pods may still be there.
    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.index(name) else { return };
        self.known_nodes -= usize::from(self.nodes[index].node.is_some());
        self.count_in_zone(index, -1);
        self.nodes[index].node = None;
        self.nodes[index].zone = None;
        self.generation += 1;
        self.drop_if_empty(index);
    }

    /// A pod has a node: seen in the cluster, or decided here.
    pub fn place(&mut self, key: ObjectKey, placed: Placed) {
        self.remove(&key);
        let index = self.slot(&placed.node);
        self.occupy(index, &placed.shape);
        self.pods.insert(key, placed);
    }

    /// The pod is not on its node any more, or ends, or its place was not accepted.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Placed> {
        let placed = self.pods.remove(key)?;
        if let Some(index) = self.index(&placed.node) {
            self.vacate(index, &placed.shape);
            self.drop_if_empty(index);
        }
        Some(placed)
    }

    /// The pod was seen in the cluster, or is being deleted. Nothing that others depend on changes.
    pub fn confirm(&mut self, key: &ObjectKey, leaving: bool) {
        if let Some(placed) = self.pods.get_mut(key) {
            placed.assumed = false;
            placed.leaving = leaving;
        }
    }

    /// Counts a pod of this shape on a node.
    pub fn occupy(&mut self, index: usize, shape: &Arc<Shape>) {
        let node = &mut self.nodes[index];
        node.requested.add(&shape.requests.fit);
        node.usual.0 += shape.requests.usual_cpu;
        node.usual.1 += shape.requests.usual_memory;
        node.pods += 1;
        match node.shapes.iter_mut().find(|(known, _)| Arc::ptr_eq(known, shape)) {
            Some((_, count)) => *count += 1,
            None => node.shapes.push((shape.clone(), 1)),
        }
        if let Some(zone) = &node.zone {
            add_to_zone(&mut self.zones, zone, shape, 1);
        }
        self.affine += usize::from(shape.is_affine());
        self.generation += 1;
    }

    /// Takes back what [`Snapshot::occupy`] did.
    pub fn vacate(&mut self, index: usize, shape: &Arc<Shape>) {
        let node = &mut self.nodes[index];
        let Some(place) = node.shapes.iter().position(|(known, _)| Arc::ptr_eq(known, shape)) else { return };
        node.shapes[place].1 -= 1;
        if node.shapes[place].1 == 0 {
            node.shapes.swap_remove(place);
        }
        if let Some(zone) = &node.zone {
            add_to_zone(&mut self.zones, zone, shape, -1);
        }
        node.requested.subtract(&shape.requests.fit);
        node.usual.0 -= shape.requests.usual_cpu;
        node.usual.1 -= shape.requests.usual_memory;
        node.pods -= 1;
        self.affine -= usize::from(shape.is_affine());
        self.generation += 1;
    }

    fn slot(&mut self, name: &str) -> usize {
        if let Some(index) = self.index(name) {
            return index;
        }
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), self.nodes.len());
        self.nodes.push(NodeInfo { name, ..NodeInfo::default() });
        self.nodes.len() - 1
    }

    fn drop_if_empty(&mut self, index: usize) {
        if self.nodes[index].node.is_some() || self.nodes[index].pods > 0 {
            return;
        }
        let gone = self.nodes.swap_remove(index);
        self.by_name.remove(&gone.name);
        if let Some(moved) = self.nodes.get(index) {
            self.by_name.insert(moved.name.clone(), index);
        }
    }
}

fn add_to_zone(zones: &mut Zones, zone: &Arc<str>, shape: &Arc<Shape>, more: i64) {
    let pods = zones.entry(zone.clone()).or_default();
    let entry = pods.entry(shape.id).or_insert_with(|| (shape.clone(), 0));
    entry.1 += more;
    if entry.1 <= 0 {
        pods.remove(&shape.id);
    }
    if pods.is_empty() {
        zones.remove(zone);
    }
}
