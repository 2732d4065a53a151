//! The writer's side: which revision is next, which writes wait for the disk, and the window of history.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::object::{Event, EventKind, Object};
use crate::options::Options;
use crate::table::Table;

/// State that writers share, under one mutex. Readers do not need it.
pub(crate) struct Writer {
    /// The newest revision given to a write, committed or not.
    pub last: u64,
    /// Writes that are not yet durable, in the order of their revisions. Always empty in memory mode.
    pub pending: VecDeque<Pending>,
    /// The newest pending version of a key, per table.
    overlay: HashMap<Arc<str>, HashMap<Arc<str>, Unsettled>>,
    /// Why writes are refused.
    pub refused: Option<Arc<str>>,
    /// The journal's thread ends when nothing is queued any more.
    pub closing: bool,
    /// Live objects.
    pub objects: usize,
    /// Bytes of the live objects.
    pub bytes: u64,
    window: VecDeque<Entry>,
    window_bytes: usize,
}

/// A write that is not yet durable. Readers do not see it, preconditions of later writes do.
pub(crate) struct Pending {
    pub table: Arc<Table>,
    pub event: Arc<Event>,
    /// The write itself, and those whose precondition failed because of it.
    pub waiting: Vec<oneshot::Sender<Settled>>,
}

/// How a pending write ended: committed, or not and why.
pub(crate) type Settled = Result<(), Arc<str>>;

struct Unsettled {
    revision: u64,
    object: Option<Arc<Object>>,
}

/// An event in the window of history; the event itself is in its table's ring.
struct Entry {
    revision: u64,
    table: Arc<Table>,
    at: Duration,
    bytes: usize,
}

impl Writer {
    pub(crate) fn new(revision: u64, objects: usize, bytes: u64) -> Writer {
        Writer {
            last: revision,
            pending: VecDeque::new(),
            overlay: HashMap::new(),
            refused: None,
            closing: false,
            objects,
            bytes,
            window: VecDeque::new(),
            window_bytes: 0,
        }
    }

    /// The version that a precondition is checked against, and the revision of the pending write that made it so.
    pub(crate) fn current(&self, table: &Table, key: &str) -> (Option<Arc<Object>>, Option<u64>) {
        match self.overlay.get(&table.name).and_then(|keys| keys.get(key)) {
            Some(unsettled) => (unsettled.object.clone(), Some(unsettled.revision)),
            None => (table.get(key), None),
        }
    }

    /// Queues a write that readers may see once it is durable.
    pub(crate) fn enqueue(&mut self, pending: Pending) {
        let event = &pending.event;
        let object = (event.kind != EventKind::Deleted).then(|| event.object.clone());
        let keys = self.overlay.entry(pending.table.name.clone()).or_default();
        keys.insert(event.object.key.clone(), Unsettled { revision: event.revision, object });
        self.pending.push_back(pending);
    }

    /// Takes the pending writes up to a revision out of the queue, to be committed.
    pub(crate) fn dequeue(&mut self, revision: u64) -> Vec<Pending> {
        let count = self.pending.partition_point(|pending| pending.event.revision <= revision);
        let settled: Vec<Pending> = self.pending.drain(..count).collect();
        for Pending { table, event, .. } in &settled {
            if let Some(keys) = self.overlay.get_mut(&table.name)
                && keys.get(&event.object.key).is_some_and(|unsettled| unsettled.revision == event.revision)
            {
                keys.remove(&event.object.key);
            }
        }
        settled
    }

    /// Takes back all pending writes: what is committed is the state again. Their revisions, which nobody has seen,
    /// are given out anew.
    pub(crate) fn roll_back(&mut self, committed: u64) -> VecDeque<Pending> {
        self.overlay.clear();
        self.last = committed;
        std::mem::take(&mut self.pending)
    }

    /// Adds a committed event to the window and the counts.
    pub(crate) fn account(&mut self, table: &Arc<Table>, event: &Event, at: Duration) {
        let size = event.object.size() as u64;
        let replaced = event.previous.as_ref().map_or(0, |previous| previous.size() as u64);
        match event.kind {
            EventKind::Created => {
                self.objects += 1;
                self.bytes += size;
            }
            EventKind::Updated => self.bytes = (self.bytes + size).saturating_sub(replaced),
            EventKind::Deleted => {
                self.objects = self.objects.saturating_sub(1);
                self.bytes = self.bytes.saturating_sub(replaced);
            }
        }
        let bytes = event.history_bytes();
        self.window_bytes += bytes;
        self.window.push_back(Entry { revision: event.revision, table: table.clone(), at, bytes });
    }

    /// Drops the events that are too many, too large or too old; returns the newest revision dropped.
    pub(crate) fn trim(&mut self, options: &Options, now: Duration) -> Option<u64> {
        let mut dropped = None;
        while let Some(oldest) = self.window.front()
            && (self.window.len() > options.history_events
                || self.window_bytes > options.history_bytes
                || now.saturating_sub(oldest.at) > options.history_age)
        {
            dropped = self.drop_oldest();
        }
        dropped
    }

    /// Drops the events up to a revision.
    pub(crate) fn trim_to(&mut self, revision: u64) {
        while self.window.front().is_some_and(|oldest| oldest.revision <= revision) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) -> Option<u64> {
        let oldest = self.window.pop_front()?;
        self.window_bytes -= oldest.bytes;
        oldest.table.ring.write().drop_oldest(oldest.revision);
        Some(oldest.revision)
    }

    /// Events in the window, and the bytes that only they keep alive.
    pub(crate) fn window(&self) -> (usize, usize) {
        (self.window.len(), self.window_bytes)
    }
}
