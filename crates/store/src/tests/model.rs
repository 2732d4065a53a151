//! Random sequences of writes against a plain reference: the past, and "a list plus the events after it is the later
//! list".

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{EventKind, Listing};

#[derive(Clone, Debug)]
enum Op {
    Put(u8),
    Delete(u8),
    Other,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0u8..24).prop_map(Op::Put),
        2 => (0u8..24).prop_map(Op::Delete),
        1 => Just(Op::Other),
    ];
    proptest::collection::vec(op, 0..120)
}

fn key(number: u8) -> String {
    format!("{}/{number}", number % 3)
}

pub(crate) type State = BTreeMap<String, Arc<Object>>;

/// Applies the operations; returns the state after each revision.
async fn play(store: &Store, ops: &[Op]) -> BTreeMap<u64, State> {
    let mut state = State::new();
    let mut history = BTreeMap::from([(store.revision(), state.clone())]);
    for op in ops {
        match op {
            Op::Put(number) => {
                let key = key(*number);
                let pre = match state.get(&key) {
                    Some(object) => Precondition::Revision(object.revision),
                    None => Precondition::Absent,
                };
                let object = store.put("pods", &key, pre, encoded("value")).await.unwrap();
                state.insert(key, object);
            }
            Op::Delete(number) => {
                let key = key(*number);
                let Some(object) = state.remove(&key) else { continue };
                store.delete("pods", &key, object.revision, last_words).await.unwrap();
            }
            Op::Other => {
                let key = store.revision().to_string();
                store.put("nodes", &key, Precondition::Absent, encoded("node")).await.unwrap();
            }
        }
        history.insert(store.revision(), state.clone());
    }
    history
}

fn state_of(listing: &Listing) -> State {
    listing.objects.iter().map(|object| (object.key.to_string(), object.clone())).collect()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_past_is_what_it_was(ops in ops(), limit in 1usize..30, window in 1usize..100) {
        block_on(async {
            let store = Store::memory(Options { history_events: window, ..Options::default() });
            let history = play(&store, &ops).await;
            for (revision, state) in &history {
                let Ok(past) = store.list_at(*revision, "pods", Range::All, None, 0).await else {
                    assert!(*revision < store.compacted());
                    continue;
                };
                assert_eq!((past.revision, &state_of(&past)), (*revision, state));
                assert_eq!(past.objects.len(), state.len());
                let namespaced: State =
                    state.iter().filter(|(key, _)| key.starts_with("1/")).map(|(k, v)| (k.clone(), v.clone())).collect();
                let mut paged = State::new();
                let mut after: Option<Arc<str>> = None;
                loop {
                    let range = Range::Namespace("1");
                    let page = store.list_at(*revision, "pods", range, after.as_deref(), limit).await.unwrap();
                    after = page.objects.last().map(|object| object.key.clone());
                    paged.extend(state_of(&page));
                    assert_eq!(page.remaining, namespaced.len() - paged.len());
                    if page.remaining == 0 {
                        break;
                    }
                }
                assert_eq!(paged, namespaced);
                for number in 0..24 {
                    let found = store.get_at(*revision, "pods", &key(number)).await.unwrap();
                    assert_eq!(found.as_ref(), state.get(&key(number)));
                }
            }
        });
    }

    #[test]
    fn a_list_and_the_events_after_it_are_the_later_list(ops in ops(), from in 0u64..120) {
        block_on(async {
            let store = Store::memory(Options::default());
            let history = play(&store, &ops).await;
            let from = (1 + from).min(store.revision());
            let mut state = history[&from].clone();
            let mut watcher = store.watch("pods", from).unwrap();
            let mut seen = from;
            while let Some(batch) = watcher.try_next() {
                for event in batch.unwrap().events {
                    assert!(event.revision > seen);
                    seen = event.revision;
                    assert_eq!(event.object.revision, event.revision);
                    let key = event.object.key.to_string();
                    let replaced = match event.kind {
                        EventKind::Deleted => state.remove(&key),
                        EventKind::Created | EventKind::Updated => state.insert(key, event.object.clone()),
                    };
                    assert_eq!(replaced, event.previous);
                    assert_eq!(event.kind == EventKind::Created, event.previous.is_none());
                    assert_eq!(history[&event.revision], state);
                }
            }
            assert_eq!(state, state_of(&store.list("pods", Range::All, None, 0).await));
            assert_eq!(watcher.progress(), store.revision());
        });
    }

    #[test]
    fn many_keys_inserted_and_removed_in_any_order_stay_sorted(keys in proptest::collection::vec(0u16..2000, 0..1500)) {
        let mut pages = crate::pages::Pages::default();
        let mut reference = BTreeMap::new();
        for (number, key) in keys.into_iter().enumerate() {
            let key = key.to_string();
            if number % 3 == 2 || number > 1200 {
                assert_eq!(pages.remove(&key), reference.remove(&key));
            } else {
                let object = Arc::new(Object {
                    key: key.as_str().into(),
                    created: 1,
                    revision: number as u64,
                    value: Bytes::new(),
                    meta: Bytes::new(),
                });
                assert_eq!(pages.insert(object.clone()), reference.insert(key, object));
            }
            assert_eq!(pages.len(), reference.len());
        }
        let all = pages.slice(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 0).to_vec();
        assert!(all.iter().eq(reference.values()));
    }
}
