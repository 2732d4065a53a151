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
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::encoded::Encoded;
use super::index::IndexFn;
use super::informers::InformerOptions;
use super::lister::Lister;
use super::pack::Packing;
use super::siblings::{Interner, KindShared};
use super::side::{Listed, Side, Sides};
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
    sweeps: Sweeps,
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

/// Decoded objects that nobody reads for so long, or up to twice as long, are let go: they are several times as large as the
/// encoded ones, and decoding takes microseconds.
const IDLE: Duration = Duration::from_secs(30);

/// Let go of what nobody reads, one for each type as which the cache is read.
type Sweeps = Arc<Mutex<Vec<Box<dyn Fn() + Send>>>>;

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
    /// List a part beside the watch.
    Side {
        side: Side,
        filter: Option<Filter>,
    },
    /// Ask for less, without a list.
    Narrow(Part),
    /// Wait no longer after a failure.
    Hurry,
    Resync(Option<Duration>),
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
        let sweeps: Sweeps = Arc::default();
        let follower = Follower {
            name,
            watcher,
            writer,
            stats: stats.clone(),
            progress,
            resync: options.resync,
            ticks: ticks(options.resync),
            sweeps: sweeps.clone(),
            part: 0,
            sides: Sides::new(client.clone(), source.clone(), options.watch.clone()),
            counted: 0,
            obeys: false,
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
            sweeps,
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
            let swept = view.clone();
            self.sweeps.lock().push(Box::new(move || swept.sweep()));
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

    /// Gets more of the kind: only the new part is listed, and the watch goes on with `then`. The number of this change, for
    /// [`Core::listed`].
    pub fn gain(&self, part: Part, covers: Filter, then: Part, filter: Filter) -> u64 {
        self.list_part(part, covers, Some(then), Some(filter))
    }

    /// Asks for less of the kind.
    pub fn ask_for_less(&self, part: Part) {
        let _ = self.commands.send(Command::Narrow(part));
    }

    fn list_part(&self, part: Part, covers: Filter, then: Option<Part>, filter: Option<Filter>) -> u64 {
        let number = self.parts.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.commands.send(Command::Side { side: Side { number, part, covers, then }, filter });
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

    /// From now on, every object is told again after this time.
    pub fn resync(&self, period: Option<Duration>) {
        let _ = self.commands.send(Command::Resync(period));
    }

    /// Does not wait any longer after a failure: the server is there again.
    pub fn hurry(&self) {
        if self.progress.borrow().trouble.is_some() {
            let _ = self.commands.send(Command::Hurry);
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

    /// The same for a part that is held: where the watch does not get there soon, only that part is listed.
    pub async fn barrier_of(&self, patience: Duration, part: Part, covers: Filter) -> Result<(), Fault> {
        self.listed(self.last_part()).await?;
        let newest = newest_revision(&self.client, &self.source, &self.options.watch).await?;
        let there = |progress: &Progress| progress.revision.as_ref().is_some_and(|seen| seen.covers(&newest));
        if tokio::time::timeout(patience, self.reached(there)).await.is_ok_and(|there| there.is_ok()) {
            return Ok(());
        }
        self.listed(self.list_part(part, covers, None, None)).await
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

/// The earlier of two moments, if that can be told.
fn earlier<'a>(a: &'a Revision, b: &'a Revision) -> Option<&'a Revision> {
    if b.covers(a) { Some(a) } else { a.covers(b).then_some(b) }
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
    ticks: Option<Interval>,
    sweeps: Sweeps,
    /// The last change of the part that the next list of everything follows.
    part: u64,
    sides: Sides,
    /// Bytes that are in the figures.
    counted: u64,
    /// Whether the server obeyed the last shard selector of a list; only lists say so.
    obeys: bool,
}

/// What a follower has to do next.
enum Happened {
    Step(Step),
    Listed(Side, Listed),
    Order(Option<Command>),
}

/// Comes true once in each period, first after a whole one.
fn ticks(period: Option<Duration>) -> Option<Interval> {
    let period = period.filter(|period| !period.is_zero())?;
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(ticks)
}

impl Follower {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut idle = tokio::time::interval_at(Instant::now() + IDLE, IDLE);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let happened = {
                let next = self.watcher.next();
                let side = self.sides.next();
                tokio::pin!(next, side);
                loop {
                    let tick = async {
                        match &mut self.ticks {
                            Some(ticks) => ticks.tick().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        order = orders.recv() => break Happened::Order(order),
                        _ = tick => self.writer.resync(),
                        _ = idle.tick() => self.sweeps.lock().iter().for_each(|sweep| sweep()),
                        (side, listed) = &mut side => break Happened::Listed(side, listed),
                        step = &mut next => break Happened::Step(step),
                    }
                }
            };
            match happened {
                Happened::Step(step) => {
                    let received = self.watcher.received();
                    self.stats.received.fetch_add(received - self.counted, Ordering::Relaxed);
                    self.counted = received;
                    self.take(step);
                }
                Happened::Listed(side, listed) => {
                    self.stats.received.fetch_add(listed.received, Ordering::Relaxed);
                    self.join(side, &listed);
                }
                Happened::Order(Some(order)) => self.obey(order),
                Happened::Order(None) => return,
            }
        }
    }

    fn obey(&mut self, order: Command) {
        match order {
            Command::ListAgain { unless } => {
                let listing = self.watcher.listing();
                let enough = |wanted: &Revision| listing.is_some_and(|listing| listing.covers(wanted));
                if !unless.as_ref().is_some_and(enough) {
                    self.watcher.list_again();
                }
            }
            Command::Reshard { number, part, filter } => {
                self.writer.set_filter(filter);
                self.reshard(part, number);
            }
            Command::Filter(filter) => self.writer.set_filter(Some(filter)),
            Command::Side { side, filter } => {
                if let Some(filter) = filter {
                    self.writer.set_filter(Some(filter));
                }
                let steady = {
                    let progress = self.progress.borrow();
                    progress.synced && progress.part == self.part
                };
                match side.then {
                    _ if steady => self.sides.add(side),
                    // Everything is to be listed anyway.
                    Some(then) => self.reshard(then, side.number),
                    None => {
                        self.watcher.list_again();
                        self.part = side.number;
                    }
                }
            }
            Command::Narrow(part) if self.sides.is_empty() => {
                let known = self.progress.borrow().revision.clone();
                let shard = part.shard.clone().filter(|_| self.obeys);
                match known {
                    Some(known) => {
                        self.watcher.resume_with(part.shard, part.labels, known);
                        self.progress.send_modify(|progress| progress.shard = shard);
                    }
                    None => self.watcher.reshard(part.shard, part.labels),
                }
            }
            Command::Narrow(part) => self.sides.then(&part),
            Command::Hurry => self.watcher.hurry(),
            Command::Resync(period) if period == self.resync => {}
            Command::Resync(period) => {
                self.resync = period;
                self.ticks = ticks(period);
            }
        }
    }

    /// Lists everything anew, which is more than any part.
    fn reshard(&mut self, part: Part, number: u64) {
        self.sides.clear();
        self.watcher.reshard(part.shard, part.labels);
        self.part = number;
    }

    /// A part was listed: takes it in, and goes on with the watch from where both have been told.
    fn join(&mut self, side: Side, listed: &Listed) {
        let Some(known) = self.progress.borrow().revision.clone() else { return };
        self.writer.complete_part(&listed.changes, &side.covers, &listed.revision);
        if side.part.shard.is_some() {
            self.obeys = listed.shard.is_some();
        }
        self.part = side.number;
        let (mut revision, mut shard) = (known.clone(), self.progress.borrow().shard.clone());
        if let Some(then) = side.then {
            let Some(from) = earlier(&known, &listed.revision) else {
                // Whoever cannot compare versions has to list.
                return self.reshard(then, side.number);
            };
            self.writer.told_up_to(&known);
            shard = then.shard.clone().filter(|_| self.obeys);
            self.watcher.resume_with(then.shard, then.labels, from.clone());
            revision = from.clone();
        }
        let part = side.number;
        self.progress.send_modify(|progress| {
            *progress = Progress { revision: Some(revision), shard, part, ..progress.clone() };
        });
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
                if self.watcher.selects() {
                    self.obeys = shard.is_some();
                }
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
        self.writer.forget_floors(revision);
        self.progress.send_modify(|progress| {
            progress.revision = Some(revision.clone());
            progress.trouble = None;
        });
    }
}
