//! A cache that follows its kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
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
}

enum Command {
    ListAgain,
    Reshard { selector: Option<String>, filter: Option<Filter> },
}

impl Core {
    pub fn start(client: Client, source: Source, options: &InformerOptions) -> Core {
        let store = Arc::new(Store::default());
        let stats = Arc::new(Stats::default());
        let kind =
            Arc::new(KindShared { prefix: prefix(&source), packing: Packing::new(options.compression) });
        let transform = options.transform.clone().map(|transform| {
            let resource = source.resource.clone();
            Arc::new(move |body| transform(&resource, body)) as super::writer::Transform
        });
        let writer = Writer::new(store.clone(), Interner::new(kind), transform, stats.clone());
        let watcher = Watcher::new(client.clone(), source.clone(), options.watch.clone());
        let (commands, orders) = mpsc::unbounded_channel();
        let (progress, seen) = watch::channel(Progress::default());
        let name = source.path();
        let follower =
            Follower { name, watcher, writer, stats: stats.clone(), progress, resync: options.resync };
        let task = tokio::spawn(follower.run(orders)).abort_handle();
        Core {
            store,
            stats,
            source,
            progress: seen,
            client,
            options: options.clone(),
            commands,
            task,
            views: Mutex::default(),
        }
    }

    /// The view of this cache as `K`, shared by all who want it.
    fn view<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Arc<View<K>> {
        let mut views = self.views.lock();
        let known = views.get(&TypeId::of::<K>()).cloned().and_then(|view| view.downcast().ok());
        known.unwrap_or_else(|| {
            let view = Arc::new(View::<K>::new(self.options.cache_size, self.stats.clone()));
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
        let view = core.view();
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
        let core = &self.core;
        let newest = newest_revision(&core.client, &core.source, &core.options.watch).await?;
        let mut progress = core.progress.clone();
        let there = |progress: &Progress| progress.revision.as_ref().is_some_and(|seen| seen.covers(&newest));
        if tokio::time::timeout(BARRIER_PATIENCE, progress.wait_for(there)).await.is_ok() {
            return Ok(());
        }
        self.refresh();
        match progress.wait_for(there).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::Connection("the informer was stopped".to_owned())),
        }
    }

    /// Lists again, now. What changed is told as a difference.
    pub fn refresh(&self) {
        let _ = self.core.commands.send(Command::ListAgain);
    }

    /// Watches another part of the kind from now on (KEP-5866). `filter` says which objects these are, for servers that do
    /// not know the selector; objects outside are evicted at once, new ones come with the list that follows.
    pub fn reshard(&self, selector: Option<String>, filter: Option<Filter>) {
        let _ = self.core.commands.send(Command::Reshard { selector, filter });
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
                Err(Some(Command::ListAgain)) => self.watcher.list_again(),
                Err(Some(Command::Reshard { selector, filter })) => {
                    self.writer.set_filter(filter);
                    self.watcher.reshard(selector);
                }
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
                let streams = self.watcher.streams();
                self.progress.send_modify(|progress| {
                    *progress =
                        Progress { synced: true, revision: Some(revision), shard, trouble: None, streams };
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
