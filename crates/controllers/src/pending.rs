//! What a controller has created and deleted, and its cache has not yet shown.
//!
//! A controller that counts children in a cache must not count while it is behind: it would make too many. Children
//! have names that the controller itself has drawn, so it can ask for exactly those that are missing.

use std::collections::HashMap;

use kube::ResourceExt;
use parking_lot::Mutex;
use shoal_runtime::cache::Lister;
use shoal_runtime::{Object, ObjectKey, Result, Writer};

#[derive(Default)]
struct Awaited {
    created: Vec<ObjectKey>,
    deleted: Vec<(ObjectKey, String)>,
}

/// Writes of children that are not yet seen, by the key of their parent.
#[derive(Default)]
pub struct Pending(Mutex<HashMap<ObjectKey, Awaited>>);

impl Pending {
    /// This child was created.
    pub fn created<T: Object>(&self, parent: &ObjectKey, child: &T) {
        self.0.lock().entry(parent.clone()).or_default().created.push(ObjectKey::of(child));
    }

    /// This child was deleted.
    pub fn deleted<T: Object>(&self, parent: &ObjectKey, child: &T) {
        let key = (ObjectKey::of(child), child.uid().unwrap_or_default());
        self.0.lock().entry(parent.clone()).or_default().deleted.push(key);
    }

    /// The parent is gone.
    pub fn forget(&self, parent: &ObjectKey) {
        self.0.lock().remove(parent);
    }

    /// Whether the cache shows all that was written for this parent. Of what is missing, the server is asked whether it
    /// is still to come or was removed meanwhile.
    pub async fn is_seen<T: Object>(
        &self,
        parent: &ObjectKey,
        cache: &Lister<T>,
        writer: &Writer,
    ) -> Result<bool> {
        let Some(mut awaited) = self.0.lock().remove(parent) else { return Ok(true) };
        awaited.created.retain(|key| cache.meta(key).is_none());
        awaited.deleted.retain(|(key, uid)| {
            cache.get(key).is_some_and(|child| {
                child.uid().as_ref() == Some(uid) && child.meta().deletion_timestamp.is_none()
            })
        });
        let mut behind = !awaited.deleted.is_empty();
        let mut still = Vec::new();
        for key in std::mem::take(&mut awaited.created) {
            if writer.get::<T>(&key).await?.is_some() {
                behind = true;
                still.push(key);
            }
        }
        awaited.created = still;
        if behind {
            let mut all = self.0.lock();
            let later = all.entry(parent.clone()).or_default();
            later.created.extend(awaited.created);
            later.deleted.extend(awaited.deleted);
        }
        Ok(!behind)
    }
}
