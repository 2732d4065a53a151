//! A revisioned store: tables of keys and opaque bytes under one global revision, with a window of history for
//! watches and reads of the past. Knows nothing of HTTP or JSON.
//!
//! Writes are conditional (the key is absent, or has exactly the given revision) and get the next revision. What a
//! reader or watcher sees is always a committed prefix of the writes; in durable mode "committed" means synced to disk.

mod dir;
mod format;
mod frames;
mod journal;
mod object;
mod options;
mod pages;
mod read;
mod recovery;
mod seal;
mod segment;
mod shared;
mod snapshot;
mod store;
mod table;
mod watcher;
mod writer;

pub use dir::OpenError;
pub use object::{
    Compacted, Encoded, Event, EventKind, Lagged, Listing, Object, Precondition, Range, WriteError,
};
pub use options::{Options, Stats};
pub use seal::{Place, Seal};
pub use store::Store;
pub use watcher::{Batch, Watcher};

#[cfg(test)]
mod tests;
