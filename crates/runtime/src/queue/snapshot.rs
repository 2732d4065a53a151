//! What the queue shows of itself.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;

use super::entries::{Entry, Place};
use super::{Priority, Queue};

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ready keys.
    pub depth: usize,
    /// Keys that wait for a time.
    pub waiting: usize,
    /// Keys on workers.
    pub running: usize,
    /// Keys that became ready, since the start.
    pub adds: u64,
    /// Retries, since the start.
    pub retries: u64,
}

/// The queue at one moment, for inspection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSnapshot {
    /// Whether keys can still be added.
    pub accepting: bool,
    /// Ready keys that something changed for.
    pub live: usize,
    /// Ready keys of re-lists and resyncs.
    pub resync: usize,
    /// Keys that wait for a time.
    pub waiting: usize,
    /// Keys on workers.
    pub running: usize,
    /// Keys that became ready, since the start.
    pub adds: u64,
    /// Retries, since the start.
    pub retries: u64,
    /// The first of the ready and waiting keys.
    pub keys: Vec<QueuedKey>,
}

/// One key in the queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedKey {
    /// The key.
    pub key: String,
    /// Why it is there.
    pub priority: Priority,
    /// How often it was retried.
    pub retries: u32,
    /// Seconds since it became ready or began to wait.
    pub age_seconds: f64,
    /// Seconds until it becomes ready, for a key that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_seconds: Option<f64>,
}

impl<K> Queue<K> {
    /// Numbers for metrics.
    pub fn stats(&self) -> Stats {
        let core = self.shared.core.lock();
        Stats {
            depth: core.lanes.len(),
            waiting: core.waiting,
            running: core.running,
            adds: core.adds,
            retries: core.retries,
        }
    }

    /// The queue as it is, with at most so many ready and so many waiting keys.
    pub fn snapshot(&self, limit: usize) -> QueueSnapshot
    where
        K: Display,
    {
        let now = self.shared.now();
        let core = self.shared.core.lock();
        let lane = |priority| core.lanes.iter(&core.entries, priority);
        let ready = lane(Priority::Live).chain(lane(Priority::Resync)).take(limit);
        let waiting = core.timers.values().flat_map(|list| core.entries.iter(*list)).take(limit);
        QueueSnapshot {
            accepting: !core.closed,
            live: core.lanes.len_of(Priority::Live),
            resync: core.lanes.len_of(Priority::Resync),
            waiting: core.waiting,
            running: core.running,
            adds: core.adds,
            retries: core.retries,
            keys: ready.chain(waiting).map(|entry| queued(entry, now)).collect(),
        }
    }
}

fn queued<K: Display>(entry: &Entry<K>, now: Duration) -> QueuedKey {
    let due = match entry.place {
        Place::Waiting => Some(Duration::from_millis(entry.due).saturating_sub(now).as_secs_f64()),
        Place::Ready | Place::Nowhere => None,
    };
    QueuedKey {
        key: entry.key.to_string(),
        priority: entry.priority,
        retries: entry.retries,
        age_seconds: now.saturating_sub(entry.since()).as_secs_f64(),
        due_seconds: due,
    }
}
