//! What workers show of themselves.

use std::fmt::Display;

use serde::Serialize;
use tokio::time::Instant;

use super::Inspector;
use crate::queue::QueueSnapshot;
use crate::reconcile::Class;

/// The workers of a controller and their queue at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSnapshot {
    /// Name of the controller.
    pub controller: String,
    /// Reconciles that can run at one time.
    pub workers: usize,
    /// What runs now.
    pub in_flight: Vec<InFlight>,
    /// Keys whose last reconcile failed.
    pub failing: usize,
    /// Of those, the ones that are not retried until something happens.
    pub parked: usize,
    /// The first failing keys, parked ones before others.
    pub failures: Vec<FailingKey>,
    /// What is to come.
    pub queue: QueueSnapshot,
}

/// One reconcile that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// Of what.
    pub key: String,
    /// For how long.
    pub seconds: f64,
    /// How often it failed before.
    pub retries: u32,
    /// It should have been ended by its timeout, but blocks its thread.
    pub overdue: bool,
}

/// One key whose last reconcile failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingKey {
    /// The key.
    pub key: String,
    /// What went wrong last.
    pub error: String,
    /// Whether trying again can help: `transient`, `permanent` or `unknown`.
    pub class: &'static str,
    /// Retries before the last failure.
    pub retries: u32,
    /// Not retried until something happens.
    pub parked: bool,
    /// Seconds since its first failure.
    pub since_seconds: f64,
}

impl<K: Display + Ord + Clone> Inspector<K> {
    /// What runs now.
    pub fn in_flight(&self) -> Vec<InFlight> {
        let now = Instant::now();
        let timeout = self.shared.settings().timeout;
        self.shared.running(|running| {
            let time = now.saturating_duration_since(running.since);
            InFlight {
                key: running.taken.key().to_string(),
                seconds: time.as_secs_f64(),
                retries: running.taken.retries(),
                overdue: time > timeout,
            }
        })
    }

    /// Everything, with at most so many keys of each sort.
    pub fn snapshot(&self, limit: usize) -> WorkerSnapshot {
        let now = Instant::now();
        let (failing, parked, failures) = self.shared.failures.read(|keys| {
            let of = |parked: bool| keys.iter().filter(move |(_, failure)| failure.parked == parked);
            let shown = of(true).chain(of(false)).take(limit).map(|(key, failure)| FailingKey {
                key: key.to_string(),
                error: failure.error.clone(),
                class: class_name(failure.class),
                retries: failure.retries,
                parked: failure.parked,
                since_seconds: now.saturating_duration_since(failure.since).as_secs_f64(),
            });
            (keys.len(), of(true).count(), shown.collect())
        });
        WorkerSnapshot {
            controller: self.shared.name.clone(),
            workers: self.shared.settings().max_concurrent.max(1),
            in_flight: self.in_flight(),
            failing,
            parked,
            failures,
            queue: self.shared.queue.snapshot(limit),
        }
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Transient => "transient",
        Class::Permanent => "permanent",
        Class::Unknown => "unknown",
    }
}
