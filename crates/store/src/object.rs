//! What is stored, what is reported about it, and how requests can fail.

use std::sync::Arc;

use bytes::Bytes;

/// One stored version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
    /// The revision that created the key.
    pub created: u64,
    /// The revision that wrote this version.
    pub revision: u64,
    /// Opaque.
    pub value: Bytes,
    /// A compact index the caller keeps for selectors; opaque.
    pub meta: Bytes,
}

impl Object {
    /// Bytes of value and meta.
    pub fn size(&self) -> usize {
        self.value.len() + self.meta.len()
    }
}

/// What a write did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The key did not exist before.
    Created,
    /// The key got a new version.
    Updated,
    /// The key is gone.
    Deleted,
}

/// One committed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision of the write.
    pub revision: u64,
    /// What the write did.
    pub kind: EventKind,
    /// The new version; of a deletion the final object, with the revision of the deletion.
    pub object: Arc<Object>,
    /// The version before, unless the key was created.
    pub previous: Option<Arc<Object>>,
}

impl Event {
    /// Bytes that only the history keeps alive: the version that was replaced, and the final object of a deletion.
    pub(crate) fn history_bytes(&self) -> usize {
        let replaced = self.previous.as_ref().map_or(0, |object| object.size());
        match self.kind {
            EventKind::Deleted => replaced + self.object.size(),
            EventKind::Created | EventKind::Updated => replaced,
        }
    }
}

/// The bytes to store, made by the caller once the revision is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The object. Its capacity should equal its length (`Vec::into_boxed_slice`), it may be kept for long.
    pub value: Bytes,
    /// The caller's index.
    pub meta: Bytes,
}

/// What must hold for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The key does not exist.
    Absent,
    /// The key exists and this is its current revision.
    Revision(u64),
}

/// The keys of a table that a list covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range<'a> {
    /// The whole table.
    All,
    /// The keys that start with this namespace and a slash.
    Namespace(&'a str),
    /// This key alone.
    Key(&'a str),
}

/// The answer to a list: the state of a range at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The revision this is the state of.
    pub revision: u64,
    /// In the order of the keys' bytes.
    pub objects: Vec<Arc<Object>>,
    /// How many follow in the range after the last one returned; 0 when complete.
    pub remaining: usize,
}

/// Why a write did not happen.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The key should have been absent.
    #[error("the key {} exists", .0.key)]
    Exists(Arc<Object>),
    /// There is no such key.
    #[error("the key does not exist")]
    Missing,
    /// The key has another revision than demanded.
    #[error("the key {} has revision {}", .0.key, .0.revision)]
    Changed(Arc<Object>),
    /// The journal failed. Says why and what to do.
    #[error("{0}")]
    Unavailable(String),
}

/// The revision asked for has left the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history before revision {revision} is gone")]
pub struct Compacted {
    /// The oldest revision that can still be asked for.
    pub revision: u64,
}

/// A watcher was so slow that events it had not read have left the history. It stays in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the watch is complete to revision {complete_to} only, the history before revision {compacted} is gone"
)]
pub struct Lagged {
    /// All events up to here were delivered.
    pub complete_to: u64,
    /// The oldest revision a watch could still start from.
    pub compacted: u64,
}
