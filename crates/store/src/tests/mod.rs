//! Tests of the store in memory and on disk.

mod damage;
mod durable;
mod memory;
mod model;
mod racing;
mod sealing;
mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::{Encoded, Object, Options, Precondition, Range, Store, WriteError};

/// A value that names its revision.
pub(crate) fn encoded(text: &str) -> impl FnOnce(u64, u64) -> Encoded + use<> {
    let text = text.to_owned();
    move |revision, created| Encoded {
        value: Bytes::from(format!("{text}@{revision}/{created}")),
        meta: Bytes::from(format!("{revision}")),
    }
}

pub(crate) fn last_words(revision: u64) -> Encoded {
    Encoded { value: Bytes::from(format!("deleted@{revision}")), meta: Bytes::from(format!("{revision}")) }
}

pub(crate) async fn create(store: &Store, key: &str) -> Arc<Object> {
    store.put("pods", key, Precondition::Absent, encoded(key)).await.unwrap()
}

pub(crate) async fn update(store: &Store, key: &str) -> Arc<Object> {
    let current = store.get("pods", key).await.unwrap();
    store.put("pods", key, Precondition::Revision(current.revision), encoded(key)).await.unwrap()
}

pub(crate) async fn delete(store: &Store, key: &str) -> Arc<Object> {
    let current = store.get("pods", key).await.unwrap();
    store.delete("pods", key, current.revision, last_words).await.unwrap()
}

pub(crate) async fn keys(store: &Store, range: Range<'_>) -> Vec<String> {
    let listing = store.list("pods", range, None, 0).await;
    listing.objects.iter().map(|object| object.key.to_string()).collect()
}

/// A disk that fails on demand.
#[derive(Default)]
pub(crate) struct Faults {
    /// Bytes that can still be written, less one; 0 = no limit.
    space: AtomicU64,
    sync_fails: std::sync::atomic::AtomicBool,
}

impl Faults {
    pub(crate) fn limit(&self, bytes: u64) {
        self.space.store(bytes + 1, Ordering::SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.space.store(0, Ordering::SeqCst);
        self.sync_fails.store(false, Ordering::SeqCst);
    }

    pub(crate) fn fail_syncs(&self) {
        self.sync_fails.store(true, Ordering::SeqCst);
    }

    /// Writes what still fits and fails, or does nothing.
    pub(crate) fn write(&self, file: &mut std::fs::File, bytes: &[u8]) -> std::io::Result<()> {
        let space = self.space.load(Ordering::SeqCst);
        let Some(left) = space.checked_sub(1) else { return Ok(()) };
        if let Some(left) = left.checked_sub(bytes.len() as u64) {
            self.limit(left);
            return Ok(());
        }
        std::io::Write::write_all(file, &bytes[..left as usize])?;
        self.limit(0);
        Err(rustix::io::Errno::NOSPC.into())
    }

    pub(crate) fn sync(&self) -> std::io::Result<()> {
        if self.sync_fails.load(Ordering::SeqCst) { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }
}

/// A time that tests set, in seconds.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(crate) fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    pub(crate) fn options(&self) -> Options {
        let hand = self.0.clone();
        let now = move || Duration::from_secs(hand.load(Ordering::Relaxed));
        Options { now: Arc::new(now), ..Options::default() }
    }
}

pub(crate) fn changed(result: Result<Arc<Object>, WriteError>) -> u64 {
    match result {
        Err(WriteError::Changed(current)) => current.revision,
        other => panic!("expected Changed, got {other:?}"),
    }
}
