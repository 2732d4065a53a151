//! Preconditions, reads and ranges.

use super::*;
use crate::Compacted;

#[tokio::test]
async fn the_empty_store_has_revision_one_and_the_first_write_gets_two() {
    let store = Store::memory(Options::default());
    assert_eq!(store.revision(), 1);
    let object = create(&store, "a/x").await;
    assert_eq!((object.revision, object.created, store.revision()), (2, 2, 2));
    assert_eq!(object.value, "a/x@2/2");
    assert_eq!(update(&store, "a/x").await.value, "a/x@3/2");
}

#[tokio::test]
async fn a_write_whose_precondition_fails_changes_nothing_and_does_not_encode() {
    let store = Store::memory(Options::default());
    let never = |_, _| -> Encoded { panic!("encoded in vain") };
    let put = |key, pre| store.put("pods", key, pre, never);
    assert!(matches!(put("a/x", Precondition::Revision(1)).await, Err(WriteError::Missing)));
    assert!(matches!(store.delete("pods", "a/x", 2, last_words).await, Err(WriteError::Missing)));
    create(&store, "a/x").await;
    assert!(
        matches!(put("a/x", Precondition::Absent).await, Err(WriteError::Exists(found)) if found.revision == 2)
    );
    assert_eq!(changed(put("a/x", Precondition::Revision(1)).await), 2);
    assert_eq!(changed(store.delete("pods", "a/x", 3, last_words).await), 2);
    assert_eq!(store.revision(), 2);
}

#[tokio::test]
async fn a_deletion_returns_the_final_object_and_the_key_can_be_created_anew() {
    let store = Store::memory(Options::default());
    create(&store, "a/x").await;
    let last = delete(&store, "a/x").await;
    assert_eq!((last.created, last.revision), (2, 3));
    assert_eq!(last.value, "deleted@3");
    assert_eq!(store.get("pods", "a/x").await, None);
    let again = create(&store, "a/x").await;
    assert_eq!((again.created, again.revision), (4, 4));
}

#[tokio::test]
async fn a_namespace_is_not_its_namesakes_and_keys_are_ordered_by_their_bytes() {
    let store = Store::memory(Options::default());
    for key in ["a/y", "a/x", "a-b/x", "a.b/x", "a0/x", "ab/x", "a", "b/x"] {
        create(&store, key).await;
    }
    assert_eq!(keys(&store, Range::All).await, ["a", "a-b/x", "a.b/x", "a/x", "a/y", "a0/x", "ab/x", "b/x"]);
    assert_eq!(keys(&store, Range::Namespace("a")).await, ["a/x", "a/y"]);
    assert_eq!(keys(&store, Range::Namespace("none")).await, [""; 0]);
    assert_eq!(keys(&store, Range::Key("a/x")).await, ["a/x"]);
    let after = store.list("pods", Range::Key("a/x"), Some("a/x"), 0).await;
    assert!(after.objects.is_empty());
    let before = store.list("pods", Range::Namespace("a"), Some("a"), 1).await;
    assert_eq!((&*before.objects[0].key, before.remaining), ("a/x", 1));
}

#[tokio::test]
async fn pages_of_any_size_give_the_same_objects() {
    let store = Store::memory(Options::default());
    for number in 0..300 {
        create(&store, &format!("{}/{:03}", number % 3, number * 7 % 300)).await;
    }
    for range in [Range::All, Range::Namespace("1"), Range::Namespace("9")] {
        let whole = store.list("pods", range, None, 0).await;
        for limit in (1..140).chain([299, 300, 301]) {
            let mut objects: Vec<Arc<Object>> = Vec::new();
            loop {
                let after = objects.last().map(|object| object.key.clone());
                let page = store.list("pods", range, after.as_deref(), limit).await;
                assert!(page.objects.len() <= limit);
                objects.extend(page.objects);
                assert_eq!(page.remaining, whole.objects.len() - objects.len());
                if page.remaining == 0 {
                    break;
                }
            }
            assert_eq!(objects, whole.objects);
        }
    }
}

#[tokio::test]
async fn tables_are_apart_but_share_the_revision() {
    let store = Store::memory(Options::default());
    create(&store, "a/x").await;
    store.put("apps/deployments", "a/x", Precondition::Absent, encoded("d")).await.unwrap();
    assert_eq!(store.get("apps/deployments", "a/x").await.unwrap().revision, 3);
    assert_eq!(store.list("pods", Range::All, None, 0).await.revision, 3);
    assert_eq!(store.list("nothing", Range::All, None, 0).await.revision, 3);
    assert_eq!(store.resources(), [("apps/deployments".into(), 1), ("pods".into(), 1)]);
}

#[tokio::test]
async fn the_past_is_read_until_it_is_compacted() {
    let store = Store::memory(Options::default());
    create(&store, "a/x").await;
    create(&store, "a/y").await;
    update(&store, "a/x").await;
    delete(&store, "a/y").await;
    let past = store.list_at(3, "pods", Range::All, None, 0).await.unwrap();
    assert_eq!(past.revision, 3);
    assert_eq!(past.objects.iter().map(|object| object.revision).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(store.get_at(1, "pods", "a/x").await, Ok(None));
    assert_eq!(store.get_at(3, "pods", "a/x").await.unwrap().unwrap().revision, 2);
    assert_eq!(store.get_at(4, "pods", "a/x").await.unwrap().unwrap().revision, 4);
    store.compact(4);
    assert_eq!(store.compacted(), 4);
    assert_eq!(store.list_at(3, "pods", Range::All, None, 0).await, Err(Compacted { revision: 4 }));
    assert_eq!(store.get_at(3, "pods", "a/x").await, Err(Compacted { revision: 4 }));
    assert_eq!(store.list_at(4, "pods", Range::All, None, 0).await.unwrap().objects.len(), 2);
    assert_eq!(store.list_at(4, "other", Range::All, None, 0).await.unwrap().objects.len(), 0);
    assert_eq!(store.list_at(3, "other", Range::All, None, 0).await, Err(Compacted { revision: 4 }));
}

#[tokio::test]
async fn history_is_kept_by_count_bytes_and_age() {
    let hand = Hand::default();
    let store = Store::memory(Options { history_events: 3, ..hand.options() });
    for key in ["a", "b", "c", "d", "e"] {
        create(&store, key).await;
    }
    assert_eq!((store.compacted(), store.stats().history_events), (3, 3));
    hand.set(300);
    assert!(store.get_at(3, "pods", "a").await.is_ok());
    hand.set(301);
    assert_eq!(store.get_at(3, "pods", "a").await, Err(Compacted { revision: 6 }));
    assert_eq!(store.stats().history_events, 0);

    let store = Store::memory(Options { history_bytes: 30, ..hand.options() });
    create(&store, "a").await;
    for _ in 0..10 {
        update(&store, "a").await;
    }
    let stats = store.stats();
    assert!(stats.history_bytes <= 30 && stats.history_bytes > 20, "{stats:?}");
    assert_eq!(stats.bytes, store.get("pods", "a").await.unwrap().size() as u64);
    delete(&store, "a").await;
    assert_eq!((store.stats().objects, store.stats().bytes), (0, 0));
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_written() {
    let store = Store::memory(Options::default());
    store.wait_for(1).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for(3).await }
    });
    create(&store, "a").await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    create(&store, "b").await;
    waiting.await.unwrap();
}

#[test]
fn of_many_writers_exactly_one_wins_each_revision() {
    let store = Store::memory(Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(create(&store, "a"));
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(compete(&store, 500))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(store.revision(), 2 + wins as u64);
    assert_eq!(store.get("pods", "a").await_now().unwrap().revision, store.revision());
    assert_eq!(wins, 2000);
}

/// Updates one key until this writer has won so many times.
pub(crate) async fn compete(store: &Store, wins: usize) -> usize {
    let mut won = 0;
    while won < wins {
        let seen = store.get("pods", "a").await.unwrap().revision;
        match store.put("pods", "a", Precondition::Revision(seen), encoded("a")).await {
            Ok(object) => {
                assert!(object.revision > seen);
                won += 1;
            }
            Err(WriteError::Changed(current)) => assert!(current.revision > seen),
            Err(other) => panic!("{other}"),
        }
    }
    won
}

trait AwaitNow: Future + Sized {
    fn await_now(self) -> Self::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(self)
    }
}

impl<F: Future> AwaitNow for F {}
