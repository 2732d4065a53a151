//! The caches of sharded controllers: which part each holds, and when it is fresh.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use shoal_sharding::SlotRange;

use super::partition::{Partition, SlotSet};
use crate::ObjectKey;
use crate::apply::Object;
use crate::cache::{Core, Division, Filter, Informer, Informers, Part};
use crate::watch::Scope;

/// How long a barrier waits for the watch to get there by itself.
const PATIENCE: Duration = Duration::from_millis(50);
/// A barrier that failed is tried again after this time.
const AGAIN: Duration = Duration::from_millis(200);

/// Queues every object of these slots that a controller looks after.
pub(crate) type Requeue = Arc<dyn Fn(Arc<SlotSet>) + Send + Sync>;

/// Everything that the sharded controllers of a process read.
pub(crate) struct Kinds {
    pub(crate) partition: Partition,
    kinds: Mutex<Vec<Kind>>,
    controllers: Mutex<Vec<Attached>>,
    wanted: Mutex<Arc<SlotSet>>,
}

struct Kind {
    core: Arc<Core>,
    division: Division,
    /// The labels of its scope.
    labels: Option<String>,
    /// What the server was last asked for.
    asked: Part,
}

#[derive(Clone)]
struct Attached {
    name: String,
    primary: Arc<Core>,
    requeue: Option<Requeue>,
}

impl Kinds {
    pub(crate) fn new(partition: Partition) -> Kinds {
        let wanted = Mutex::new(Arc::new(SlotSet::none(partition.slots)));
        Kinds { partition, kinds: Mutex::default(), controllers: Mutex::default(), wanted }
    }

    /// A cache of which this replica holds its part; nothing at first.
    pub(crate) fn divided<K: Object>(
        &self,
        informers: &Informers,
        scope: Scope,
        division: Division,
    ) -> Informer<K> {
        let wanted = self.wanted.lock().clone();
        let labels = scope.labels.clone();
        let first = self.partition.part(division, &wanted, labels.as_deref());
        let filter = self.partition.filter(division, &wanted);
        let informer = informers.divided::<K>(scope, division, first.clone(), filter);
        self.add(&informer, division, labels, first);
        informer
    }

    /// A cache that every replica holds in whole.
    pub(crate) fn whole<K: DeserializeOwned + Send + Sync + 'static>(&self, informer: &Informer<K>) {
        self.add(informer, Division::Whole, None, Part::default());
    }

    fn add<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        informer: &Informer<K>,
        division: Division,
        labels: Option<String>,
        asked: Part,
    ) {
        let mut kinds = self.kinds.lock();
        if !kinds.iter().any(|kind| Arc::ptr_eq(&kind.core, informer.core())) {
            kinds.push(Kind { core: informer.core().clone(), division, labels, asked });
        }
    }

    /// A controller that looks after the objects of this cache.
    pub(crate) fn controller<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        name: &str,
        primary: &Informer<K>,
    ) {
        let primary = primary.core().clone();
        self.controllers.lock().push(Attached { name: name.to_owned(), primary, requeue: None });
    }

    /// The controller runs, and can be told to look after objects.
    pub(crate) fn attach(&self, name: &str, requeue: Requeue) {
        let mut controllers = self.controllers.lock();
        if let Some(attached) = controllers.iter_mut().find(|attached| attached.name == name) {
            attached.requeue = Some(requeue);
        }
    }

    /// The names of the sharded controllers.
    pub(crate) fn controllers(&self) -> Vec<String> {
        self.controllers.lock().iter().map(|attached| attached.name.clone()).collect()
    }

    /// Queues every object of these slots, in every controller.
    pub(crate) fn requeue(&self, slots: &Arc<SlotSet>) {
        let controllers = self.controllers.lock().clone();
        controllers.iter().filter_map(|attached| attached.requeue.as_ref()).for_each(|requeue| {
            requeue(slots.clone());
        });
    }

    /// From now on the caches hold these slots. Caches that must ask the server for more, with the numbers of their changes.
    pub(crate) fn follow(&self, wanted: &SlotSet) -> Vec<(Arc<Core>, u64)> {
        let wanted = Arc::new(wanted.clone());
        let before = std::mem::replace(&mut *self.wanted.lock(), wanted.clone());
        if *before == *wanted {
            return Vec::new();
        }
        let gained = Arc::new(wanted.without(&before));
        let mut asked = Vec::new();
        for kind in self.kinds.lock().iter_mut().filter(|kind| kind.division != Division::Whole) {
            let filter = self.partition.filter(kind.division, &wanted);
            if gained.is_empty() {
                // A lost slot is evicted; the server is asked for less when things have calmed down.
                kind.core.narrow(filter);
                continue;
            }
            kind.asked = self.partition.part(kind.division, &wanted, kind.labels.as_deref());
            let number = match self.alone(kind, &gained).filter(|_| !before.is_empty()) {
                Some((part, covers)) => kind.core.gain(part, covers, kind.asked.clone(), filter),
                None => kind.core.reshard(kind.asked.clone(), Some(filter)),
            };
            asked.push((kind.core.clone(), number));
        }
        asked
    }

    /// How some slots of a kind are listed alone, if the server can tell them apart.
    fn alone(&self, kind: &Kind, slots: &Arc<SlotSet>) -> Option<(Part, Filter)> {
        let part = self.partition.part(kind.division, slots, kind.labels.as_deref());
        let everything = part.shard.is_none() && part.labels == kind.labels;
        (!everything).then(|| (part, self.partition.filter_of(kind.division, slots)))
    }

    /// Asks the server for no more than is wanted.
    pub(crate) fn narrow(&self) {
        let wanted = self.wanted.lock().clone();
        for kind in self.kinds.lock().iter_mut().filter(|kind| kind.division != Division::Whole) {
            let part = self.partition.part(kind.division, &wanted, kind.labels.as_deref());
            if part != kind.asked {
                kind.asked = part.clone();
                kind.core.ask_for_less(part);
            }
        }
    }

    /// The server answers again: caches that wait after a failure need not.
    pub(crate) fn hurry(&self) {
        self.kinds.lock().iter().for_each(|kind| kind.core.hurry());
    }

    /// Waits until every cache has listed what it was last asked for.
    pub(crate) async fn settled(&self) {
        let divided = |kind: &&Kind| kind.division != Division::Whole;
        let asked: Vec<(Arc<Core>, u64)> = self
            .kinds
            .lock()
            .iter()
            .filter(divided)
            .map(|kind| (kind.core.clone(), kind.core.last_part()))
            .collect();
        Kinds::listed(&asked).await;
    }

    /// Waits until these caches have listed what they were asked for.
    async fn listed(asked: &[(Arc<Core>, u64)]) {
        for (core, number) in asked {
            if core.listed(*number).await.is_err() {
                // The process is about to stop.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until every cache has seen everything that was written to these slots before this call. Those in `asked` were just told to
    /// list them, which does it.
    pub(crate) async fn fresh(&self, slots: &[SlotRange], asked: &[(Arc<Core>, u64)]) {
        Kinds::listed(asked).await;
        let gained = Arc::new(SlotSet::of(self.partition.slots, slots.iter().copied()));
        let just_listed = |core: &Arc<Core>| asked.iter().any(|(listed, _)| Arc::ptr_eq(listed, core));
        let all: Vec<_> = {
            let kinds = self.kinds.lock();
            let stale = kinds.iter().filter(|kind| !just_listed(&kind.core));
            stale
                .map(|kind| {
                    let divided = kind.division != Division::Whole;
                    (kind.core.clone(), divided.then(|| self.alone(kind, &gained)).flatten())
                })
                .collect()
        };
        let barriers = all.iter().map(|(core, alone)| async move {
            loop {
                let passed = match alone.clone() {
                    Some((part, covers)) => core.barrier_of(PATIENCE, part, covers).await,
                    None => core.barrier(PATIENCE).await,
                };
                let Err(fault) = passed else { return };
                tracing::debug!(cache = core.source.path(), %fault, "a barrier failed and is tried again");
                tokio::time::sleep(AGAIN).await;
            }
        });
        futures::future::join_all(barriers).await;
    }

    /// The objects of some slots that are held now, with the controllers that look after them.
    pub(crate) fn keys(&self, slots: SlotRange) -> Vec<(String, ObjectKey)> {
        let controllers = self.controllers.lock().clone();
        let mut keys = Vec::new();
        for attached in controllers {
            let there =
                attached.primary.store.list(None, |object| slots.contains(self.partition.slot_of(object)));
            keys.extend(there.iter().map(|object| (attached.name.clone(), object.key().clone())));
        }
        keys
    }

    /// What the server says about the parts that it was asked for, for people.
    pub(crate) fn inspect(&self) -> serde_json::Value {
        let kinds = self.kinds.lock();
        let shown = kinds.iter().map(|kind| {
            let obeyed = kind.core.progress.borrow().shard.is_some();
            serde_json::json!({
                "path": kind.core.source.path(),
                "filter": match kind.division {
                    Division::Whole => "none",
                    _ if kind.asked.shard.is_some() && obeyed => "server, by hash",
                    Division::Owned if kind.asked.labels != kind.labels => "server, by label",
                    _ => "client",
                },
                "objects": kind.core.store.len(),
                "bytes": kind.core.store.bytes(),
                "received": kind.core.stats.received.load(std::sync::atomic::Ordering::Relaxed),
            })
        });
        shown.collect()
    }
}
