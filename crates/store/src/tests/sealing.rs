//! Values that are sealed on disk and plain in memory.

use std::path::Path;

use super::*;
use crate::{OpenError, Place, Seal};

/// Turns every byte of the table `hidden` around, and knows its own.
struct Mask(u8);

impl Seal for Mask {
    fn seal(&self, place: Place<'_>, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if place.resource != "hidden" {
            return Ok(None);
        }
        if value.starts_with(b"unsealable") {
            return Err("no".into());
        }
        Ok(Some(std::iter::once(self.0).chain(value.iter().map(|byte| byte ^ self.0)).collect()))
    }

    fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, String> {
        match sealed.split_first() {
            Some((mask, rest)) if *mask == self.0 => Ok(rest.iter().map(|byte| byte ^ self.0).collect()),
            _ => Err(format!("no key for {}", place.key)),
        }
    }
}

fn options(mask: u8, snapshot_bytes: u64) -> Options {
    Options { seal: Some(Arc::new(Mask(mask))), snapshot_bytes, ..Options::default() }
}

fn on_disk(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

async fn put(store: &Store, resource: &str, key: &str, text: &str) -> Result<Arc<Object>, WriteError> {
    store.put(resource, key, Precondition::Absent, encoded(text)).await
}

#[tokio::test]
async fn sealed_values_are_in_no_file_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    // The first write makes the journal large enough for a snapshot.
    let store = Store::open(dir.path(), options(0x55, 1)).unwrap();
    let hidden = put(&store, "hidden", "a", "confidential").await.unwrap();
    put(&store, "pods", "b", "everybody-may-know").await.unwrap();
    while store.stats().snapshots == 0 {
        put(&store, "pods", &store.revision().to_string(), "more").await.unwrap();
    }
    assert!(hidden.value.starts_with(b"confidential"), "plain in memory");
    drop(store);
    assert!(!on_disk(dir.path(), "confidential"));
    assert!(on_disk(dir.path(), "everybody-may-know"));
    let store = Store::open(dir.path(), options(0x55, 1 << 30)).unwrap();
    assert_eq!(store.get("hidden", "a").await.unwrap(), hidden);
}

#[tokio::test]
async fn without_the_key_the_store_is_not_opened_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options(0x55, 1 << 30)).unwrap();
    put(&store, "hidden", "a", "confidential").await.unwrap();
    drop(store);
    let wrong = Store::open(dir.path(), options(0x66, 1 << 30)).err().unwrap();
    assert!(matches!(&wrong, OpenError::Locked(why) if why == "no key for a"), "{wrong}");
    assert!(matches!(Store::open(dir.path(), Options::default()), Err(OpenError::Locked(_))));
    let store = Store::open(dir.path(), options(0x55, 1 << 30)).unwrap();
    assert!(store.get("hidden", "a").await.is_some());
}

#[tokio::test]
async fn values_from_before_sealing_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    put(&store, "hidden", "a", "plain").await.unwrap();
    drop(store);
    let store = Store::open(dir.path(), options(0x55, 1 << 30)).unwrap();
    assert!(store.get("hidden", "a").await.unwrap().value.starts_with(b"plain"));
}

#[tokio::test]
async fn what_cannot_be_sealed_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options(0x55, 1 << 30)).unwrap();
    let refused = put(&store, "hidden", "a", "unsealable").await;
    assert!(matches!(refused, Err(WriteError::Unavailable(_))));
    put(&store, "hidden", "b", "fine").await.unwrap();
    drop(store);
    assert!(!on_disk(dir.path(), "unsealable"));
}
