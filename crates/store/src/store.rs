//! The store's interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use crate::dir::{DataDir, OpenError};
use crate::format::MAX_RECORD;
use crate::journal::{CLOSED, Journal};
use crate::object::{Compacted, Encoded, Event, EventKind, Listing, Object, Precondition, Range, WriteError};
use crate::options::{Options, Stats};
use crate::read;
use crate::recovery::{Recovered, recover};
use crate::shared::{Shared, Touched};
use crate::table::Table;
use crate::watcher::Watcher;
use crate::writer::{Pending, Settled, Writer};

/// A revisioned store. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    /// None in memory mode.
    journal: Option<Arc<Journal>>,
}

/// How far a write got without waiting.
enum Attempt {
    Committed(Arc<Object>),
    /// In the journal's queue.
    Queued(Arc<Object>, oneshot::Receiver<Settled>),
    /// The precondition does not hold because of a write that may still fail: try again when that is known.
    Undecided(oneshot::Receiver<Settled>),
}

impl Store {
    /// A store that lives in memory only. Writes never wait.
    pub fn memory(options: Options) -> Store {
        let revision = options.first_revision;
        Store { shared: Arc::new(Shared::new(options, revision, 0, BTreeMap::new())), journal: None }
    }

    /// A store that keeps its data in a directory, which is created if need be. Writes resolve, and are seen by others,
    /// when they are on disk. Starts without history: what was committed before can be read, not watched.
    pub fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        let dir = DataDir::open(dir)?;
        let Recovered { tables, revision, segment, closed } =
            recover(&dir, options.first_revision, options.seal.as_deref())?;
        let shared = Arc::new(Shared::new(options, revision, revision, tables));
        let journal = Journal::start(dir, segment, closed, shared.clone())?;
        Ok(Store { shared, journal: Some(Arc::new(journal)) })
    }

    /// Creates a key or replaces its version. `encode` gets the revision of this write and the one that created the
    /// key; it runs only if the precondition holds, under the writers' lock, so it should do no more than copy.
    ///
    /// If the future is dropped, the write may still happen.
    pub async fn put(
        &self,
        resource: &str,
        key: &str,
        pre: Precondition,
        encode: impl FnOnce(u64, u64) -> Encoded,
    ) -> Result<Arc<Object>, WriteError> {
        let mut encode = Some(encode);
        let table = self.shared.table_or_new(resource);
        loop {
            let attempt = self.attempt(&table, key, pre, |revision, current| {
                let (key, created) = match current {
                    Some(current) => (current.key.clone(), current.created),
                    None => (key.into(), revision),
                };
                let kind = if current.is_some() { EventKind::Updated } else { EventKind::Created };
                let encoded = encode.take().map(|encode| encode(revision, created)).unwrap_or_default();
                (kind, Object { key, created, revision, value: encoded.value, meta: encoded.meta })
            })?;
            if let Some(settled) = settle(attempt).await {
                return settled;
            }
        }
    }

    /// Deletes a key that has this revision. `encode` gets the revision of the deletion and makes the final object,
    /// which is returned and reported to watchers.
    pub async fn delete(
        &self,
        resource: &str,
        key: &str,
        revision: u64,
        encode: impl FnOnce(u64) -> Encoded,
    ) -> Result<Arc<Object>, WriteError> {
        let mut encode = Some(encode);
        let table = self.shared.table(resource).ok_or(WriteError::Missing)?;
        loop {
            let attempt =
                self.attempt(&table, key, Precondition::Revision(revision), |revision, current| {
                    let (key, created) = current.map_or_else(
                        || (key.into(), revision),
                        |current| (current.key.clone(), current.created),
                    );
                    let encoded = encode.take().map(|encode| encode(revision)).unwrap_or_default();
                    let object = Object { key, created, revision, value: encoded.value, meta: encoded.meta };
                    (EventKind::Deleted, object)
                })?;
            if let Some(settled) = settle(attempt).await {
                return settled;
            }
        }
    }

    /// Checks the precondition and, if it holds, makes the object and commits or queues it.
    fn attempt(
        &self,
        table: &Arc<Table>,
        key: &str,
        pre: Precondition,
        make: impl FnOnce(u64, Option<&Object>) -> (EventKind, Object),
    ) -> Result<Attempt, WriteError> {
        let mut writer = self.shared.writer.lock();
        if let Some(reason) = &writer.refused {
            return Err(WriteError::Unavailable(reason.to_string()));
        }
        let (current, unsettled) = writer.current(table, key);
        if let Err(error) = check(pre, current.as_ref()) {
            let waiting = unsettled.and_then(|revision| {
                let at = writer.pending.partition_point(|pending| pending.event.revision < revision);
                writer.pending.get_mut(at)
            });
            let Some(pending) = waiting else { return Err(error) };
            let (sender, receiver) = oneshot::channel();
            pending.waiting.push(sender);
            return Ok(Attempt::Undecided(receiver));
        }
        let revision = writer.last + 1;
        let (kind, object) = make(revision, current.as_deref());
        if self.journal.is_some() && object.size() + object.key.len() + table.name.len() > MAX_RECORD {
            return Err(WriteError::Unavailable(format!(
                "the object has {} bytes, too many to store",
                object.size()
            )));
        }
        let object = Arc::new(object);
        writer.last = revision;
        let event = Arc::new(Event { revision, kind, object: object.clone(), previous: current });
        Ok(self.submit(writer, table, event, object))
    }

    fn submit(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        table: &Arc<Table>,
        event: Arc<Event>,
        object: Arc<Object>,
    ) -> Attempt {
        if self.journal.is_some() {
            let (sender, receiver) = oneshot::channel();
            writer.enqueue(Pending { table: table.clone(), event, waiting: vec![sender] });
            drop(writer);
            self.shared.queued.notify_one();
            return Attempt::Queued(object, receiver);
        }
        let mut touched = Touched::default();
        self.shared.commit(&mut writer, table, event, &mut touched);
        drop(writer);
        self.shared.wake(&touched);
        Attempt::Committed(object)
    }

    /// The current version of a key.
    pub async fn get(&self, resource: &str, key: &str) -> Option<Arc<Object>> {
        self.shared.table(resource)?.get(key)
    }

    /// The current state of a range, in the order of the keys' bytes: at most `limit` objects (0 = all) whose keys
    /// come after `start_after`.
    pub async fn list(
        &self,
        resource: &str,
        range: Range<'_>,
        start_after: Option<&str>,
        limit: usize,
    ) -> Listing {
        read::list(&self.shared, resource, range, start_after, limit)
    }

    /// The state of a range at an older revision. A revision that is not yet reached gives the current state with its
    /// revision: use `wait_for` before.
    pub async fn list_at(
        &self,
        revision: u64,
        resource: &str,
        range: Range<'_>,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Listing, Compacted> {
        read::list_at(&self.shared, revision, resource, range, start_after, limit)
    }

    /// A key as it was at an older revision.
    pub async fn get_at(
        &self,
        revision: u64,
        resource: &str,
        key: &str,
    ) -> Result<Option<Arc<Object>>, Compacted> {
        read::get_at(&self.shared, revision, resource, key)
    }

    /// Watches a table: the events with a revision above `from`, which may lie in the future.
    pub fn watch(&self, resource: &str, from: u64) -> Result<Watcher, Compacted> {
        self.shared.trim();
        let table = self.shared.table_or_new(resource);
        // The watcher reads the ring anew and finds out if this changes meanwhile.
        let floor = table.ring.read().floor;
        if from < floor {
            return Err(Compacted { revision: floor });
        }
        Ok(Watcher::new(self.shared.clone(), table, from))
    }

    /// The latest committed revision.
    pub fn revision(&self) -> u64 {
        self.shared.revision()
    }

    /// The newest revision whose event is no longer kept. A table that was quiet may still have its history.
    pub fn compacted(&self) -> u64 {
        self.shared.compacted()
    }

    /// Resolves when the latest committed revision is at least this one.
    pub async fn wait_for(&self, revision: u64) {
        if let Some(reached) = self.shared.await_revision(revision) {
            let _ = reached.await;
        }
    }

    /// Drops the history up to a revision: reads and watches from before it fail, of all tables.
    pub fn compact(&self, revision: u64) {
        self.shared.compact(revision);
    }

    /// The tables and how many objects each has.
    pub fn resources(&self) -> Vec<(Arc<str>, usize)> {
        self.shared.tables().iter().map(|table| (table.name.clone(), table.objects.read().len())).collect()
    }

    /// Figures for metrics.
    pub fn stats(&self) -> Stats {
        let writer = self.shared.writer.lock();
        let (history_events, history_bytes) = writer.window();
        let mut stats = Stats {
            objects: writer.objects,
            bytes: writer.bytes,
            revision: self.revision(),
            compacted: self.compacted(),
            watchers: self.shared.watchers.load(Ordering::Relaxed),
            history_events,
            history_bytes,
            pending: writer.pending.len(),
            refused: writer.refused.as_ref().map(ToString::to_string),
            ..Stats::default()
        };
        if let Some(journal) = &self.journal {
            journal.describe(&mut stats);
        }
        stats
    }

    #[cfg(test)]
    pub(crate) fn ring_len(&self, resource: &str) -> usize {
        self.shared.table(resource).map_or(0, |table| table.ring.read().len())
    }

    /// Resolves when all writes begun before are settled.
    pub async fn flush(&self) {
        let settled = self.shared.writer.lock().pending.back_mut().map(|pending| {
            let (sender, receiver) = oneshot::channel();
            pending.waiting.push(sender);
            receiver
        });
        if let Some(settled) = settled {
            let _ = settled.await;
        }
    }

    /// Refuses further writes, waits for those under way and lets go of the directory. Reads still work.
    pub fn close(&self) {
        match &self.journal {
            Some(journal) => journal.close(),
            None => {
                let mut writer = self.shared.writer.lock();
                writer.refused.get_or_insert_with(|| CLOSED.into());
            }
        }
    }
}

/// Whether a write may happen.
fn check(pre: Precondition, current: Option<&Arc<Object>>) -> Result<(), WriteError> {
    match (pre, current) {
        (Precondition::Absent, None) => Ok(()),
        (Precondition::Absent, Some(current)) => Err(WriteError::Exists(current.clone())),
        (Precondition::Revision(_), None) => Err(WriteError::Missing),
        (Precondition::Revision(revision), Some(current)) if current.revision == revision => Ok(()),
        (Precondition::Revision(_), Some(current)) => Err(WriteError::Changed(current.clone())),
    }
}

/// Waits for what a write waits for; None = try again.
async fn settle(attempt: Attempt) -> Option<Result<Arc<Object>, WriteError>> {
    match attempt {
        Attempt::Committed(object) => Some(Ok(object)),
        Attempt::Queued(object, settled) => Some(match settled.await {
            Ok(Ok(())) => Ok(object),
            Ok(Err(reason)) => Err(WriteError::Unavailable(reason.to_string())),
            Err(_) => Err(WriteError::Unavailable("the journal has stopped".into())),
        }),
        Attempt::Undecided(settled) => {
            let _ = settled.await;
            None
        }
    }
}
