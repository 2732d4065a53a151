//! The state of a store and the one way events become visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::oneshot;

use crate::object::Event;
use crate::options::Options;
use crate::pages::Pages;
use crate::table::Table;
use crate::writer::Writer;

/// What stores, watchers and the journal's thread share. Locks are taken in the order `writer`, `tables`, a table's.
pub(crate) struct Shared {
    pub options: Options,
    pub writer: Mutex<Writer>,
    /// Signals the journal's thread that there is something to write.
    pub queued: Condvar,
    pub watchers: AtomicUsize,
    tables: RwLock<BTreeMap<Arc<str>, Arc<Table>>>,
    /// The newest revision that readers may see.
    visible: AtomicU64,
    /// The newest revision whose event is no longer kept.
    compacted: AtomicU64,
    /// Where the history of tables begins that have none yet.
    floor: AtomicU64,
    /// Who waits for a revision to become visible.
    awaited: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
}

/// Tables with new events, whose watchers are to be woken once all locks are free.
#[derive(Default)]
pub(crate) struct Touched(Vec<Arc<Table>>);

impl Shared {
    /// A store that begins with these tables at this revision; `floor` is where its history begins.
    pub(crate) fn new(
        options: Options,
        revision: u64,
        floor: u64,
        tables: BTreeMap<Arc<str>, Pages>,
    ) -> Shared {
        let objects = tables.values().map(Pages::len).sum();
        let bytes = tables.values().map(Pages::bytes).sum();
        let tables = tables
            .into_iter()
            .map(|(name, pages)| (name.clone(), Arc::new(Table::new(name, pages, floor))))
            .collect();
        Shared {
            options,
            writer: Mutex::new(Writer::new(revision, objects, bytes)),
            queued: Condvar::new(),
            watchers: AtomicUsize::new(0),
            tables: RwLock::new(tables),
            visible: AtomicU64::new(revision),
            compacted: AtomicU64::new(floor),
            floor: AtomicU64::new(floor),
            awaited: Mutex::default(),
        }
    }

    /// The latest committed revision.
    pub(crate) fn revision(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The newest revision whose event is no longer kept.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// A table, if anything was ever done with it.
    pub(crate) fn table(&self, resource: &str) -> Option<Arc<Table>> {
        self.tables.read().get(resource).cloned()
    }

    /// A table, created if need be.
    pub(crate) fn table_or_new(&self, resource: &str) -> Arc<Table> {
        if let Some(table) = self.table(resource) {
            return table;
        }
        let mut tables = self.tables.write();
        let name: Arc<str> = resource.into();
        let floor = self.floor.load(Ordering::Acquire);
        let fresh = || Arc::new(Table::new(name.clone(), Pages::default(), floor));
        tables.entry(name.clone()).or_insert_with(fresh).clone()
    }

    /// All tables, by name.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Makes an event visible and trims the history. `writer` is the state under `self.writer`.
    pub(crate) fn commit(
        &self,
        writer: &mut Writer,
        table: &Arc<Table>,
        event: Arc<Event>,
        touched: &mut Touched,
    ) {
        let now = (self.options.now)();
        writer.account(table, &event, now);
        table.commit(event, &self.visible);
        self.raise_compacted(writer.trim(&self.options, now));
        if !touched.0.iter().any(|present| Arc::ptr_eq(present, table)) {
            touched.0.push(table.clone());
        }
    }

    /// Wakes those who wait for the events committed. No lock may be held.
    pub(crate) fn wake(&self, touched: &Touched) {
        for table in &touched.0 {
            table.wake();
        }
        let revision = self.revision();
        let reached: Vec<_> = self.awaited.lock().extract_if(.., |(at, _)| *at <= revision).collect();
        for (_, sender) in reached {
            let _ = sender.send(());
        }
    }

    /// Resolves when a revision is visible; None if it already is.
    pub(crate) fn await_revision(&self, revision: u64) -> Option<oneshot::Receiver<()>> {
        let mut awaited = self.awaited.lock();
        if self.revision() >= revision {
            return None;
        }
        let (reached, receiver) = oneshot::channel();
        awaited.retain(|(_, other)| !other.is_closed());
        awaited.push((revision, reached));
        Some(receiver)
    }

    /// Drops what is too old, for readers of the past.
    pub(crate) fn trim(&self) {
        let now = (self.options.now)();
        let mut writer = self.writer.lock();
        self.raise_compacted(writer.trim(&self.options, now));
    }

    /// Drops the history up to a revision, of all tables.
    pub(crate) fn compact(&self, revision: u64) {
        let mut writer = self.writer.lock();
        let revision = revision.min(self.revision());
        writer.trim_to(revision);
        self.floor.fetch_max(revision, Ordering::AcqRel);
        for table in self.tables() {
            let mut ring = table.ring.write();
            ring.floor = ring.floor.max(revision);
        }
        self.raise_compacted(Some(revision));
    }

    fn raise_compacted(&self, revision: Option<u64>) {
        if let Some(revision) = revision {
            self.compacted.fetch_max(revision, Ordering::AcqRel);
        }
    }
}
