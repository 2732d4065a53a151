//! Statuses that carry state from one reconcile to the next.
//!
//! What is decided from an object must be written over that version of it and no other, and must not be decided again
//! from a cache that does not yet show what was written: a Job would count a pod twice, or never.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{Context, Object, ObjectKey, Result};

/// The versions that a controller has itself written.
#[derive(Default)]
pub struct Written(Mutex<HashMap<ObjectKey, (String, u64)>>);

impl Written {
    /// Whether the cached object is at least as new as what was last written of it.
    pub fn is_seen<K: Object>(&self, cached: &K) -> bool {
        let key = ObjectKey::of(cached);
        let mut all = self.0.lock();
        let Some((uid, version)) = all.get(&key) else { return true };
        let other = cached.meta().uid.as_deref() != Some(uid.as_str());
        let seen = other || version_of(cached).is_none_or(|cached| cached >= *version);
        if seen {
            all.remove(&key);
        }
        seen
    }

    /// Writes the status that was decided from `read`; `false`: the object has changed since, and the decision is void.
    pub async fn status<K: Object>(
        &self,
        context: &Context<K>,
        read: &K,
        mut set: impl FnMut(&mut K),
    ) -> Result<bool> {
        let mut void = false;
        let change = |now: &mut K| {
            if now.meta().resource_version == read.meta().resource_version {
                set(now);
            } else {
                void = true;
            }
        };
        let now = context.writer().modify_status(context.key(), Some(read), change).await?;
        if void {
            return Ok(false);
        }
        if let Some(now) = now
            && let (Some(uid), Some(version)) = (now.meta().uid.clone(), version_of(&now))
            && now.meta().resource_version != read.meta().resource_version
        {
            self.0.lock().insert(context.key().clone(), (uid, version));
        }
        Ok(true)
    }

    /// The object is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

/// Versions are numbers that grow; those of a server where they are not are never waited for.
fn version_of<K: Object>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(uid: &str, version: &str) -> ConfigMap {
        let meta = json!({"name": "m", "namespace": "a", "uid": uid, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    #[test]
    fn an_older_version_of_the_same_object_is_waited_for() {
        let written = Written::default();
        assert!(written.is_seen(&map("1", "3")));
        written.0.lock().insert(ObjectKey::new("a", "m"), ("1".to_owned(), 10));
        assert!(!written.is_seen(&map("1", "9")));
        assert!(written.is_seen(&map("2", "5")), "another object of that name");
        written.0.lock().insert(ObjectKey::new("a", "m"), ("1".to_owned(), 10));
        assert!(written.is_seen(&map("1", "11")));
        assert!(written.is_seen(&map("1", "9")), "once seen, nothing is awaited");
    }
}
