//! Files cut short, damaged or missing: what is read is always a state that was, or nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::durable::{contents, open};
use super::model::{State, block_on};
use super::*;
use crate::OpenError;

/// The files of a directory and what is in them.
type Image = BTreeMap<PathBuf, Vec<u8>>;

fn image(dir: &Path) -> Image {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| !path.ends_with("LOCK"))
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Opens a copy of the files in a directory of its own.
fn open_image(files: &Image) -> (tempfile::TempDir, Result<Store, OpenError>) {
    let dir = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        std::fs::write(dir.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    let opened = Store::open(dir.path(), Options::default());
    (dir, opened)
}

/// Some writes, one after the other, and the state after each revision.
async fn write_some(store: &Store) -> BTreeMap<u64, State> {
    let mut states = BTreeMap::from([(store.revision(), contents(store).await)]);
    for step in 0..6 {
        match step {
            0..3 => drop(create(store, &format!("a/{step}")).await),
            3 => drop(update(store, "a/1").await),
            4 => drop(delete(store, "a/0").await),
            _ => drop(store.put("nodes", "n", Precondition::Absent, encoded("n")).await.unwrap()),
        }
        states.insert(store.revision(), contents(store).await);
    }
    states
}

/// The only file of this kind.
fn only(files: &Image, extension: &str) -> PathBuf {
    let mut found = files.keys().filter(|path| path.extension().is_some_and(|found| found == extension));
    let path = found.next().unwrap().clone();
    assert_eq!(found.next(), None);
    path
}

/// Takes a snapshot by waiting for one.
fn write_snapshot(dir: &Path) {
    let store = Store::open(dir, Options { snapshot_bytes: 1, ..Options::default() }).unwrap();
    let key = store.revision().to_string();
    block_on(async {
        create(&store, &key).await;
        // Whether a snapshot is complete is looked at after each group of writes.
        while store.stats().snapshots == 0 {
            update(&store, &key).await;
        }
    });
}

#[test]
fn a_journal_cut_anywhere_gives_the_writes_before_the_cut_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let states = block_on(write_some(&open(dir.path())));
    let mut files = image(dir.path());
    let path = only(&files, "log");
    let whole = files[&path].clone();
    let mut seen = std::collections::BTreeSet::new();
    for length in crate::format::HEADER..=whole.len() {
        files.insert(path.clone(), whole[..length].to_vec());
        let (dir, store) = open_image(&files);
        let store = store.unwrap();
        assert_eq!(block_on(contents(&store)), states[&store.revision()], "cut at {length}");
        seen.insert(store.revision());
        if length % 16 == 0 {
            let written = block_on(create(&store, "new")).revision;
            drop(store);
            assert_eq!(open(dir.path()).revision(), written);
        }
    }
    assert!(seen.iter().eq(states.keys()));
    for length in 0..crate::format::HEADER {
        files.insert(path.clone(), whole[..length].to_vec());
        assert!(matches!(open_image(&files).1, Err(OpenError::Damaged { offset: 0, .. })), "cut at {length}");
    }
}

#[test]
fn a_damaged_byte_in_the_journal_is_refused_or_cut_off_with_the_last_group() {
    let dir = tempfile::tempdir().unwrap();
    let states = block_on(write_some(&open(dir.path())));
    let mut files = image(dir.path());
    let path = only(&files, "log");
    let whole = files[&path].clone();
    let last = *states.keys().last().unwrap();
    let mut cut = 0;
    for offset in 0..whole.len() {
        for flip in [0x01, 0xff] {
            let mut bytes = whole.clone();
            bytes[offset] ^= flip;
            files.insert(path.clone(), bytes);
            match open_image(&files).1 {
                Ok(store) => {
                    assert_eq!(store.revision(), last - 1, "byte {offset}");
                    assert_eq!(block_on(contents(&store)), states[&(last - 1)]);
                    cut += 1;
                }
                Err(OpenError::Damaged { offset: at, .. }) => assert!(at as usize <= offset),
                Err(OpenError::Version { .. }) => assert!((8..12).contains(&offset)),
                Err(other) => panic!("byte {offset}: {other}"),
            }
        }
    }
    assert!(cut > 0);
}

#[test]
fn the_refusal_names_the_file_the_place_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    block_on(write_some(&open(dir.path())));
    let mut files = image(dir.path());
    let path = only(&files, "log");
    files.get_mut(&path).unwrap()[crate::format::HEADER + 40] ^= 1;
    let message = open_image(&files).1.err().unwrap().to_string();
    assert!(message.contains("journal-00000000000000000002.log is damaged at byte 36: "), "{message}");
    assert!(message.contains("further ones follow at byte "), "{message}");
    assert!(message.contains("`truncate -s 36`"), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn damage_anywhere_in_a_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    block_on(write_some(&open(dir.path())));
    write_snapshot(dir.path());
    let mut files = image(dir.path());
    assert!(open_image(&files).1.is_ok());
    let path = only(&files, "snap");
    let whole = files[&path].clone();
    for offset in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x10;
        files.insert(path.clone(), bytes);
        let refused = open_image(&files).1.err().unwrap_or_else(|| panic!("byte {offset}"));
        assert!(matches!(refused, OpenError::Damaged { .. } | OpenError::Version { .. }), "{refused}");
        files.insert(path.clone(), whole[..offset].to_vec());
        assert!(matches!(open_image(&files).1, Err(OpenError::Damaged { .. })), "cut at {offset}");
    }
}

#[test]
fn files_that_are_missing_are_missed() {
    let dir = tempfile::tempdir().unwrap();
    block_on(write_some(&open(dir.path())));
    let first = image(dir.path());
    write_snapshot(dir.path());
    let later = image(dir.path());
    let without = |path: &Path| {
        let mut files = later.clone();
        files.remove(path);
        open_image(&files).1.err().unwrap()
    };
    assert!(matches!(without(&only(&later, "snap")), OpenError::Incomplete { .. }));
    let journal = later.keys().rfind(|path| path.extension().is_some_and(|found| found == "log"));
    assert!(matches!(without(journal.unwrap()), OpenError::Incomplete { .. }));
    // A gap between the first segment and the later ones, without the snapshot that bridges it.
    let mut files = first;
    files.extend(
        later.clone().into_iter().filter(|(path, _)| path.extension().is_some_and(|found| found == "log")),
    );
    let gap = open_image(&files).1.err().map(|error| error.to_string());
    assert!(gap.is_some_and(|gap| gap.contains("are missing")));
}

#[test]
fn a_crash_around_a_snapshot_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    block_on(write_some(&open(dir.path())));
    // One write after which the journal is rotated; the snapshot's temporary file and the journal before it remain.
    let before = image(dir.path());
    write_snapshot(dir.path());
    let after = image(dir.path());
    let (_dir, expected) = open_image(&after);
    let expected = expected.unwrap();
    let mut both = before;
    both.extend(after.clone());
    // As if the crash came before the replaced files were removed, and while another snapshot was being written.
    let snapshot = only(&after, "snap");
    let half = after[&snapshot][..after[&snapshot].len() / 2].to_vec();
    both.insert(snapshot.with_file_name("snapshot-00000000000000000999.snap.tmp"), half);
    let (dir, store) = open_image(&both);
    let store = store.unwrap();
    assert_eq!(store.revision(), expected.revision());
    assert_eq!(block_on(contents(&store)), block_on(contents(&expected)));
    assert!(
        image(dir.path()).keys().map(|path| path.file_name()).eq(after.keys().map(|path| path.file_name()))
    );
}

#[test]
fn a_newer_format_is_refused_with_its_version() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let mut files = image(dir.path());
    let path = only(&files, "log");
    files.get_mut(&path).unwrap()[8] = 2;
    let message = open_image(&files).1.err().unwrap().to_string();
    assert!(
        message.contains("has format version 2, this program reads version 1; use the program"),
        "{message}"
    );
}

#[test]
fn a_copy_taken_at_any_moment_has_all_that_was_acknowledged_before() {
    for snapshot_bytes in [u64::MAX, 4 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options { snapshot_bytes, ..Options::default() }).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (store, done) = (&store, &done);
                scope.spawn(move || {
                    block_on(async {
                        let mut number = 0u64;
                        while !done.load(Ordering::Relaxed) {
                            let key = format!("{writer}/{}", number % 10);
                            match store.get("pods", &key).await {
                                Some(_) if number.is_multiple_of(7) => drop(delete(store, &key).await),
                                Some(_) => drop(update(store, &key).await),
                                None => drop(create(store, &key).await),
                            }
                            number += 1;
                        }
                    });
                });
            }
            let mut copies = 0;
            while copies < 20 {
                let acknowledged = store.revision();
                let Some(files) = stable_copy(dir.path()) else { continue };
                let (_dir, copy) = open_image(&files);
                let copy = copy.unwrap_or_else(|error| panic!("{error}"));
                assert!(copy.revision() >= acknowledged, "{} < {acknowledged}", copy.revision());
                let at = copy.revision();
                store_has_been(&store, at, &copy);
                copies += 1;
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// The copy is the state that the store has, or had, at that revision.
fn store_has_been(store: &Store, revision: u64, copy: &Store) {
    block_on(async {
        // The copy may hold a group that the store is about to acknowledge.
        store.wait_for(revision).await;
        let past = store.list_at(revision, "pods", Range::All, None, 0).await.unwrap();
        assert_eq!(past.objects, copy.list("pods", Range::All, None, 0).await.objects);
    });
}

/// The files in the order of their names, if none came or went meanwhile: each is a prefix of what it becomes, and a
/// segment is read only after the ones before it.
fn stable_copy(dir: &Path) -> Option<Image> {
    let names = || -> Option<Vec<PathBuf>> {
        let entries = std::fs::read_dir(dir).ok()?.map(|entry| entry.map(|entry| entry.path()));
        let mut names: Vec<_> = entries.collect::<Result<_, _>>().ok()?;
        names.sort();
        Some(names)
    };
    let before = names()?;
    let mut files = Image::new();
    for path in &before {
        if !path.ends_with("LOCK") {
            files.insert(path.clone(), std::fs::read(path).ok()?);
        }
    }
    (names()? == before).then_some(files)
}
