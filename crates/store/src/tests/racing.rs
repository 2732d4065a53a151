//! Readers and watchers while others write: every pair of a list and a watch fits together at every moment.

use std::thread;

use super::model::{State, block_on};
use super::*;
use crate::{EventKind, Listing};

/// How far the follower has come. Writers wait for it lest it lags: comparing takes longer than writing.
#[derive(Default)]
struct Followed(AtomicU64);

const AHEAD: u64 = 1000;

/// Writes, in several threads, while `check` runs in this one.
fn while_writing(store: &Store, check: impl FnOnce(&Followed)) {
    // Ends the writers, also when the check panics.
    struct Finish<'a>(&'a Followed);
    impl Drop for Finish<'_> {
        fn drop(&mut self) {
            self.0.0.store(u64::MAX, Ordering::Relaxed);
        }
    }
    let followed = Followed::default();
    thread::scope(|scope| {
        let _finish = Finish(&followed);
        for writer in 0..3u64 {
            let followed = &followed;
            scope.spawn(move || block_on(write(store, writer, followed)));
        }
        check(&followed);
    });
}

/// Creates, updates and deletes keys that other writers want too.
async fn write(store: &Store, writer: u64, followed: &Followed) {
    let mut number = writer;
    loop {
        match followed.0.load(Ordering::Relaxed) {
            u64::MAX => return,
            followed if store.revision() > followed + AHEAD => {
                thread::yield_now();
                continue;
            }
            _ => {}
        }
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = format!("{}/{}", (number >> 33) % 3, (number >> 40) % 50);
        let table = if (number >> 50).is_multiple_of(4) { "nodes" } else { "pods" };
        let written = match store.get(table, &key).await {
            None => store.put(table, &key, Precondition::Absent, encoded("x")).await,
            Some(found) if (number >> 55).is_multiple_of(3) => {
                store.delete(table, &key, found.revision, last_words).await
            }
            Some(found) => store.put(table, &key, Precondition::Revision(found.revision), encoded("x")).await,
        };
        assert!(!matches!(written, Err(WriteError::Unavailable(_))), "{written:?}");
    }
}

fn state_of(listing: &Listing) -> State {
    listing.objects.iter().map(|object| (object.key.to_string(), object.clone())).collect()
}

/// Follows a table from a list on; compares with a list of the past after every batch.
async fn follow(store: &Store, table: &str, batches: usize, followed: &Followed) {
    let listing = store.list(table, Range::All, None, 0).await;
    assert!(listing.objects.iter().all(|object| object.revision <= listing.revision));
    let mut state = state_of(&listing);
    let mut watcher = store.watch(table, listing.revision).unwrap();
    let mut complete_to = listing.revision;
    followed.0.store(complete_to, Ordering::Relaxed);
    for _ in 0..batches {
        let batch = watcher.next().await.unwrap();
        for event in &batch.events {
            assert!(event.revision > complete_to && event.revision <= batch.revision);
            let key = event.object.key.to_string();
            let replaced = match event.kind {
                EventKind::Deleted => state.remove(&key),
                EventKind::Created | EventKind::Updated => state.insert(key, event.object.clone()),
            };
            assert_eq!(replaced, event.previous);
        }
        complete_to = batch.revision;
        let past = store.list_at(batch.revision, table, Range::All, None, 0).await.unwrap();
        assert_eq!((past.revision, state_of(&past)), (batch.revision, state.clone()));
        let progress = watcher.progress();
        assert!(progress >= complete_to && progress <= store.revision());
        let past = store.list_at(progress, table, Range::All, None, 0).await.unwrap();
        assert_eq!(state_of(&past), state, "progress promises that nothing happened up to it");
        complete_to = progress;
        followed.0.store(complete_to, Ordering::Relaxed);
    }
}

#[test]
fn lists_and_watches_fit_together_in_memory() {
    let store = Store::memory(Options::default());
    while_writing(&store, |followed| {
        for _ in 0..20 {
            block_on(follow(&store, "pods", 30, followed));
            block_on(follow(&store, "nodes", 10, followed));
        }
    });
}

#[test]
fn lists_and_watches_fit_together_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { snapshot_bytes: 16 << 10, ..Options::default() }).unwrap();
    while_writing(&store, |followed| {
        for _ in 0..5 {
            block_on(follow(&store, "pods", 15, followed));
            block_on(follow(&store, "nodes", 5, followed));
        }
    });
    let (revision, pods) = (store.revision(), block_on(store.list("pods", Range::All, None, 0)));
    drop(store);
    let store = Store::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.revision(), revision);
    assert_eq!(block_on(store.list("pods", Range::All, None, 0)), pods);
}
