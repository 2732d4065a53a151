//! The other style: functions for what happened instead of one for what is.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::pipeline::Tombs;
use super::run::kept;
use super::source::{Keys, Source};
use crate::ObjectKey;
use crate::apply::Object;
use crate::cache::{Delta, Encoded, Informer, Lister};
use crate::client::{Cause, because};
use crate::gate::{Admission, Gate};
use crate::reconcile::{Action, Result};
use crate::trigger;
use crate::worker::Job;

/// Is told what happened to objects of `K`: each one added, updated or deleted, compared with what the handler was told
/// last.
///
/// Steps in between may be missing: an object that changed twice while the handler was busy is updated once. A call that
/// fails is made again as the error's class says. After a restart every object is added anew.
pub trait ResourceHandler<K>: Send + Sync + 'static {
    /// An object that the handler has not seen.
    fn add(&self, object: Arc<K>) -> impl Future<Output = Result<()>> + Send;

    /// An object has changed, or is told again by a resync.
    fn update(&self, old: Arc<K>, new: Arc<K>) -> impl Future<Output = Result<()>> + Send;

    /// An object is gone; this is its last state.
    fn delete(&self, object: Arc<K>) -> impl Future<Output = Result<()>> + Send;

    /// Whether the object concerns this handler.
    fn should_process(&self, object: &K) -> bool {
        let _ = object;
        true
    }

    /// Calls for objects of one key never overlap. By default each object has its own.
    fn key(&self, object: &K) -> ObjectKey
    where
        K: Object,
    {
        ObjectKey::of(object)
    }
}

/// A handler and what it was told.
pub(super) struct Handling<K, H> {
    controller: Arc<str>,
    handler: H,
    gate: Gate,
    lister: Lister<K>,
    /// Objects with untold changes, by the key that is queued for them.
    untold: Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
    tombs: Arc<Tombs>,
    /// What the handler was told last. Shared with the cache as long as it is up to date.
    told: Mutex<HashMap<ObjectKey, Arc<Encoded>>>,
}

impl<K: Object, H: ResourceHandler<K>> Handling<K, H> {
    pub(super) fn new(
        controller: &str,
        handler: H,
        gate: Gate,
        lister: Lister<K>,
        tombs: Arc<Tombs>,
    ) -> Arc<Handling<K, H>> {
        let (untold, told) = (Mutex::default(), Mutex::default());
        Arc::new(Handling { controller: controller.into(), handler, gate, lister, tombs, untold, told })
    }

    pub(super) fn source(self: &Arc<Self>, informer: &Informer<K>) -> Source {
        let handling = self.clone();
        let keys: Keys = Box::new(move |delta| handling.key_of(delta).into_iter().collect());
        let forgetful = self.clone();
        let evicted = Box::new(move |key: &ObjectKey| _ = forgetful.told.lock().remove(key));
        Source {
            main: true,
            asks_gate: true,
            evicted: Some(evicted),
            ..Source::new(informer, &K::kind(&()), keys)
        }
    }

    pub(super) fn work(
        self: &Arc<Self>,
    ) -> impl Fn(Job<ObjectKey>) -> BoxFuture<'static, Result<Action>> + use<K, H> {
        let handling = self.clone();
        move |job| {
            let handling = handling.clone();
            Box::pin(async move { handling.run(&job.key).await })
        }
    }

    /// Notes a change; the key to queue.
    fn key_of(&self, delta: &Delta) -> Option<ObjectKey> {
        if let Admission::Denied = self.gate.ask(&delta.key, delta.latest().map(AsRef::as_ref)) {
            return None;
        }
        let states = trigger::states(delta).filter_map(|state| self.lister.decode(state));
        let object = states.filter(|object| self.handler.should_process(object)).last()?;
        let key = self.handler.key(&object);
        self.untold.lock().entry(key.clone()).or_default().insert(delta.key.clone());
        Some(key)
    }

    /// Tells everything that is queued under a key.
    async fn run(&self, key: &ObjectKey) -> Result<Action> {
        while let Some(mut object) = Untold::next(&self.untold, key) {
            let key = object.key.clone();
            let (now, told) = (self.lister.meta(&key), self.told.lock().get(&key).cloned());
            let last = if now.is_none() { self.tombs.of(&key) } else { None };
            let known = now.as_deref().or(last.as_deref()).or(told.as_deref());
            let Some(entry) = self.gate.enter(&key, known) else {
                self.told.lock().remove(&key);
                object.told = true;
                continue;
            };
            let cause = Cause {
                controller: self.controller.clone(),
                key: Some(key.clone()),
                trigger: "event".into(),
                fence: entry.fence.clone(),
            };
            kept(&entry, because(cause, self.tell(&key, now, told))).await?;
            object.told = true;
        }
        Ok(Action::done())
    }

    /// Tells the difference between what the handler knows of an object and what is.
    async fn tell(
        &self,
        key: &ObjectKey,
        now: Option<Arc<Encoded>>,
        told: Option<Arc<Encoded>>,
    ) -> Result<()> {
        match (now, told) {
            (Some(now), Some(told)) if now.uid() == told.uid() => {
                if let (Some(told), Some(new)) = (self.lister.decode(&told), self.lister.decode(&now)) {
                    self.handler.update(told, new).await?;
                }
                self.told.lock().insert(key.clone(), now);
            }
            (Some(now), told) => {
                // Another object has taken the name.
                if let Some(told) = told.and_then(|told| self.lister.decode(&told)) {
                    self.handler.delete(told).await?;
                    self.told.lock().remove(key);
                }
                if let Some(new) = self.lister.decode(&now) {
                    self.handler.add(new).await?;
                }
                self.told.lock().insert(key.clone(), now);
            }
            (None, told) => {
                let last = self.tombs.of(key);
                if let (Some(last), Some(_)) = (&last, &told)
                    && let Some(object) = self.lister.decode(last)
                {
                    self.handler.delete(object).await?;
                }
                self.told.lock().remove(key);
                if let Some(last) = last {
                    self.tombs.done(key, &last);
                }
            }
        }
        Ok(())
    }
}

/// An object whose change is being told. It goes back if that fails, whichever way.
struct Untold<'a> {
    all: &'a Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
    queued: &'a ObjectKey,
    key: ObjectKey,
    told: bool,
}

impl<'a> Untold<'a> {
    fn next(
        all: &'a Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
        queued: &'a ObjectKey,
    ) -> Option<Untold<'a>> {
        let mut untold = all.lock();
        let objects = untold.get_mut(queued)?;
        let key = objects.pop_first();
        if objects.is_empty() {
            untold.remove(queued);
        }
        drop(untold);
        key.map(|key| Untold { all, queued, key, told: false })
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.all.lock().entry(self.queued.clone()).or_default().insert(self.key.clone());
        }
    }
}
