//! One difference between what a subscriber knows and what the cache holds.

use std::sync::Arc;

use super::encoded::Encoded;
use crate::key::ObjectKey;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// An object is new to the cache.
    Added,
    /// An object has another version, or is told again by a resync.
    Modified,
    /// An object was deleted.
    Deleted,
    /// An object is not in the cache's scope any more. It may well exist: nobody may take this for a deletion.
    Evicted,
}

/// How it came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By a watch event.
    Live,
    /// By a list: the first one, or one after events were lost; or because the subscriber came late.
    Relist,
    /// Nothing happened; it is told again from time to time.
    Resync,
}

/// One change to one object.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Which object.
    pub key: ObjectKey,
    /// What happened.
    pub change: ChangeKind,
    /// How it came to be known.
    pub origin: Origin,
    /// What was held before.
    pub old: Option<Arc<Encoded>>,
    /// What is held now; nothing for what is gone.
    pub new: Option<Arc<Encoded>>,
}

impl Delta {
    pub(crate) fn new(
        change: ChangeKind,
        origin: Origin,
        old: Option<Arc<Encoded>>,
        new: Option<Arc<Encoded>>,
    ) -> Option<Delta> {
        let key = new.as_ref().or(old.as_ref())?.key().clone();
        Some(Delta { key, change, origin, old, new })
    }

    /// The newest known state.
    pub fn latest(&self) -> Option<&Arc<Encoded>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Whether the object is not in the cache any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.change, ChangeKind::Deleted | ChangeKind::Evicted)
    }

    /// Whether only status or metadata that nobody specified has changed: equal generation, which is counted.
    pub fn same_generation(&self) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => old.generation() == new.generation() && new.generation() != 0,
            _ => false,
        }
    }
}
