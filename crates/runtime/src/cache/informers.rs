//! All caches of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::informer::{Core, Informer, Part};
use super::pack::Compression;
use super::writer::Filter;
use crate::watch::{Scope, Source, WatchOptions};

/// Changes the encoded body of an object of a kind before it is held.
pub type KindTransform = Arc<dyn Fn(&ApiResource, Vec<u8>) -> Vec<u8> + Send + Sync>;

/// Settings of all caches of a process.
#[derive(Clone)]
pub struct InformerOptions {
    /// Settings of lists and watches.
    pub watch: WatchOptions,
    /// How many decoded objects are kept beside the encoded ones, per kind (`INFORMER_CACHE_SIZE`).
    pub cache_size: usize,
    /// How bodies are held.
    pub compression: Compression,
    /// Every object is told again after this time.
    pub resync: Option<Duration>,
    /// Called for every object. Its metadata has been read, and stays what the server sent.
    pub transform: Option<KindTransform>,
}

impl Default for InformerOptions {
    fn default() -> InformerOptions {
        InformerOptions {
            watch: WatchOptions::default(),
            cache_size: 10_000,
            compression: Compression::default(),
            resync: None,
            transform: None,
        }
    }
}

/// The caches of a process: one per kind and scope, however many ask for it. Each begins when it is first asked for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = shoal_testkit::Cluster::start().await;
/// # let client = cluster.client();
/// use k8s_openapi::api::core::v1::Namespace;
/// use shoal_runtime::cache::{ChangeKind, InformerOptions};
/// use shoal_runtime::{Informers, ObjectKey};
///
/// let informers = Informers::new(client, InformerOptions::default());
/// let namespaces = informers.of::<Namespace>();
/// namespaces.synced().await;
/// assert!(namespaces.lister().get(&ObjectKey::cluster("default")).is_some());
///
/// let mut changes = namespaces.subscribe();
/// let first = changes.recv().await.ok_or("the informer has ended")?;
/// assert_eq!((first.change, &*first.key.name), (ChangeKind::Added, "default"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Informers {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    /// Locked before the caches are.
    options: Mutex<InformerOptions>,
    cores: Mutex<BTreeMap<Identity, Arc<Core>>>,
}

/// What makes two caches the same: group, version and plural, scope, whether there are bodies, and by which rule it is
/// divided among replicas.
type Identity = (String, String, String, Scope, bool, Division);

/// By which rule a cache is divided among replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Division {
    /// Every replica has everything.
    #[default]
    Whole,
    /// By the objects themselves.
    Primary,
    /// By the objects that own them.
    Owned,
}

impl Informers {
    /// No cache yet.
    pub fn new(client: Client, options: InformerOptions) -> Informers {
        Informers { inner: Arc::new(Inner { client, options: Mutex::new(options), cores: Mutex::default() }) }
    }

    /// All objects of a kind.
    pub fn of<K>(&self) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.scoped(Scope::all())
    }

    /// The objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.scoped(Scope::namespace(namespace))
    }

    /// Some objects of a kind.
    pub fn scoped<K>(&self, scope: Scope) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.informer(ApiResource::erase::<K>(&()), scope, false)
    }

    /// A cache of which each replica holds a part; none before [`Core::reshard`] says which.
    pub(crate) fn divided<K>(
        &self,
        scope: Scope,
        division: Division,
        first: Part,
        filter: Filter,
    ) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = ApiResource::erase::<K>(&());
        let whole = scope.clone();
        let scope = Scope { shard: first.shard, labels: first.labels.or(scope.labels), ..scope };
        let source = Source { resource, scope, metadata_only: false };
        Informer::new(self.core(source, whole, division, Some(filter)))
    }

    /// The metadata of all objects of a kind.
    pub fn metadata<K>(&self) -> Informer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.metadata_scoped(Scope::all())
    }

    /// The metadata of some objects of a kind.
    pub fn metadata_scoped<K>(&self, scope: Scope) -> Informer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.informer(ApiResource::erase::<K>(&()), scope, true)
    }

    /// Objects of a kind that is known at run time.
    pub fn dynamic(&self, resource: &ApiResource, scope: Scope) -> Informer<DynamicObject> {
        self.informer(resource.clone(), scope, false)
    }

    /// The metadata of objects of a kind that is known at run time.
    pub fn dynamic_metadata(
        &self,
        resource: &ApiResource,
        scope: Scope,
    ) -> Informer<PartialObjectMeta<DynamicObject>> {
        self.informer(resource.clone(), scope, true)
    }

    /// The metadata of all objects of a kind, if the whole objects are in a cache anyway.
    pub fn held(&self, resource: &ApiResource) -> Option<Informer<PartialObjectMeta<DynamicObject>>> {
        let ApiResource { group, version, plural, .. } = resource.clone();
        let core = self
            .inner
            .cores
            .lock()
            .get(&(group, version, plural, Scope::all(), false, Division::Whole))
            .cloned();
        core.map(Informer::new)
    }

    fn informer<K>(&self, resource: ApiResource, scope: Scope, metadata_only: bool) -> Informer<K>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let whole = scope.clone();
        Informer::new(self.core(Source { resource, scope, metadata_only }, whole, Division::Whole, None))
    }

    fn core(&self, source: Source, scope: Scope, division: Division, filter: Option<Filter>) -> Arc<Core> {
        let ApiResource { group, version, plural, .. } = &source.resource;
        let kind = (group.clone(), version.clone(), plural.clone());
        let identity = (kind.0, kind.1, kind.2, scope, source.metadata_only, division);
        let options = self.inner.options.lock();
        let mut cores = self.inner.cores.lock();
        let core = cores
            .entry(identity)
            .or_insert_with(|| Arc::new(Core::start(self.inner.client.clone(), source, &options, filter)));
        core.clone()
    }

    /// From now on, every object of every cache is told again after this time; never with None.
    pub fn set_resync(&self, period: Option<Duration>) {
        let mut options = self.inner.options.lock();
        options.resync = period;
        for core in self.inner.cores.lock().values() {
            core.resync(period);
        }
    }

    /// Whether every cache that was asked for has its first list.
    pub fn have_synced(&self) -> bool {
        self.inner.cores.lock().values().all(|core| core.progress.borrow().synced)
    }

    /// Waits until every cache that was asked for has its first list.
    pub async fn synced(&self) {
        loop {
            let waiting = {
                let cores = self.inner.cores.lock();
                cores.values().map(|core| core.progress.clone()).find(|progress| !progress.borrow().synced)
            };
            let Some(mut progress) = waiting else {
                return;
            };
            if progress.wait_for(|progress| progress.synced).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends all watches. Caches stay readable, subscriptions end.
    pub fn stop(&self) {
        for core in self.inner.cores.lock().values() {
            core.stop();
        }
    }

    /// What there is, for people to look at.
    pub fn snapshot(&self) -> Vec<InformerSnapshot> {
        self.inner.cores.lock().values().map(|core| InformerSnapshot::of(core)).collect()
    }
}

/// One cache, for people to look at.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerSnapshot {
    /// Path of the collection.
    pub path: String,
    /// Which labels, if not all.
    pub label_selector: Option<String>,
    /// Which fields, if not all.
    pub field_selector: Option<String>,
    /// The part that the server says it sends.
    pub shard_selector: Option<String>,
    /// Whether there are only metadata.
    pub metadata_only: bool,
    /// Whether the first list is there.
    pub synced: bool,
    /// Everything up to there is in the cache.
    pub revision: Option<String>,
    /// Whether lists come as a stream.
    pub streamed_lists: bool,
    /// Objects held.
    pub objects: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// Subscribers.
    pub subscribers: usize,
    /// Changes that subscribers did not fetch.
    pub pending: usize,
    /// Lists begun.
    pub lists: u64,
    /// Failures.
    pub troubles: u64,
    /// Objects that do not have the shape of their type.
    pub malformed: u64,
    /// What failed last, if nothing worked since.
    pub trouble: Option<String>,
}

impl InformerSnapshot {
    fn of(core: &Core) -> InformerSnapshot {
        let progress = core.progress.borrow().clone();
        let (subscribers, pending) = core.store.subscribers();
        InformerSnapshot {
            path: core.source.path(),
            label_selector: core.source.scope.labels.clone(),
            field_selector: core.source.scope.fields.clone(),
            shard_selector: progress.shard,
            metadata_only: core.source.metadata_only,
            synced: progress.synced,
            revision: progress.revision.map(|revision| revision.to_string()),
            streamed_lists: progress.streams,
            objects: core.store.len(),
            bytes: core.store.bytes(),
            subscribers,
            pending,
            lists: core.stats.lists.load(Ordering::Relaxed),
            troubles: core.stats.troubles.load(Ordering::Relaxed),
            malformed: core.stats.malformed.load(Ordering::Relaxed),
            trouble: progress.trouble.map(|fault| fault.to_string()),
        }
    }
}
