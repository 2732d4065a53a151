//! State stores: both back ends behave alike, and nobody overwrites what he has not seen.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::{Clock, Entropy};
use shoal_runtime::manager::Stop;
use shoal_runtime::state::{Error, FileStore, KubernetesStore, Record, StateStore, Synced, Synchronizer};
use shoal_testkit::Cluster;

/// Both back ends; the folder lives as long as the test.
async fn stores() -> (tempfile::TempDir, Vec<Arc<dyn StateStore>>) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start().await;
    let kubernetes =
        KubernetesStore::new(cluster.client(), "default", "web", Clock::system(), Entropy::seeded(1));
    let file = FileStore::open(folder.path().join("state")).unwrap();
    (folder, vec![Arc::new(kubernetes), Arc::new(file)])
}

#[tokio::test]
async fn a_record_is_saved_loaded_listed_and_deleted_with_version_and_time() {
    let (_folder, stores) = stores().await;
    for store in stores {
        assert_eq!(store.load("shard-state").await.unwrap(), None);
        let first = store.save("shard-state", json!({"assignment": {"0": "a"}}), None).await.unwrap();
        assert_eq!(first.version.number(), 1);
        assert!(first.timestamp.ends_with('Z') && first.timestamp.starts_with("20"), "{}", first.timestamp);
        let second =
            store.save("shard-state", json!({"assignment": {"0": "b"}}), Some(&first.version)).await.unwrap();
        assert_eq!(second.version.number(), 2);
        assert_eq!(store.load("shard-state").await.unwrap(), Some(second.clone()));
        for key in ["shards/1", "shards/2", "Übung & more"] {
            store.save(key, json!(key), None).await.unwrap();
        }
        assert_eq!(store.list("shards/").await.unwrap(), ["shards/1", "shards/2"]);
        assert_eq!(store.list("").await.unwrap(), ["shard-state", "shards/1", "shards/2", "Übung & more"]);
        store.delete("shard-state", &second.version).await.unwrap();
        assert_eq!(store.load("shard-state").await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_stale_replica_can_never_overwrite() {
    let (_folder, stores) = stores().await;
    for store in stores {
        let conflict = |result: Result<Record, Error>| matches!(result, Err(Error::Conflict { .. }));
        let first = store.save("k", json!(1), None).await.unwrap();
        assert!(conflict(store.save("k", json!("second first"), None).await));
        let second = store.save("k", json!(2), Some(&first.version)).await.unwrap();
        assert!(conflict(store.save("k", json!("stale"), Some(&first.version)).await));
        assert!(matches!(store.delete("k", &first.version).await, Err(Error::Conflict { .. })));
        store.delete("k", &second.version).await.unwrap();
        assert!(conflict(store.save("k", json!("gone"), Some(&second.version)).await));
        let again = store.save("k", json!(1), None).await.unwrap();
        assert_eq!(again.version.number(), first.version.number());
        assert!(conflict(store.save("k", json!("of another life"), Some(&first.version)).await));
        assert_eq!(store.load("k").await.unwrap().unwrap().value, json!(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_writers_none_is_lost() {
    let (_folder, stores) = stores().await;
    for store in stores {
        store.save("count", json!(0), None).await.unwrap();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut done = 0;
                    while done < 10 {
                        let read = store.load("count").await.unwrap().unwrap();
                        let more = json!(read.value.as_u64().unwrap() + 1);
                        match store.save("count", more, Some(&read.version)).await {
                            Ok(_) => done += 1,
                            Err(Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let record = store.load("count").await.unwrap().unwrap();
        assert_eq!((record.value, record.version.number()), (json!(40), 41));
    }
}

#[tokio::test]
async fn keys_and_states_that_do_not_fit_are_told() {
    let (_folder, stores) = stores().await;
    for store in stores {
        assert!(matches!(store.save("", json!(1), None).await, Err(Error::Key { .. })));
        assert!(matches!(store.load(&"k".repeat(300)).await, Err(Error::Key { .. })));
    }
    let cluster = Cluster::start().await;
    let store = KubernetesStore::new(cluster.client(), "default", "web", Clock::system(), Entropy::system());
    let text = store.save("k", json!("x".repeat(1_100_000)), None).await.unwrap_err().to_string();
    assert!(text.contains("store less, or in several keys"), "{text}");
}

#[tokio::test]
async fn a_damaged_record_is_told_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).unwrap();
    store.save("a", json!(1), None).await.unwrap();
    store.save("b", json!(2), None).await.unwrap();
    std::fs::write(folder.path().join("a.json"), "{\"key\": \"a\", ").unwrap();
    let text = store.load("a").await.unwrap_err().to_string();
    assert!(text.starts_with("what is stored as state \"a\" is damaged: "), "{text}");
    assert_eq!(store.list("").await.unwrap(), ["b"]);
    // What a crash left behind is in nobody's way.
    std::fs::write(folder.path().join(".new"), "half").unwrap();
    store.save("c", json!(3), None).await.unwrap();
    assert_eq!(store.list("").await.unwrap(), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_synchronizer_saves_changes_at_its_interval_and_at_the_end() {
    let cluster = Cluster::builder().seed(1).start().await;
    let store: Arc<dyn StateStore> = Arc::new(KubernetesStore::new(
        cluster.client(),
        "default",
        "web",
        Clock::system(),
        Entropy::seeded(1),
    ));
    let value = Arc::new(AtomicU64::new(0));
    let (stopper, stop) = Stop::channel();
    let (read, sync) = (value.clone(), Synchronizer::new(store.clone(), "s", Duration::from_secs(10)));
    let run = tokio::spawn(sync.run(stop, move || json!(read.load(Ordering::Relaxed)), |_| false));
    let stored =
        async || store.load("s").await.unwrap().map(|record| (record.value, record.version.number()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stored().await, None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stored().await, Some((json!(0), 1)), "what did not change is not written again");
    value.store(7, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(stored().await, Some((json!(7), 2)));
    value.store(8, Ordering::Relaxed);
    stopper.stop();
    run.await.unwrap();
    assert_eq!(stored().await, Some((json!(8), 3)));
}

#[tokio::test(start_paused = true)]
async fn a_stale_synchronizer_overwrites_nothing_until_it_has_taken_the_newer_state_over() {
    let cluster = Cluster::builder().seed(1).start().await;
    let store: Arc<dyn StateStore> = Arc::new(KubernetesStore::new(
        cluster.client(),
        "default",
        "web",
        Clock::system(),
        Entropy::seeded(1),
    ));
    let (mut one, mut two) = (
        Synchronizer::new(store.clone(), "s", Duration::from_secs(10)),
        Synchronizer::new(store.clone(), "s", Duration::from_secs(10)),
    );
    assert!(matches!(one.sync(json!("one")).await.unwrap(), Synced::Saved(_)));
    let Synced::Stale(Some(newer)) = two.sync(json!("two")).await.unwrap() else { panic!("overwritten") };
    assert_eq!(newer.value, json!("one"));
    assert!(matches!(two.sync(json!("two")).await.unwrap(), Synced::Stale(_)), "still stale");
    two.adopt(Some(&newer));
    assert!(matches!(two.sync(json!("one and two")).await.unwrap(), Synced::Saved(_)));
    assert!(matches!(one.sync(json!("one again")).await.unwrap(), Synced::Stale(Some(_))));
    assert_eq!(store.load("s").await.unwrap().unwrap().value, json!("one and two"));

    // Left to run, it hands the newer state out and goes on from there when told to.
    let (stopper, stop) = Stop::channel();
    let told: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = told.clone();
    let run = tokio::spawn(one.run(
        stop,
        || json!("one again"),
        move |record| {
            log.lock().extend(record.map(|record| record.value.clone()));
            true
        },
    ));
    tokio::time::sleep(Duration::from_secs(25)).await;
    stopper.stop();
    run.await.unwrap();
    assert_eq!(*told.lock(), [json!("one and two")]);
    assert_eq!(store.load("s").await.unwrap().unwrap().value, json!("one again"));
}
