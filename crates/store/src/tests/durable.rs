//! A store on disk: what was acknowledged is there after a restart, what failed is not.

use std::path::Path;

use super::memory::compete;
use super::model::{State, block_on};
use super::*;
use crate::OpenError;

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default()).unwrap()
}

/// All objects of all tables.
pub(crate) async fn contents(store: &Store) -> State {
    let mut state = State::new();
    for (resource, _) in store.resources() {
        for object in store.list(&resource, Range::All, None, 0).await.objects {
            state.insert(format!("{resource} {}", object.key), object);
        }
    }
    state
}

#[tokio::test]
async fn a_restart_finds_everything_and_the_revision_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.revision(), 1);
    for key in ["a/x", "a/y", "b/z"] {
        create(&store, key).await;
    }
    store.put("nodes", "n", Precondition::Absent, encoded("n")).await.unwrap();
    update(&store, "a/x").await;
    delete(&store, "a/y").await;
    let before = contents(&store).await;
    assert_eq!((store.revision(), store.stats().objects), (7, 3));
    drop(store);

    let store = open(dir.path());
    assert_eq!(contents(&store).await, before);
    assert_eq!((store.revision(), store.compacted()), (7, 7));
    let stats = store.stats();
    assert_eq!((stats.objects, stats.bytes), (3, before.values().map(|object| object.size() as u64).sum()));
    assert!(store.watch("pods", 6).is_err());
    let mut watcher = store.watch("unknown", 7).unwrap();
    assert!(store.list_at(6, "pods", Range::All, None, 0).await.is_err());
    store.put("unknown", "x", Precondition::Absent, encoded("x")).await.unwrap();
    assert_eq!(watcher.next().await.unwrap().revision, 8);
}

#[tokio::test]
async fn an_empty_store_keeps_its_first_revision() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { first_revision: 1000, ..Options::default() };
    assert_eq!(Store::open(dir.path(), options).unwrap().revision(), 1000);
    assert_eq!(open(dir.path()).revision(), 1000);
}

#[tokio::test]
async fn the_directory_and_its_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data/deep");
    create(&open(&dir), "a").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in std::fs::read_dir(&dir).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[tokio::test]
async fn a_directory_in_use_is_refused_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    create(&store, "a").await;
    let refused = Store::open(dir.path(), Options::default()).err().unwrap();
    let pid = std::process::id();
    let message = refused.to_string();
    assert!(
        message.ends_with(&format!("is in use by process {pid}; stop it or choose another --data-dir")),
        "{message}"
    );
    store.close();
    let refused = store.put("pods", "b", Precondition::Absent, encoded("b")).await;
    assert!(matches!(refused, Err(WriteError::Unavailable(_))));
    assert_eq!(store.get("pods", "a").await.unwrap().revision, 2);
    assert_eq!(open(dir.path()).revision(), 2);
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = Store::open(file.path(), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::NotADirectory(_)));
    let refused = Store::open(&file.path().join("below"), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Unusable { .. }));
}

#[test]
fn concurrent_writers_of_one_key_win_one_revision_each_and_all_wins_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    block_on(create(&store, "a"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(block_on(compete(&store, 25)), 25));
        }
    });
    assert_eq!(store.revision(), 102);
    let last = block_on(store.get("pods", "a")).unwrap();
    drop(store);
    assert_eq!(block_on(open(dir.path()).get("pods", "a")), Some(last));
}

#[tokio::test]
async fn writes_in_flight_build_on_one_another_and_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let writes = (0..200).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            // The second write's precondition holds only on top of the first one, which may be pending.
            let key = format!("a/{number}");
            let first = create(&store, &key).await;
            let second = Precondition::Revision(first.revision);
            store.put("pods", &key, second, encoded("second")).await.unwrap()
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.revision, stats.pending, stats.objects), (401, 0, 200));
    assert!(stats.syncs < 200, "{stats:?}");
    store.flush().await;
}

/// Puts in order, all queued before the first is durable; returns how each ended.
async fn burst(store: &Store, keys: &[&str]) -> Vec<Result<Arc<Object>, WriteError>> {
    let mut results = Vec::new();
    let writes: Vec<_> = keys
        .iter()
        .map(|key| {
            let (store, key) = (store.clone(), key.to_string());
            tokio::spawn(async move { store.put("pods", &key, Precondition::Absent, encoded(&key)).await })
        })
        .collect();
    for write in writes {
        results.push(write.await.unwrap());
    }
    results
}

#[tokio::test]
async fn a_full_disk_fails_writes_without_a_trace_and_later_ones_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let faults = options.faults.clone();
    let store = Store::open(dir.path(), options).unwrap();
    create(&store, "a").await;
    let mut watcher = store.watch("pods", 2).unwrap();
    for space in [0, 1, 27, 28, 40, 60] {
        faults.limit(space);
        for result in burst(&store, &["b", "b", "c"]).await {
            let Err(WriteError::Unavailable(reason)) = result else { panic!("{result:?}") };
            assert!(reason.contains("free space on the disk and try again"), "{reason}");
        }
        assert_eq!((store.revision(), store.stats().pending), (2, 0));
        assert_eq!(keys(&store, Range::All).await, ["a"]);
    }
    assert!(watcher.try_next().is_none());
    faults.heal();
    assert_eq!(create(&store, "c").await.revision, 3);
    assert_eq!(watcher.next().await.unwrap().revision, 3);
    let before = contents(&store).await;
    drop((store, watcher));
    assert_eq!(contents(&open(dir.path())).await, before);
}

#[tokio::test]
async fn a_failed_sync_ends_all_writing_but_not_reading() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let faults = options.faults.clone();
    let store = Store::open(dir.path(), options).unwrap();
    create(&store, "a").await;
    faults.fail_syncs();
    for _ in 0..2 {
        let failed = store.put("pods", "b", Precondition::Absent, encoded("b")).await;
        let Err(WriteError::Unavailable(reason)) = failed else { panic!("{failed:?}") };
        assert!(reason.contains("until the disk is repaired and the server restarted"), "{reason}");
        faults.heal();
    }
    assert_eq!(keys(&store, Range::All).await, ["a"]);
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.get("pods", "a").await.unwrap().revision, 2);
}

#[tokio::test]
async fn a_conflict_with_a_write_that_then_fails_is_no_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let faults = options.faults.clone();
    let store = Store::open(dir.path(), options).unwrap();
    faults.limit(0);
    let results = burst(&store, &["a", "a", "a", "a"]).await;
    for result in results {
        assert!(matches!(result, Err(WriteError::Unavailable(_))), "{result:?}");
    }
}

/// Writes until some snapshots were taken.
async fn churn(store: &Store, snapshots: u64) {
    let mut round = 0;
    while store.stats().snapshots < snapshots {
        for number in 0..20 {
            let key = format!("{}/{number}", number % 3);
            match store.get("pods", &key).await {
                Some(object) if (round + number) % 5 == 0 => {
                    store.delete("pods", &key, object.revision, last_words).await.unwrap();
                }
                Some(_) => drop(update(store, &key).await),
                None => drop(create(store, &key).await),
            }
        }
        round += 1;
    }
}

#[tokio::test]
async fn snapshots_replace_the_journal_and_are_recovered_from() {
    let dir = tempfile::tempdir().unwrap();
    let small = || Options { snapshot_bytes: 8 << 10, ..Options::default() };
    for _ in 0..3 {
        let store = Store::open(dir.path(), small()).unwrap();
        let (revision, before) = (store.revision(), contents(&store).await);
        churn(&store, 3).await;
        assert!(store.revision() > revision);
        let after = contents(&store).await;
        assert_ne!(before, after);
        let revision = store.revision();
        store.close();
        let files = crate::dir::DataDir::open(dir.path()).unwrap().files().unwrap();
        assert!(files.snapshots.len() <= 2 && files.segments.len() <= 3, "{files:?}");
        assert!(files.temporary.is_empty());
        let store = open(dir.path());
        assert_eq!((store.revision(), contents(&store).await), (revision, after));
    }
}

#[tokio::test]
async fn a_write_whose_caller_went_away_still_happens() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    {
        let mut put = std::pin::pin!(store.put("pods", "a", Precondition::Absent, encoded("a")));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(put.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    store.flush().await;
    assert_eq!(store.get("pods", "a").await.unwrap().revision, 2);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_stops_nothing() {
    for name in ["snapshot-R.snap.tmp", "journal-R.log.tmp"] {
        let dir = tempfile::tempdir().unwrap();
        let obstacles: Vec<_> =
            (0..200).map(|revision| dir.path().join(name.replace('R', &format!("{revision:020}")))).collect();
        let store =
            Store::open(dir.path(), Options { snapshot_bytes: 1 << 10, ..Options::default() }).unwrap();
        for path in &obstacles {
            std::fs::create_dir(path).unwrap();
        }
        create(&store, "a").await;
        for _ in 0..100 {
            update(&store, "a").await;
        }
        assert_eq!((store.stats().snapshots, store.revision()), (0, 102));
        drop(store);
        for path in &obstacles {
            std::fs::remove_dir(path).unwrap();
        }
        let store = open(dir.path());
        assert_eq!(store.get("pods", "a").await.unwrap().revision, 102);
    }
}
