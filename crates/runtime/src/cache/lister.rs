//! Reads a cache.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use shoal_objects::selector::LabelSelector;

use super::encoded::Encoded;
use super::informer::Core;
use super::pages::Objects;
use super::view::{Malformed, View};
use crate::key::ObjectKey;

/// Reads the objects of an informer as `K`. Never waits for the API server and never fails: an object that does not have
/// the shape of `K` is left out, told once in the log and in [`Lister::malformed`].
///
/// Results of lists are ordered by namespace and name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = shoal_testkit::Cluster::start().await;
/// use k8s_openapi::api::core::v1::Namespace;
/// use shoal_objects::selector::LabelSelector;
/// use shoal_runtime::cache::InformerOptions;
/// use shoal_runtime::{Informers, ObjectKey};
///
/// // In a reconciler: `context.lister::<Namespace>()`.
/// let informers = Informers::new(cluster.client(), InformerOptions::default());
/// let informer = informers.of::<Namespace>();
/// informer.add_index("label", |space| space.label("kubernetes.io/metadata.name").map(str::to_owned).into_iter().collect());
/// informer.synced().await;
/// let lister = informer.lister();
///
/// let space = lister.get(&ObjectKey::cluster("default")).ok_or("it is there in every cluster")?;
/// assert_eq!(space.metadata.name.as_deref(), Some("default"));
/// let system = LabelSelector::parse("kubernetes.io/metadata.name in (kube-system, kube-public)")?;
/// assert_eq!(lister.select(&system).len(), 2);
/// assert_eq!(lister.by_index("label", "default").len(), 1);
/// // Metadata are read without decoding the objects.
/// assert!(lister.metas().iter().all(|meta| !meta.is_deleting()));
/// # Ok(())
/// # }
/// ```
pub struct Lister<K> {
    pub(super) core: Arc<Core>,
    pub(super) view: Arc<View<K>>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Lister<K> {
        Lister { core: self.core.clone(), view: self.view.clone() }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Lister<K> {
    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        // What is decoded is at hand without a reference to what is encoded.
        let object = match self.core.store.look(key, |object| object.form().ok_or_else(|| object.clone()))? {
            Ok(known) => return Some(known),
            Err(encoded) => encoded,
        };
        self.view.decode(&object)
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.decode_all(&self.metas())
    }

    /// All objects of a namespace.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.decode_all(&self.metas_in(namespace))
    }

    /// The objects that a selector means.
    pub fn select(&self, selector: &LabelSelector) -> Vec<Arc<K>> {
        self.decode_all(&self.select_metas(None, selector))
    }

    /// The objects of a namespace that a selector means.
    pub fn select_in(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<K>> {
        self.decode_all(&self.select_metas(Some(namespace), selector))
    }

    /// The objects that stand under a text in an index.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.metas_by_index(index, value).iter().filter_map(|object| self.view.decode(object)).collect()
    }

    /// The same objects read as another type, one that leaves out what its readers do not need. Everything that is read as
    /// such a type is kept: it should be small.
    pub fn brief<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Lister<T> {
        Lister { core: self.core.clone(), view: self.core.view(usize::MAX) }
    }

    /// An object's metadata, without decoding it.
    pub fn meta(&self, key: &ObjectKey) -> Option<Arc<Encoded>> {
        self.core.store.get(key)
    }

    /// The metadata of all objects.
    pub fn metas(&self) -> Vec<Arc<Encoded>> {
        self.core.store.list(None, |_| true)
    }

    /// The metadata of all objects of a namespace.
    pub fn metas_in(&self, namespace: &str) -> Vec<Arc<Encoded>> {
        self.core.store.list(Some(namespace), |_| true)
    }

    /// The metadata of the objects that a selector means.
    pub fn select_metas(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Encoded>> {
        self.core.store.select(namespace, selector)
    }

    /// The metadata of the objects that stand under a text in an index. They are shared, not copied.
    pub fn metas_by_index(&self, index: &str, value: &str) -> Objects {
        self.core.store.by_index(index, value).unwrap_or_else(|| {
            tracing::error!(index, "asked for an index that was never added");
            Objects::default()
        })
    }

    /// Decodes an object of this cache, or takes it from those that are decoded.
    pub fn decode(&self, object: &Encoded) -> Option<Arc<K>> {
        if let Some(known) = object.form() {
            return Some(known);
        }
        match self.core.store.get(object.key()) {
            Some(held) if held.id() == object.id() => self.view.decode(&held),
            // A version of the past: nobody will ask for it again.
            _ => self.view.decode_once(object),
        }
    }

    /// The objects that do not have the shape of `K`, as far as anybody tried to read them.
    pub fn malformed(&self) -> Vec<Malformed> {
        self.view.malformed()
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.core.store.len()
    }

    /// Whether no object is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many objects are held decoded, too.
    pub fn decoded_len(&self) -> usize {
        self.view.decoded_len()
    }

    fn decode_all(&self, objects: &[Arc<Encoded>]) -> Vec<Arc<K>> {
        objects.iter().filter_map(|object| self.view.decode(object)).collect()
    }
}
