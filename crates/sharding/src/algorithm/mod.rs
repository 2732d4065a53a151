//! Placement algorithms: from keys to slots, and from slots to replicas.
//!
//! The slot of a key never depends on who is there; only the replica of a slot does. Results are checked before anyone relies
//! on them, so an algorithm that panics or returns nonsense costs balance, never safety.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::identity::ReplicaId;
use crate::key::{fnv1a64, mixed};
use crate::slots::{Slot, SlotCount};

mod compact;
mod modulo;
mod range;
mod rendezvous;
mod ring;
mod sticky;

pub use modulo::Modulo;
pub use range::{BadRanges, KeyRange, KeyRanges};
pub use rendezvous::Rendezvous;
pub use ring::ConsistentHash;
pub use sticky::Sticky;

/// A replica that can take slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Who.
    pub id: ReplicaId,
    /// Its share: 100 is one.
    pub weight: u32,
}

/// Nobody has the slot.
pub const NOBODY: u16 = u16::MAX;

/// What an algorithm decides on.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// How many slots.
    pub slots: SlotCount,
    /// Who can take slots, in the order of their ids.
    pub nodes: &'a [Node],
    /// Who has each slot now, by position in `nodes`, or [`NOBODY`].
    pub current: &'a [u16],
    /// Slots that must be at one node.
    pub pins: &'a [(Slot, u16)],
    /// What each slot costs, if that was measured.
    pub loads: Option<&'a [u32]>,
    /// Leave everything where it is and only give away what nobody has.
    pub only_orphans: bool,
    /// By how much measured load may differ from the mean.
    pub threshold: f64,
}

/// A way to spread keys over slots and slots over replicas.
pub trait Algorithm: Send + Sync {
    /// Its name in the configuration and in the record.
    fn name(&self) -> &str;

    /// The slot of a key: must depend on nothing else.
    fn shard_of(&self, key: &str, slots: SlotCount) -> Slot {
        slots.slot_of(mixed(fnv1a64(key)))
    }

    /// The node of every slot, by position in `nodes`.
    fn rebalance(&self, request: &Request<'_>) -> Vec<u16>;

    /// Whether slots are to be moved though everybody has its share. Asked when nothing has moved for a while; which ones,
    /// [`Algorithm::rebalance`] says then.
    fn wants_to_move(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// The slots that a node gets if these nodes start afresh.
    fn shards_of(&self, node: &ReplicaId, nodes: &[Node], slots: SlotCount) -> Vec<Slot> {
        let assignment = place(self, &Request::fresh(nodes, slots, &vec![NOBODY; slots.get() as usize]));
        assignment.ok().and_then(|all| shards_by_node(nodes, &all).remove(node)).unwrap_or_default()
    }

    /// Whether a key belongs to a slot.
    fn validate(&self, shard: Slot, key: &str, slots: SlotCount) -> bool {
        shard < slots.get() && self.shard_of(key, slots) == shard
    }
}

impl<'a> Request<'a> {
    /// A request without history, pins and loads.
    pub fn fresh(nodes: &'a [Node], slots: SlotCount, current: &'a [u16]) -> Request<'a> {
        Request { slots, nodes, current, pins: &[], loads: None, only_orphans: false, threshold: 0.1 }
    }
}

/// What is wrong with an algorithm or its result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAlgorithm {
    /// No such name.
    #[error("sharding.algorithm: {name:?} is not known; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The name is taken.
    #[error("an algorithm named {0:?} exists already: choose another name")]
    Taken(String),
    /// It panicked.
    #[error("the algorithm {0} panicked")]
    Panicked(String),
    /// It returned nonsense.
    #[error("the algorithm {name} returned nonsense: {reason}")]
    Nonsense {
        /// Which.
        name: String,
        /// What.
        reason: String,
    },
}

/// Runs an algorithm and checks its result: one node for each slot, none unknown, pins obeyed. Nothing if there is no node.
pub fn place<A: Algorithm + ?Sized>(algorithm: &A, request: &Request<'_>) -> Result<Vec<u16>, BadAlgorithm> {
    let slots = request.slots.get() as usize;
    if request.nodes.is_empty() {
        return Ok(vec![NOBODY; slots]);
    }
    let nonsense = |reason: String| BadAlgorithm::Nonsense { name: algorithm.name().to_owned(), reason };
    let mut result = catch_unwind(AssertUnwindSafe(|| algorithm.rebalance(request)))
        .map_err(|_| BadAlgorithm::Panicked(algorithm.name().to_owned()))?;
    if result.len() != slots {
        return Err(nonsense(format!("{} of {slots} slots", result.len())));
    }
    if let Some(slot) = result.iter().position(|node| usize::from(*node) >= request.nodes.len()) {
        return Err(nonsense(format!("slot {slot} has no node")));
    }
    for (slot, node) in request.pins {
        if let Some(place) = result.get_mut(*slot as usize) {
            *place = *node;
        }
    }
    if request.only_orphans {
        for (slot, node) in request.current.iter().enumerate().filter(|(_, node)| **node != NOBODY) {
            result[slot] = *node;
        }
    }
    Ok(result)
}

/// Whether an algorithm has reasons of its own to move slots; one that panics has none.
pub(crate) fn wants_to_move(algorithm: &dyn Algorithm, request: &Request<'_>) -> bool {
    catch_unwind(AssertUnwindSafe(|| algorithm.wants_to_move(request))).unwrap_or(false)
}

/// The seed's view of an assignment: the slots of every node.
pub fn shards_by_node(nodes: &[Node], assignment: &[u16]) -> BTreeMap<ReplicaId, Vec<Slot>> {
    let mut by_node: BTreeMap<ReplicaId, Vec<Slot>> =
        nodes.iter().map(|node| (node.id.clone(), Vec::new())).collect();
    for (slot, node) in assignment.iter().enumerate() {
        let slots = nodes.get(usize::from(*node)).and_then(|node| by_node.get_mut(&node.id));
        slots.into_iter().for_each(|slots| slots.push(slot as Slot));
    }
    by_node
}

/// Algorithms by name.
#[derive(Clone)]
pub struct Registry {
    algorithms: BTreeMap<String, Arc<dyn Algorithm>>,
}

impl Default for Registry {
    fn default() -> Self {
        let built_in: [Arc<dyn Algorithm>; 4] =
            [Arc::new(Sticky), Arc::new(Modulo), Arc::new(ConsistentHash::default()), Arc::new(Rendezvous)];
        Registry { algorithms: built_in.into_iter().map(|a| (a.name().to_owned(), a)).collect() }
    }
}

impl Registry {
    /// Adds one of the user's, or `range` with its bounds.
    pub fn register(&mut self, algorithm: Arc<dyn Algorithm>) -> Result<(), BadAlgorithm> {
        let name = algorithm.name().to_owned();
        match self.algorithms.contains_key(&name) {
            true => Err(BadAlgorithm::Taken(name)),
            false => {
                self.algorithms.insert(name, algorithm);
                Ok(())
            }
        }
    }

    /// The algorithm of that name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Algorithm>, BadAlgorithm> {
        self.algorithms.get(name).cloned().ok_or_else(|| BadAlgorithm::Unknown {
            name: name.to_owned(),
            known: self.algorithms.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.algorithms.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
