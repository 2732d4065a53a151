//! Keeps one record up to date with something in memory.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Error, Record, StateStore, Version};
use crate::manager::Stop;

/// Writes a state at intervals, when it changed.
pub struct Synchronizer {
    store: Arc<dyn StateStore>,
    key: String,
    interval: Duration,
    based_on: Option<Version>,
    last: Option<Value>,
}

/// What came of one look.
#[derive(Debug, PartialEq)]
pub enum Synced {
    /// It is stored as it is.
    Unchanged,
    /// It was written.
    Saved(Record),
    /// Somebody else wrote meanwhile: ours is stale and was not written. None when the record was deleted.
    Stale(Option<Record>),
}

impl Synchronizer {
    /// Keeps `key` up to date. Nothing is known of what is stored: the first look tells if there is something.
    pub fn new(store: Arc<dyn StateStore>, key: &str, interval: Duration) -> Synchronizer {
        Synchronizer { store, key: key.to_owned(), interval, based_on: None, last: None }
    }

    /// What is stored; the next writes are based on it.
    pub async fn load(&mut self) -> Result<Option<Record>, Error> {
        let record = self.store.load(&self.key).await?;
        self.adopt(record.as_ref());
        Ok(record)
    }

    /// Writes that follow are based on this record: its content has been taken over.
    pub fn adopt(&mut self, record: Option<&Record>) {
        self.based_on = record.map(|record| record.version.clone());
        self.last = record.map(|record| record.value.clone());
    }

    /// Writes `state` if it differs from what is stored. A stale state stays stale until the newer one is
    /// [adopted](Synchronizer::adopt).
    pub async fn sync(&mut self, state: Value) -> Result<Synced, Error> {
        if self.last.as_ref() == Some(&state) {
            return Ok(Synced::Unchanged);
        }
        match self.store.save(&self.key, state.clone(), self.based_on.as_ref()).await {
            Ok(record) => {
                self.adopt(Some(&record));
                Ok(Synced::Saved(record))
            }
            Err(Error::Conflict { .. }) => {
                let stored = self.store.load(&self.key).await?;
                // Our own write, whose answer was lost.
                if let Some(record) = stored.as_ref().filter(|record| record.value == state) {
                    self.adopt(Some(record));
                    return Ok(Synced::Unchanged);
                }
                Ok(Synced::Stale(stored))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what `state` gives, at every interval and once more at the end. `newer` is told of a record that
    /// somebody else wrote, and says whether it has taken it over.
    pub async fn run(
        mut self,
        stop: Stop,
        state: impl Fn() -> Value + Send,
        newer: impl Fn(Option<&Record>) -> bool + Send,
    ) {
        loop {
            let last = tokio::select! {
                biased;
                () = stop.requested() => true,
                () = tokio::time::sleep(self.interval) => false,
            };
            match self.sync(state()).await {
                Ok(Synced::Unchanged | Synced::Saved(_)) => {}
                Ok(Synced::Stale(record)) => {
                    tracing::warn!(key = self.key, "the state was written by somebody else, ours is stale");
                    if newer(record.as_ref()) {
                        self.adopt(record.as_ref());
                    }
                }
                Err(error) => tracing::error!(key = self.key, %error, "the state was not saved"),
            }
            if last {
                return;
            }
        }
    }
}
