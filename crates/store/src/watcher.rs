//! Watchers: cursors into a table's ring. They own no buffer, so a reader that is stuck costs nothing.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::object::{Event, Lagged};
use crate::shared::Shared;
use crate::table::Table;

/// A batch is cut after so many events, lest one reader holds up the runtime.
const BATCH: usize = 256;

/// Some events, never none, and how far the watch is complete with them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// In the order of their revisions.
    pub events: Vec<Arc<Event>>,
    /// All events of the table up to this revision have been delivered, this batch included.
    pub revision: u64,
}

/// Reads the events of one table.
pub struct Watcher {
    shared: Arc<Shared>,
    table: Arc<Table>,
    slot: usize,
    complete_to: u64,
}

impl Watcher {
    pub(crate) fn new(shared: Arc<Shared>, table: Arc<Table>, from: u64) -> Watcher {
        shared.watchers.fetch_add(1, Ordering::Relaxed);
        let slot = table.join();
        Watcher { shared, table, slot, complete_to: from }
    }

    /// The next events. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Batch, Lagged> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As `next`.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Batch, Lagged>> {
        if let Some(ready) = self.try_next() {
            return Poll::Ready(ready);
        }
        self.table.wait(self.slot, cx.waker());
        // An event committed before the waker was in place woke nobody.
        match self.try_next() {
            Some(ready) => Poll::Ready(ready),
            None => Poll::Pending,
        }
    }

    /// The events that are there now, if any.
    pub fn try_next(&mut self) -> Option<Result<Batch, Lagged>> {
        let ring = self.table.ring.read();
        if ring.dropped > self.complete_to {
            return Some(Err(Lagged { complete_to: self.complete_to, compacted: ring.floor }));
        }
        if ring.newest() <= self.complete_to {
            return None;
        }
        let rest = ring.after(self.complete_to);
        let complete = rest.len() <= BATCH;
        let events: Vec<_> = rest.take(BATCH).cloned().collect();
        // Under the ring's lock no event of this table can be committed, so it is complete to the store's revision.
        let revision = if complete { self.shared.revision() } else { events.last()?.revision };
        self.complete_to = revision;
        Some(Ok(Batch { events, revision }))
    }

    /// The revision up to which all events of the table have been delivered: the store's own when none is waiting.
    /// For a watch from the future, that revision.
    pub fn progress(&mut self) -> u64 {
        let ring = self.table.ring.read();
        if ring.dropped <= self.complete_to && ring.newest() <= self.complete_to {
            self.complete_to = self.complete_to.max(self.shared.revision());
        }
        self.complete_to
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.table.leave(self.slot);
        self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
