//! A cache that follows its kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::encoded::Encoded;
use super::index::IndexFn;
use super::informers::InformerOptions;
use super::lister::Lister;
use super::pack::Packing;
use super::siblings::{Interner, KindShared};
use super::stats::Stats;
use super::store::Store;
use super::subscription::Subscription;
use super::view::View;
use super::writer::{Filter, Writer};
use crate::watch::{Fault, Revision, Scope, Source, Step, Watcher, newest_revision};

/// How long a barrier waits for the watch to get there by itself, before it asks for a list.
const BARRIER_PATIENCE: Duration = Duration::from_millis(500);

/// One cache and the task that fills it, shared by everyone who reads this kind and scope.
pub(crate) struct Core {
    pub store: Arc<Store>,
    pub stats: Arc<Stats>,
    pub source: Source,
    pub progress: watch::Receiver<Progress>,
    client: Client,
    options: InformerOptions,
    commands: mpsc::UnboundedSender<Command>,
    parts: AtomicU64,
    task: AbortHandle,
    views: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// How far a cache has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub synced: bool,
    /// Everything up to here is in the cache.
    pub revision: Option<Revision>,
    /// The shard selector that the server says it obeys.
    pub shard: Option<String>,
    /// What failed last, if nothing worked since.
    pub trouble: Option<Fault>,
    pub streams: bool,
    /// The last change of the part that a list has followed.
    pub part: u64,
}

enum Command {
    /// Unless a list is under way that shows this moment.
    ListAgain {
        unless: Option<Revision>,
    },
    Reshard {
        number: u64,
        part: Part,
        filter: Option<Filter>,
    },
    Filter(Filter),
}

/// Which part of its kind a cache asks the server for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// By hash (KEP-5866).
    pub shard: Option<String>,
    /// By labels, instead of those of the scope.
    pub labels: Option<String>,
}

impl Core {
    pub fn start(client: Client, source: Source, options: &InformerOptions, filter: Option<Filter>) -> Core {
        let store = Arc::new(Store::default());
        let stats = Arc::new(Stats::default());
        let kind =
            Arc::new(KindShared { prefix: prefix(&source), packing: Packing::new(options.compression) });
        let transform = options.transform.clone().map(|transform| {
            let resource = source.resource.clone();
            Arc::new(move |body| transform(&resource, body)) as super::writer::Transform
        });
        let mut writer = Writer::new(store.clone(), Interner::new(kind), transform, stats.clone());
        writer.set_filter(filter);
        let watcher = Watcher::new(client.clone(), source.clone(), options.watch.clone());
        let (commands, orders) = mpsc::unbounded_channel();
        let (progress, seen) = watch::channel(Progress::default());
        let name = source.path();
        let follower = Follower {
            name,
            watcher,
            writer,
            stats: stats.clone(),
            progress,
            resync: options.resync,
            part: 0,
        };
        let task = tokio::spawn(follower.run(orders)).abort_handle();
        Core {
            store,
            stats,
            source,
            progress: seen,
            client,
            options: options.clone(),
            commands,
            parts: AtomicU64::new(0),
            task,
            views: Mutex::default(),
        }
    }

    /// The view of this cache as `K`, shared by all who want it. Whoever asks first says how much is kept.
    pub fn view<K: DeserializeOwned + Send + Sync + 'static>(&self, capacity: usize) -> Arc<View<K>> {
        let mut views = self.views.lock();
        let known = views.get(&TypeId::of::<K>()).cloned().and_then(|view| view.downcast().ok());
        known.unwrap_or_else(|| {
            let view = Arc::new(View::<K>::new(capacity, self.stats.clone()));
            let forgetful = view.clone();
            self.store.add_forget(Arc::new(move |id| forgetful.forget(id)));
            views.insert(TypeId::of::<K>(), view.clone());
            view
        })
    }

    pub fn stop(&self) {
        self.task.abort();
        self.store.close();
    }

    /// Asks for another part of the kind. Objects outside of the filter are evicted at once. The number of this change,
    /// for [`Core::listed`].
    pub fn reshard(&self, part: Part, filter: Option<Filter>) -> u64 {
        let number = self.parts.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.commands.send(Command::Reshard { number, part, filter });
        number
    }

    /// The number of the last change of the part.
    pub fn last_part(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Evicts what is outside of the filter. Nothing new is asked for.
    pub fn narrow(&self, filter: Filter) {
        let _ = self.commands.send(Command::Filter(filter));
    }

    /// Does not wait any longer after a failure: the server is there again.
    pub fn hurry(&self) {
        if self.progress.borrow().trouble.is_some() {
            let _ = self.commands.send(Command::ListAgain { unless: None });
        }
    }

    /// Waits until a list has followed that change of the part. The list was asked for after the change.
    pub async fn listed(&self, number: u64) -> Result<(), Fault> {
        self.reached(|progress| progress.part >= number).await
    }

    /// Waits until the cache has seen everything that was written to this kind before the call.
    pub async fn barrier(&self, patience: Duration) -> Result<(), Fault> {
        // While another part is being listed, what was seen of the part before says nothing.
        self.listed(self.last_part()).await?;
        let newest = newest_revision(&self.client, &self.source, &self.options.watch).await?;
        let there = |progress: &Progress| progress.revision.as_ref().is_some_and(|seen| seen.covers(&newest));
        if tokio::time::timeout(patience, self.reached(there)).await.is_ok_and(|there| there.is_ok()) {
            return Ok(());
        }
        let _ = self.commands.send(Command::ListAgain { unless: Some(newest.clone()) });
        self.reached(there).await
    }

    async fn reached(&self, there: impl Fn(&Progress) -> bool) -> Result<(), Fault> {
        let mut progress = self.progress.clone();
        match progress.wait_for(there).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::Connection("the informer was stopped".to_owned())),
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `{"apiVersion":…,"kind":…,` as JSON.
fn prefix(source: &Source) -> Box<str> {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let resource = &source.resource;
    format!("{{\"apiVersion\":{},\"kind\":{},", text(&resource.api_version), text(&resource.kind)).into()
}

/// A kind, or part of one, in memory and up to date. Clones share it; it ends when the last one and its [`Informers`]
/// are dropped.
///
/// [`Informers`]: super::Informers
pub struct Informer<K> {
    core: Arc<Core>,
    view: Arc<View<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Informer<K> {
        Informer { core: self.core.clone(), view: self.view.clone() }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Informer<K> {
    pub(crate) fn new(core: Arc<Core>) -> Informer<K> {
        let view = core.view(core.options.cache_size);
        Informer { core, view }
    }

    /// Whether the first list is in the cache.
    pub fn has_synced(&self) -> bool {
        self.core.progress.borrow().synced
    }

    /// Waits for the first list.
    pub async fn synced(&self) {
        // An error means that the informer was stopped: it will never be.
        if self.core.progress.clone().wait_for(|progress| progress.synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Reads the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister { core: self.core.clone(), view: self.view.clone() }
    }

    /// Changes from now on, beginning with everything that is held now as added.
    pub fn subscribe(&self) -> Subscription {
        self.core.store.subscribe()
    }

    /// Adds an index by metadata, for [`Lister::by_index`]. One of the same name is replaced.
    pub fn add_index(&self, name: &str, values: impl Fn(&Encoded) -> Vec<String> + Send + Sync + 'static) {
        self.core.store.add_index(name, Arc::new(values));
    }

    /// Adds an index that looks into objects. Every object is decoded once for it, when it comes into the cache.
    pub fn add_decoded_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let by_body: IndexFn = Arc::new(move |object: &Encoded| {
            object.decode::<K>().map(|decoded| values(&decoded)).unwrap_or_default()
        });
        self.core.store.add_index(name, by_body);
    }

    /// Waits until the cache has seen everything that was written to this kind before the call.
    ///
    /// Asks for the newest revision with a read that is not answered from the past, and waits for the watch to get
    /// there. A kind in which nothing happens hears of later revisions only by bookmarks: it is listed after a moment.
    pub async fn barrier(&self) -> Result<(), Fault> {
        self.core.barrier(BARRIER_PATIENCE).await
    }

    /// The cache behind it, whatever the type of its objects.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Lists again, now. What changed is told as a difference.
    pub fn refresh(&self) {
        let _ = self.core.commands.send(Command::ListAgain { unless: None });
    }

    /// Watches another part of the kind from now on (KEP-5866). `filter` says which objects these are, for servers that do
    /// not know the selector; objects outside are evicted at once, new ones come with the list that follows.
    pub fn reshard(&self, selector: Option<String>, filter: Option<Filter>) {
        let labels = self.core.source.scope.labels.clone();
        self.core.reshard(Part { shard: selector, labels }, filter);
    }

    /// The shard selector that the server says it obeys; without, only the filter of [`Informer::reshard`] works.
    pub fn obeyed_shard(&self) -> Option<String> {
        self.core.progress.borrow().shard.clone()
    }

    /// Everything up to this revision is in the cache.
    pub fn revision(&self) -> Option<Revision> {
        self.core.progress.borrow().revision.clone()
    }

    /// What failed last, if nothing worked since.
    pub fn trouble(&self) -> Option<Fault> {
        self.core.progress.borrow().trouble.clone()
    }

    /// Figures.
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Which objects are watched.
    pub fn scope(&self) -> &Scope {
        &self.core.source.scope
    }
}

/// The task behind a cache.
struct Follower {
    name: String,
    watcher: Watcher,
    writer: Writer,
    stats: Arc<Stats>,
    progress: watch::Sender<Progress>,
    resync: Option<Duration>,
    /// The last change of the part.
    part: u64,
}

impl Follower {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let period = self.resync.filter(|period| !period.is_zero());
        let mut resync = period.map(|period| {
            let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        loop {
            let happened = {
                let next = self.watcher.next();
                tokio::pin!(next);
                loop {
                    let tick = async {
                        match &mut resync {
                            Some(ticks) => ticks.tick().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        order = orders.recv() => break Err(order),
                        _ = tick => self.writer.resync(),
                        step = &mut next => break Ok(step),
                    }
                }
            };
            match happened {
                Ok(step) => self.take(step),
                Err(Some(Command::ListAgain { unless })) => {
                    let listing = self.watcher.listing();
                    let enough = |wanted: &Revision| listing.is_some_and(|listing| listing.covers(wanted));
                    if !unless.as_ref().is_some_and(enough) {
                        self.watcher.list_again();
                    }
                }
                Err(Some(Command::Reshard { number, part, filter })) => {
                    self.writer.set_filter(filter);
                    self.watcher.reshard(part.shard, part.labels);
                    self.part = number;
                }
                Err(Some(Command::Filter(filter))) => self.writer.set_filter(Some(filter)),
                Err(None) => return,
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin { restored } => {
                if restored {
                    tracing::warn!(watch = self.name, "the server was set back to an older state");
                }
                self.writer.begin(restored);
            }
            Step::Changes { changes, revision } => {
                self.writer.apply(&changes);
                if let Some(revision) = revision {
                    self.advance(&revision);
                }
            }
            Step::Complete { revision, shard } => {
                self.writer.complete(&revision);
                let (streams, part) = (self.watcher.streams(), self.part);
                self.progress.send_modify(|progress| {
                    let revision = Some(revision);
                    *progress = Progress { synced: true, revision, shard, trouble: None, streams, part };
                });
            }
            Step::Progress(revision) => {
                Stats::count(&self.stats.bookmarks);
                self.advance(&revision);
            }
            Step::Trouble(fault, wait) => {
                Stats::count(&self.stats.troubles);
                tracing::debug!(watch = self.name, %fault, ?wait, "a list or watch failed");
                self.progress.send_modify(|progress| progress.trouble = Some(fault));
            }
        }
    }

    fn advance(&mut self, revision: &Revision) {
        self.progress.send_modify(|progress| {
            progress.revision = Some(revision.clone());
            progress.trouble = None;
        });
    }
}
