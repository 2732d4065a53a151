//! Expectations: what a controller has asked for and its cache has not yet shown.
//!
//! A controller that counts its children in a cache must not act on the count while the cache is behind its own writes,
//! or it makes too many. So it notes each creation and deletion before the request, and counts only when the cache
//! shows all of them. Nothing is counted and no event is waited for: children have names that the controller itself
//! has drawn, so of each that is missing the server can be asked whether it is still to come or will never. A request
//! whose answer was lost, a child that others deleted at once and a restart of the watch are all the same to it.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::apply::{Object, Writer};
use crate::cache::{Encoded, Lister, Uid};
use crate::{ObjectKey, Result};

#[derive(Default)]
struct Awaited {
    created: Vec<ObjectKey>,
    deleted: Vec<(ObjectKey, Uid)>,
}

/// Writes of children that are not yet seen, by the key of their parent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = shoal_testkit::Cluster::start().await;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use shoal_runtime::cache::InformerOptions;
/// use shoal_runtime::{Expectations, Informers, ObjectKey, Writer};
///
/// let informers = Informers::new(cluster.client(), InformerOptions::default());
/// let children = informers.of::<ConfigMap>();
/// children.synced().await;
/// let writer = Writer::new(cluster.client(), "parents");
///
/// let (expectations, parent) = (Expectations::default(), ObjectKey::new("default", "parent"));
/// let child = serde_json::json!({"metadata": {"name": "child-x7k2p", "namespace": "default"}});
/// let child: ConfigMap = serde_json::from_value(child)?;
/// expectations.created(&parent, &child); // Before the request.
/// writer.create(&child).await?;
/// while !expectations.is_seen(&parent, &children.lister(), &writer).await? {
///     tokio::task::yield_now().await; // A reconciler returns `Action::after` instead.
/// }
/// assert!(children.lister().get(&ObjectKey::new("default", "child-x7k2p")).is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Expectations(Mutex<HashMap<ObjectKey, Awaited>>);

impl Expectations {
    /// This child, whose name is drawn, is about to be created.
    pub fn created<T: Object>(&self, parent: &ObjectKey, child: &T) {
        self.0.lock().entry(parent.clone()).or_default().created.push(ObjectKey::of(child));
    }

    /// This child is about to be deleted.
    pub fn deleted<T: Object>(&self, parent: &ObjectKey, child: &T) {
        let uid = Uid::parse(child.meta().uid.as_deref().unwrap_or_default());
        self.0.lock().entry(parent.clone()).or_default().deleted.push((ObjectKey::of(child), uid));
    }

    /// The parent is gone.
    pub fn forget(&self, parent: &ObjectKey) {
        self.0.lock().remove(parent);
    }

    /// Whether the cache shows all that was written for this parent. What it does not show is looked up on the server,
    /// until one write is found that is yet to come: an error or a cancellation loses nothing.
    pub async fn is_seen<T: Object>(
        &self,
        parent: &ObjectKey,
        cache: &Lister<T>,
        writer: &Writer,
    ) -> Result<bool> {
        loop {
            let Some((key, deleted)) = self.first_unseen(parent, cache) else { return Ok(true) };
            let live = writer.get::<T>(&key).await?;
            let under_way = match &deleted {
                None => live.is_some(),
                // Still there as it was: the deletion was refused or never arrived.
                Some(uid) => live.is_none_or(|live| is_going(&live, uid)),
            };
            if under_way {
                return Ok(false);
            }
            self.settle(parent, &key, deleted.is_some());
        }
    }

    /// Forgets what the cache shows: the first write that it does not, with the uid if that is a deletion.
    fn first_unseen<T: Object>(
        &self,
        parent: &ObjectKey,
        cache: &Lister<T>,
    ) -> Option<(ObjectKey, Option<Uid>)> {
        let mut all = self.0.lock();
        let awaited = all.get_mut(parent)?;
        awaited.created.retain(|key| cache.meta(key).is_none());
        let there = |child: &Encoded, uid: &Uid| child.uid() == uid && !child.is_deleting();
        awaited.deleted.retain(|(key, uid)| cache.meta(key).is_some_and(|child| there(&child, uid)));
        let created = awaited.created.first().map(|key| (key.clone(), None));
        let first =
            created.or_else(|| awaited.deleted.first().map(|(key, uid)| (key.clone(), Some(uid.clone()))));
        if first.is_none() {
            all.remove(parent);
        }
        first
    }

    /// This write will never be seen.
    fn settle(&self, parent: &ObjectKey, key: &ObjectKey, deletion: bool) {
        if let Some(awaited) = self.0.lock().get_mut(parent) {
            match deletion {
                true => awaited.deleted.retain(|(known, _)| known != key),
                false => awaited.created.retain(|known| known != key),
            }
        }
    }
}

/// Whether what is on the server is no more the child that was to be deleted.
fn is_going<T: Object>(live: &T, uid: &Uid) -> bool {
    let meta = live.meta();
    meta.deletion_timestamp.is_some() || Uid::parse(meta.uid.as_deref().unwrap_or_default()) != *uid
}
