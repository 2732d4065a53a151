//! What a controller is made of.

use std::sync::Arc;
use std::time::Duration;

use super::handler::Handling;
use super::listers::Listers;
use super::pipeline::Tombs;
use super::run::{Follow, Parts, Subject, Work};
use super::source::Source;
use super::{Controller, Reconciler, ResourceHandler};
use crate::apply::{Object, Writer};
use crate::cache::{Division, Encoded, Informer, Lister};
use crate::config::Config;
use crate::gate::Gate;
use crate::manager::{Component, Manager};
use crate::shard::{Kinds, Sharding};
use crate::trigger::Predicate;
use crate::watch::Scope;
use crate::{ObjectKey, queue, worker};

/// How long a controller may take to finish its queue before reconcilers are told to end.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Makes the source of a kind, when the caches are there.
type MakeSource<K> =
    Box<dyn FnOnce(&Manager, Option<&Arc<Kinds>>, &Listers, &Lister<K>, &Scope) -> Source + Send>;

/// The texts under which an object stands in an index.
type Values<K> = dyn Fn(&K) -> Vec<String> + Send + Sync;

/// A controller that is being put together.
pub struct Builder<K> {
    name: String,
    scope: Scope,
    predicate: Option<Predicate>,
    sources: Vec<MakeSource<K>>,
    indexes: Vec<(String, Arc<Values<K>>)>,
    gate: Gate,
    needs: Vec<String>,
    everywhere: bool,
    field_manager: Option<String>,
    event_source: Option<String>,
    queue: Option<queue::Settings>,
    workers: Option<worker::Settings>,
    patience: worker::Patience,
}

impl<K: Object> Builder<K> {
    pub(super) fn new(name: &str) -> Builder<K> {
        Builder {
            name: name.to_owned(),
            scope: Scope::all(),
            predicate: None,
            sources: Vec::new(),
            indexes: Vec::new(),
            gate: Gate::default(),
            needs: Vec::new(),
            everywhere: false,
            field_manager: None,
            event_source: None,
            queue: None,
            workers: None,
            patience: worker::Patience::within(STOP_WITHIN),
        }
    }

    /// Looks after the objects of one namespace only; so too for kinds that it owns.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Builder<K> {
        self.scope.namespace = Some(namespace.to_owned());
        self
    }

    /// Looks only after objects with these labels, as in `app=web,tier!=db`.
    #[must_use]
    pub fn with_labels(mut self, selector: &str) -> Builder<K> {
        self.scope.labels = Some(selector.to_owned());
        self
    }

    /// Reconciles only after such changes of the object itself, for example
    /// [`generation_changed`](crate::trigger::generation_changed). Changes of other kinds count as before.
    #[must_use]
    pub fn when(mut self, predicate: Predicate) -> Builder<K> {
        self.predicate = Some(predicate);
        self
    }

    /// Reconciles an object when one that it controls has changed.
    #[must_use]
    pub fn owns<T: Object>(mut self) -> Builder<K> {
        self.sources.push(Box::new(|manager, kinds, listers, parents, scope| {
            let scope = Scope { namespace: scope.namespace.clone(), ..Scope::all() };
            Source::owned::<K, T>(manager.informers(), kinds, scope, listers, parents.clone())
        }));
        self
    }

    /// Reconciles the objects that `map` names when an object of another kind has changed. `map` is called for the
    /// object before and after the change.
    #[must_use]
    pub fn watches<T: Object>(
        mut self,
        map: impl Fn(&T, &Listers) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Builder<K> {
        let map = Arc::new(map);
        self.sources.push(Box::new(|manager, kinds, listers, _, _| {
            Source::mapped::<T>(manager.informers(), kinds, listers, map)
        }));
        self
    }

    /// As `watches`, for a `map` that needs no more than metadata: nothing is decoded for it.
    #[must_use]
    pub fn watches_metadata<T: Object>(
        mut self,
        map: impl Fn(&Encoded, &Listers) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Builder<K> {
        let map = Arc::new(map);
        self.sources.push(Box::new(|manager, kinds, listers, _, _| {
            Source::mapped_metadata::<T>(manager.informers(), kinds, listers, map)
        }));
        self
    }

    /// Has a kind in its cache before the first reconcile. Its changes concern nobody.
    #[must_use]
    pub fn reads<T: Object>(mut self) -> Builder<K> {
        self.sources.push(Box::new(|manager, kinds, listers, _, _| {
            Source::read::<T>(manager.informers(), kinds, listers)
        }));
        self
    }

    /// Adds an index over the objects that are reconciled: reconcilers and the functions of `watches` find them with
    /// [`Lister::by_index`] by the texts that `values` gives. One of the same name on the same cache is replaced.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// use shoal_runtime::{Action, Context, Controller, ObjectKey};
    ///
    /// let _controller = Controller::of::<Pod>("reload")
    ///     .index("account", |pod| pod.spec.iter().filter_map(|spec| spec.service_account_name.clone()).collect())
    ///     .watches::<ConfigMap>(|map, listers| {
    ///         let account = map.metadata.name.as_deref().unwrap_or_default();
    ///         listers.of::<Pod>().by_index("account", account).iter().map(|pod| ObjectKey::of(&**pod)).collect()
    ///     })
    ///     .reconcile(async |_: Context<Pod>| Ok(Action::done()));
    /// ```
    #[must_use]
    pub fn index(
        mut self,
        name: &str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Builder<K> {
        self.indexes.push((name.to_owned(), Arc::new(values)));
        self
    }

    /// Works only on what the gate admits.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Builder<K> {
        self.gate = gate;
        self
    }

    /// Starts only when the component of this name is ready, and stops before it does.
    #[must_use]
    pub fn needs(mut self, name: &str) -> Builder<K> {
        self.needs.push(name.to_owned());
        self
    }

    /// Runs on every replica, for all objects: not only on the leader, and not sharded. Replicas then need another way not to work
    /// on the same objects.
    #[must_use]
    pub fn on_every_replica(mut self) -> Builder<K> {
        self.everywhere = true;
        self
    }

    /// Owns what it writes under this name. Default: the controller's name.
    #[must_use]
    pub fn field_manager(mut self, name: &str) -> Builder<K> {
        self.field_manager = Some(name.to_owned());
        self
    }

    /// Speaks under this name in events, where people know it by another than its own. Default: the controller's name.
    #[must_use]
    pub fn event_source(mut self, name: &str) -> Builder<K> {
        self.event_source = Some(name.to_owned());
        self
    }

    /// Delays and rates of retries. Default: `queueConfig` of the manager's settings.
    #[must_use]
    pub fn queue_settings(mut self, settings: queue::Settings) -> Builder<K> {
        self.queue = Some(settings);
        self
    }

    /// Concurrency, timeout and retries. Default: `workers`, `queueConfig` and `reconcileConfig` of the manager's
    /// settings.
    #[must_use]
    pub fn worker_settings(mut self, settings: worker::Settings) -> Builder<K> {
        self.workers = Some(settings);
        self
    }

    /// How long a stop may take. Default 20 s in all.
    #[must_use]
    pub fn patience(mut self, patience: worker::Patience) -> Builder<K> {
        self.patience = patience;
        self
    }

    /// Does this for each object that something has changed for.
    pub fn reconcile(self, reconciler: impl Reconciler<K>) -> Controller {
        let reconciler = Arc::new(reconciler);
        Controller {
            build: Box::new(move |manager| {
                let predicate = self.predicate.clone();
                let (name, writer) = (self.name.clone(), self.writer(manager));
                let recorder = manager.recorder(self.event_source.as_deref().unwrap_or(&name));
                let gate = self.gate_in(manager);
                self.component(manager, gate.clone(), move |informer, listers, tombs| {
                    let own = Box::new(|delta: &crate::cache::Delta| vec![delta.key.clone()]);
                    let source =
                        Source { main: true, predicate, ..Source::new(informer, &K::kind(&()), own) };
                    let subject = Subject {
                        lister: informer.lister(),
                        listers: listers.clone(),
                        gate,
                        tombs: tombs.clone(),
                        writer,
                        recorder,
                        controller: name.into(),
                        reconciler,
                    };
                    (source, subject.work())
                })
            }),
        }
    }

    /// Tells a handler what happened to each object.
    pub fn handle(self, handler: impl ResourceHandler<K>) -> Controller {
        Controller {
            build: Box::new(move |manager| {
                let (predicate, gate) = (self.predicate.clone(), self.gate_in(manager));
                let name = self.name.clone();
                self.component(manager, gate.clone(), move |informer, _, tombs| {
                    let handling = Handling::new(&name, handler, gate, informer.lister(), tombs.clone());
                    let source = Source { predicate, ..handling.source(informer) };
                    (source, Arc::new(handling.work()))
                })
            }),
        }
    }

    fn writer(&self, manager: &Manager) -> Writer {
        Writer::new(manager.client(), self.field_manager.as_deref().unwrap_or(&self.name))
    }

    /// The gate, with that of the replica behind it if the objects are shared.
    fn gate_in(&self, manager: &Manager) -> Gate {
        match self.sharding(manager) {
            Some(sharding) => self.gate.clone().before(sharding.gate()),
            None => self.gate.clone(),
        }
    }

    fn sharding<'a>(&self, manager: &'a Manager) -> Option<&'a Sharding> {
        manager.sharding().filter(|_| !self.everywhere)
    }

    /// `main` gives the source of the kind itself and what is done for each key.
    fn component(
        self,
        manager: &Manager,
        gate: Gate,
        main: impl FnOnce(&Informer<K>, &Listers, &Arc<Tombs>) -> (Source, Work),
    ) -> Component {
        let kinds = self.sharding(manager).map(|sharding| sharding.kinds().clone());
        let informer = match &kinds {
            Some(kinds) => {
                let informer = kinds.divided::<K>(manager.informers(), self.scope.clone(), Division::Primary);
                kinds.controller(&self.name, &informer);
                informer
            }
            None => manager.informers().scoped::<K>(self.scope.clone()),
        };
        for (name, values) in self.indexes {
            informer.add_decoded_index(&name, move |object| values(object));
        }
        let listers = Listers::new(manager.informers().clone());
        let lister = listers.add(&informer);
        let tombs = Arc::default();
        let (source, work) = main(&informer, &listers, &tombs);
        let others = self
            .sources
            .into_iter()
            .map(|make| make(manager, kinds.as_ref(), &listers, &lister, &self.scope));
        let config = manager.config();
        let follow = follow(manager, self.queue.is_none(), self.workers.is_none());
        let parts = Parts {
            name: self.name,
            sources: std::iter::once(source).chain(others).collect(),
            work,
            gate,
            tombs,
            find: Box::new(move |key| lister.meta(key)),
            queue: self.queue.unwrap_or_else(|| queue_settings(&config)),
            queue_metrics: manager.queue_metrics().clone(),
            workers: self.workers.unwrap_or_else(|| worker_settings(&config)),
            worker_metrics: manager.worker_metrics().clone(),
            limit: manager.reconciles(),
            patience: self.patience,
            kinds: kinds.clone(),
            follow: Some(follow),
        };
        let mut component = parts.into_component();
        component.needs = self.needs;
        component.elected = !self.everywhere && kinds.is_none();
        component
    }
}

/// Settings that were made in code stay as they are.
fn follow(manager: &Manager, queue: bool, workers: bool) -> Follow {
    let mut changes = manager.config_source().subscribe();
    Box::new(move |keys, inspector| {
        Box::pin(async move {
            while changes.changed().await.is_ok() {
                let config = changes.borrow_and_update().clone();
                if queue {
                    keys.set(queue_settings(&config));
                }
                if workers {
                    inspector.set(worker_settings(&config));
                }
            }
            std::future::pending::<()>().await;
        })
    })
}

fn queue_settings(config: &Config) -> queue::Settings {
    let settings = &config.queue_config;
    queue::Settings {
        base_delay: settings.base_delay,
        max_delay: settings.max_delay,
        qps: settings.rate_limiter_qps,
        // As client-go relates the two.
        burst: (settings.rate_limiter_qps * 10.0).clamp(1.0, 1e6) as u32,
    }
}

fn worker_settings(config: &Config) -> worker::Settings {
    worker::Settings {
        max_concurrent: config.workers.0,
        timeout: config.reconcile_config.timeout,
        max_retries: config.queue_config.max_retries,
    }
}
