//! Figures about one informer.

use std::sync::atomic::{AtomicU64, Ordering};

use super::delta::ChangeKind;

/// Counters since the informer began.
#[derive(Debug, Default)]
pub struct Stats {
    /// Bytes of lists and events.
    pub received: AtomicU64,
    /// Lists begun.
    pub lists: AtomicU64,
    /// Failures of lists and watches.
    pub troubles: AtomicU64,
    /// Bookmarks.
    pub bookmarks: AtomicU64,
    /// Objects that came into the cache.
    pub added: AtomicU64,
    /// New versions.
    pub modified: AtomicU64,
    /// Objects that were deleted.
    pub deleted: AtomicU64,
    /// Objects that left the scope.
    pub evicted: AtomicU64,
    /// Objects of lists and events that were held already.
    pub unchanged: AtomicU64,
    /// Events that were older than what is held.
    pub stale: AtomicU64,
    /// Objects without a name, which nobody can hold.
    pub nameless: AtomicU64,
    /// Bodies decoded.
    pub decoded: AtomicU64,
    /// Bodies that do not have the shape of their type.
    pub malformed: AtomicU64,
}

impl Stats {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_change(&self, change: ChangeKind) {
        Stats::count(match change {
            ChangeKind::Added => &self.added,
            ChangeKind::Modified => &self.modified,
            ChangeKind::Deleted => &self.deleted,
            ChangeKind::Evicted => &self.evicted,
        });
    }
}
