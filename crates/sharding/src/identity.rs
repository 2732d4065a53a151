//! Who a replica is, and what all replicas of one group must agree on.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::key::{KeyFunction, fnv1a64};
use crate::seal::Sealer;
use crate::slots::SlotCount;

/// One life of one replica: its name and something random. Also the name of its Lease.
#[derive(Clone, Debug, Eq)]
pub struct ReplicaId {
    /// Tells two ids apart without looking at the text: ids are compared all the time.
    hash: u64,
    text: Arc<str>,
}

impl ReplicaId {
    /// From the name of a Lease.
    pub fn new(id: impl Into<Arc<str>>) -> ReplicaId {
        let text = id.into();
        ReplicaId { hash: fnv1a64(&text), text }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for ReplicaId {
    fn eq(&self, other: &ReplicaId) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl PartialOrd for ReplicaId {
    fn partial_cmp(&self, other: &ReplicaId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ReplicaId {
    fn cmp(&self, other: &ReplicaId) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for ReplicaId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for ReplicaId {
    fn from(id: &str) -> ReplicaId {
        ReplicaId::new(id)
    }
}

/// What replicas of one group must have in common. The record stores it; who differs is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the group, which is the name of its record.
    pub group: String,
    /// What the group does, for example the controller's name and primary kind: keeps two groups of one name apart.
    pub controller: String,
    /// How many slots.
    pub slots: SlotCount,
    /// From object to key.
    pub key_function: KeyFunction,
    /// Name of the placement algorithm.
    pub algorithm: String,
}

impl Identity {
    /// A short form of all of it.
    pub fn fingerprint(&self) -> u64 {
        Sealer::new("identity")
            .text(&self.group)
            .text(&self.controller)
            .number(u64::from(self.slots.get()))
            .text(self.key_function.id())
            .number(u64::from(self.key_function.version()))
            .text(self.key_function.hash_name())
            .text(&self.algorithm)
            .finish()
    }

    /// How another identity differs, in words; none if it does not.
    pub fn difference(&self, other: &Identity) -> Option<String> {
        let key = |i: &Identity| {
            format!("{} v{} ({})", i.key_function.id(), i.key_function.version(), i.key_function.hash_name())
        };
        let pairs = [
            ("group", self.group.clone(), other.group.clone()),
            ("controller", self.controller.clone(), other.controller.clone()),
            ("slots", self.slots.get().to_string(), other.slots.get().to_string()),
            ("key function", key(self), key(other)),
            ("algorithm", self.algorithm.clone(), other.algorithm.clone()),
        ];
        let words: Vec<String> = pairs
            .into_iter()
            .filter(|(_, ours, theirs)| ours != theirs)
            .map(|(what, ours, theirs)| format!("{what} is {theirs}, here {ours}"))
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}
