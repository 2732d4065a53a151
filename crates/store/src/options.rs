//! Settings of a store and what it tells about itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::seal::Seal;

/// Settings of a store.
#[derive(Clone)]
pub struct Options {
    /// At most so many events are kept.
    pub history_events: usize,
    /// At most so many bytes of replaced and deleted versions are kept.
    pub history_bytes: usize,
    /// Events older than this are dropped.
    pub history_age: Duration,
    /// The time that `history_age` is measured with. Should not go back.
    pub now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The revision of the empty store; the first write gets the next one. Not used when there is data on disk.
    pub first_revision: u64,
    /// A snapshot is written when the journal is larger than this and than the live data.
    pub snapshot_bytes: u64,
    /// Seals values on disk. Values that were written without it are read as they are.
    pub seal: Option<Arc<dyn Seal>>,
    #[cfg(test)]
    pub(crate) faults: Arc<crate::tests::Faults>,
}

impl Default for Options {
    fn default() -> Options {
        let start = Instant::now();
        Options {
            history_events: 100_000,
            history_bytes: 64 << 20,
            history_age: Duration::from_secs(300),
            now: Arc::new(move || start.elapsed()),
            first_revision: 1,
            snapshot_bytes: 64 << 20,
            seal: None,
            #[cfg(test)]
            faults: Arc::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("history_events", &self.history_events)
            .field("history_bytes", &self.history_bytes)
            .field("history_age", &self.history_age)
            .field("first_revision", &self.first_revision)
            .field("snapshot_bytes", &self.snapshot_bytes)
            .finish_non_exhaustive()
    }
}

/// Figures about a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Live objects.
    pub objects: usize,
    /// Bytes of the live objects' values and metas.
    pub bytes: u64,
    /// The latest committed revision.
    pub revision: u64,
    /// The newest revision whose event is no longer kept.
    pub compacted: u64,
    /// Open watchers.
    pub watchers: usize,
    /// Events kept.
    pub history_events: usize,
    /// Bytes only the history keeps alive.
    pub history_bytes: usize,
    /// Writes that wait for the disk.
    pub pending: usize,
    /// Why writes are refused, if they are.
    pub refused: Option<String>,
    /// Bytes in the journal's segments (0 in memory mode, as all below).
    pub journal_bytes: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Seconds spent in them.
    pub sync_seconds: f64,
    /// The longest one.
    pub sync_seconds_max: f64,
    /// Snapshots written since the start.
    pub snapshots: u64,
}
