//! Watches: order, completeness, lag, wake-ups.

use super::*;
use crate::{Compacted, EventKind, Lagged, Watcher};

async fn revisions(watcher: &mut Watcher) -> (Vec<u64>, u64) {
    let batch = watcher.next().await.unwrap();
    (batch.events.iter().map(|event| event.revision).collect(), batch.revision)
}

#[tokio::test]
async fn a_watch_delivers_what_came_after_its_start_and_waits_for_more() {
    let store = Store::memory(Options::default());
    create(&store, "a").await;
    let mut watcher = store.watch("pods", 2).unwrap();
    assert!(watcher.try_next().is_none());
    create(&store, "b").await;
    let updated = update(&store, "a").await;
    let deleted = delete(&store, "a").await;
    let batch = watcher.next().await.unwrap();
    let kinds: Vec<_> = batch.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Created, EventKind::Updated, EventKind::Deleted]);
    assert_eq!((batch.events[2].object.clone(), batch.events[2].previous.clone()), (deleted, Some(updated)));
    assert_eq!(batch.revision, 5);
    let mut waiting = std::pin::pin!(watcher.next());
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("nothing to deliver"),
        () = tokio::task::yield_now() => {}
    }
    create(&store, "c").await;
    assert_eq!(waiting.await.unwrap().events[0].revision, 6);
}

#[tokio::test]
async fn a_waiting_watcher_is_woken() {
    let store = Store::memory(Options::default());
    let watchers: Vec<_> = (0..100)
        .map(|_| {
            let mut watcher = store.watch("pods", 1).unwrap();
            tokio::spawn(async move { revisions(&mut watcher).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(store.stats().watchers, 100);
    create(&store, "a").await;
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), (vec![2], 2));
    }
    assert_eq!(store.stats().watchers, 0);
}

#[tokio::test]
async fn a_watch_of_a_quiet_table_is_complete_to_the_stores_revision_and_does_not_lag() {
    let store = Store::memory(Options { history_events: 10, ..Options::default() });
    let mut quiet = store.watch("secrets", 1).unwrap();
    for number in 0..50 {
        create(&store, &format!("a/{number}")).await;
    }
    assert_eq!(quiet.progress(), 51);
    for number in 50..100 {
        create(&store, &format!("a/{number}")).await;
    }
    assert!(quiet.try_next().is_none());
    store.put("secrets", "a/x", Precondition::Absent, encoded("x")).await.unwrap();
    assert_eq!(quiet.progress(), 51, "an event waits to be read");
    assert_eq!(revisions(&mut quiet).await, (vec![102], 102));
}

#[tokio::test]
async fn a_watch_from_the_future_is_silent_until_then() {
    let store = Store::memory(Options::default());
    let mut watcher = store.watch("pods", 3).unwrap();
    create(&store, "a").await;
    create(&store, "b").await;
    assert!(watcher.try_next().is_none());
    assert_eq!(watcher.progress(), 3);
    create(&store, "c").await;
    assert_eq!(revisions(&mut watcher).await, (vec![4], 4));
}

#[tokio::test]
async fn long_batches_are_cut_and_tell_how_far_they_go() {
    let store = Store::memory(Options::default());
    for number in 0..600 {
        create(&store, &number.to_string()).await;
    }
    let mut watcher = store.watch("pods", 1).unwrap();
    let (first, complete_to) = revisions(&mut watcher).await;
    assert_eq!((first.len(), complete_to), (256, 257));
    assert_eq!(watcher.progress(), 257);
    assert_eq!(revisions(&mut watcher).await.1, 513);
    store.put("secrets", "x", Precondition::Absent, encoded("x")).await.unwrap();
    let (last, complete_to) = revisions(&mut watcher).await;
    assert_eq!((last.len(), complete_to), (88, 602));
}

#[tokio::test]
async fn a_stuck_watcher_holds_nothing_back_and_is_told_that_it_lags() {
    let store = Store::memory(Options { history_events: 20, ..Options::default() });
    let mut stuck = store.watch("pods", 1).unwrap();
    create(&store, "a").await;
    for _ in 0..1000 {
        update(&store, "a").await;
    }
    assert_eq!(store.ring_len("pods"), 20);
    assert_eq!(store.stats().history_events, 20);
    let lagged = Lagged { complete_to: 1, compacted: 982 };
    assert_eq!(stuck.next().await.unwrap_err(), lagged);
    assert_eq!(stuck.next().await.unwrap_err(), lagged);
    assert_eq!(stuck.progress(), 1);
    assert_eq!(store.watch("pods", 981).err(), Some(Compacted { revision: 982 }));
    let mut fresh = store.watch("pods", 982).unwrap();
    assert_eq!(revisions(&mut fresh).await.0.len(), 20);
}

#[tokio::test]
async fn compaction_does_not_disturb_a_watch_that_missed_nothing() {
    let store = Store::memory(Options::default());
    create(&store, "a").await;
    let mut pods = store.watch("pods", 1).unwrap();
    let mut secrets = store.watch("secrets", 1).unwrap();
    store.compact(2);
    assert!(pods.next().await.is_err());
    assert!(secrets.try_next().is_none());
    assert_eq!(store.watch("secrets", 1).err(), Some(Compacted { revision: 2 }));
    assert_eq!(secrets.progress(), 2);
}
