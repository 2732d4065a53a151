//! One watched kind of a controller: its changes become keys in the queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::listers::{BY_OWNER, Listers};
use super::pipeline::Pipeline;
use crate::ObjectKey;
use crate::apply::Object;
use crate::cache::{
    ChangeKind, Delta, Division, Encoded, Informer, Informers, Lister, Origin, Subscription, owner_uids,
};
use crate::shard::Kinds;
use crate::trigger::{self, Predicate};
use crate::watch::Scope;

/// The keys that a change concerns.
pub(super) type Keys = Box<dyn Fn(&Delta) -> Vec<ObjectKey> + Send + Sync>;

/// The keys that an object of another kind concerns.
pub(super) type Mapping<T> = dyn Fn(&T, &Listers) -> Vec<ObjectKey> + Send + Sync;

/// Is told of an object that is not ours any more.
pub(super) type Evicted = Box<dyn Fn(&ObjectKey) + Send + Sync>;

/// A watched kind, whatever its type.
pub(super) struct Source {
    /// For people.
    pub(super) kind: String,
    pub(super) synced: Box<dyn Fn() -> bool + Send + Sync>,
    /// All objects of the kind that are held.
    pub(super) held: Box<dyn Fn() -> Vec<Arc<Encoded>> + Send + Sync>,
    /// Is told of objects that are not ours any more.
    pub(super) evicted: Option<Evicted>,
    pub(super) subscribe: Box<dyn Fn() -> Subscription + Send + Sync>,
    pub(super) keys: Keys,
    pub(super) predicate: Option<Predicate>,
    /// The kind that is reconciled: its deletions are remembered until they were worked on.
    pub(super) main: bool,
    /// `keys` gives only keys that the gate admits. They may stand for several objects.
    pub(super) asks_gate: bool,
}

/// Each key once.
fn unique(keys: impl Iterator<Item = ObjectKey>) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Source {
    /// A kind whose changes concern the keys that `keys` gives.
    pub(super) fn new<T>(informer: &Informer<T>, kind: &str, keys: Keys) -> Source
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        let (sync, changes, lister) = (informer.clone(), informer.clone(), informer.lister());
        Source {
            kind: kind.to_owned(),
            synced: Box::new(move || sync.has_synced()),
            held: Box::new(move || lister.metas()),
            evicted: None,
            subscribe: Box::new(move || changes.subscribe()),
            keys,
            predicate: None,
            main: false,
            asks_gate: false,
        }
    }

    /// A kind whose objects belong to objects of `K`.
    pub(super) fn owned<K: Object, T: Object>(
        informers: &Informers,
        kinds: Option<&Arc<Kinds>>,
        scope: Scope,
        listers: &Listers,
        parents: Lister<K>,
    ) -> Source {
        let informer = match kinds {
            Some(kinds) => kinds.divided::<T>(informers, scope, Division::Owned),
            None => informers.scoped::<T>(scope),
        };
        informer.add_index(BY_OWNER, owner_uids);
        listers.add(&informer);
        let keys = move |delta: &Delta| trigger::controllers(delta, &K::group(&()), &K::kind(&()), &parents);
        Source::new(&informer, &T::kind(&()), Box::new(keys))
    }

    /// A kind whose objects concern what `map` says.
    pub(super) fn mapped<T: Object>(
        informers: &Informers,
        kinds: Option<&Arc<Kinds>>,
        listers: &Listers,
        map: Arc<Mapping<T>>,
    ) -> Source {
        let informer = informers.of::<T>();
        if let Some(kinds) = kinds {
            kinds.whole(&informer);
        }
        let (lister, listers) = (listers.add(&informer), listers.clone());
        let keys = move |delta: &Delta| {
            let objects = trigger::states(delta).filter_map(|state| lister.decode(state));
            unique(objects.flat_map(|object| map(&object, &listers)))
        };
        Source::new(&informer, &T::kind(&()), Box::new(keys))
    }

    /// A kind whose metadata concern what `map` says.
    pub(super) fn mapped_metadata<T: Object>(
        informers: &Informers,
        kinds: Option<&Arc<Kinds>>,
        listers: &Listers,
        map: Arc<Mapping<Encoded>>,
    ) -> Source {
        let informer = informers.of::<T>();
        if let Some(kinds) = kinds {
            kinds.whole(&informer);
        }
        listers.add(&informer);
        let listers = listers.clone();
        let keys = move |delta: &Delta| unique(trigger::states(delta).flat_map(|state| map(state, &listers)));
        Source::new(&informer, &T::kind(&()), Box::new(keys))
    }

    /// A kind whose objects concern nobody: there is nothing to decode.
    pub(super) fn read<T: Object>(
        informers: &Informers,
        kinds: Option<&Arc<Kinds>>,
        listers: &Listers,
    ) -> Source {
        let informer = informers.of::<T>();
        if let Some(kinds) = kinds {
            kinds.whole(&informer);
        }
        listers.add(&informer);
        Source::new(&informer, &T::kind(&()), Box::new(|_| Vec::new()))
    }

    /// Hands changes on until the informer ends.
    pub(super) async fn follow(self: Arc<Self>, pipeline: Arc<Pipeline>) {
        let mut changes = (self.subscribe)();
        while let Some(delta) = changes.recv().await {
            self.hand_on(&delta, &pipeline);
            // A flood of changes must not keep the thread from everyone else.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Queues objects that came into our hands, and deletions that were seen before they did.
    pub(super) async fn queue_again(&self, pipeline: &Pipeline, ours: impl Fn(&Encoded) -> bool) {
        let held = (self.held)().into_iter().map(|object| (ChangeKind::Added, None, Some(object)));
        let gone = pipeline.tombs.all().into_iter().map(|last| (ChangeKind::Deleted, Some(last), None));
        for (change, old, new) in held.chain(gone) {
            let wanted = old.as_deref().or(new.as_deref()).is_some_and(&ours);
            if wanted && let Some(delta) = Delta::new(change, Origin::Relist, old, new) {
                match catch_unwind(AssertUnwindSafe(|| (self.keys)(&delta))) {
                    Ok(keys) => pipeline.enqueue(keys, &delta, self.asks_gate),
                    Err(_) => tracing::error!(kind = self.kind, key = %delta.key, "a map panicked"),
                }
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    fn hand_on(&self, delta: &Delta, pipeline: &Pipeline) {
        if self.main {
            pipeline.tombs.see(delta);
        }
        // Not gone, only not ours any more: whose it is will look after it.
        if delta.change == ChangeKind::Evicted {
            if let Some(evicted) = &self.evicted {
                evicted(&delta.key);
            }
            return;
        }
        // Predicates and maps are the user's. If one panics, this change concerns nobody; the watch goes on.
        let keys = catch_unwind(AssertUnwindSafe(|| {
            let wanted = self.predicate.as_ref().is_none_or(|predicate| predicate.holds(delta));
            if wanted { (self.keys)(delta) } else { Vec::new() }
        }));
        match keys {
            Ok(keys) => pipeline.enqueue(keys, delta, self.asks_gate),
            Err(_) => tracing::error!(kind = self.kind, key = %delta.key, "a predicate or map panicked"),
        }
    }
}
