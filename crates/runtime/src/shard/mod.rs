//! Sharding: several replicas of a manager share the objects of its controllers. No object is worked on by two, none is left out.
//!
//! ```text
//! Leases, ShardMap ──▶ observe ──▶ driver ◀──▶ core (crates/sharding)
//!                                    │
//!                       holding ◀────┤  which slots, which epochs, until when
//!                       kinds   ◀────┤  which part each cache holds, when it is fresh
//!                       notify  ◀────┘  what the layer above is told
//!   gate, fence ──▶ holding ◀── watchdog
//! ```
//!
//! `docs/sharding.md` explains the protocol. What this module adds: the deadline is checked before the queue, before each reconcile and
//! before each write, on a clock that goes on in suspend; a thread of its own ends the process if work does not stop in time; and
//! coordination itself has a thread and a connection of its own.

mod coordination;
mod crd;
mod driver;
mod holding;
mod kinds;
mod metrics;
mod moves;
mod notify;
mod observe;
mod options;
mod partition;
mod perform;
mod record;
mod report;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::{Clock, Entropy};
use shoal_sharding::{Algorithm, Replica, Settings};
use tokio::sync::watch;

pub use crd::{API_GROUP, API_VERSION, CrdError, GROUP_LABEL, crd, resource};
pub use metrics::ShardMetrics;
pub use notify::{Reassigned, ShardListener, Shards};
pub use options::ShardingOptions;
pub use partition::UserKey;
pub use shoal_sharding::{
    Ending, Epoch, KeyFunction, NodeInfo, NodeStatus, Plan, ReplicaId, ShardMap, Slot, SlotRange,
};
pub use watchdog::AbortHook;

use crate::config::{self, Config};
use crate::events::Recorder;
use crate::gate::{Admission, Entry, Gate, Shard};
use crate::manager::{Component, Stop};
use crate::monotonic::Monotonic;
use crate::watch::WatchOptions;
pub(crate) use coordination::Connect;
use coordination::Pulse;
use holding::{Holding, Pass};
pub(crate) use kinds::{Kinds, Requeue};
pub(crate) use partition::Partition;
use record::Records;

/// Name of the component that takes part in the group.
pub(crate) const COMPONENT: &str = "sharding";

/// What all parts share.
pub(crate) struct Shared {
    options: ShardingOptions,
    settings: watch::Sender<Arc<Settings>>,
    algorithm: Arc<dyn Algorithm>,
    records: Arc<Records>,
    kinds: Arc<Kinds>,
    holding: Arc<Holding>,
    metrics: ShardMetrics,
    recorder: Recorder,
    watch: WatchOptions,
    entropy: Entropy,
    clock: Clock,
    replica: Mutex<Option<Replica>>,
    nodes: watch::Sender<Vec<NodeInfo>>,
    joined: AtomicBool,
    connect: Option<Connect>,
    pulse: Arc<Pulse>,
}

/// What sharding needs of a manager.
pub(crate) struct Surroundings<'a> {
    pub(crate) manager: &'a str,
    pub(crate) host: &'a str,
    pub(crate) config: &'a Config,
    pub(crate) client: kube::Client,
    /// How coordination gets a client of its own; without, it uses the one above.
    pub(crate) connect: Option<Connect>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) monotonic: Monotonic,
    pub(crate) recorder: Recorder,
    pub(crate) watch: WatchOptions,
}

/// A manager's part in its group. Cheap to clone.
#[derive(Clone)]
pub struct Sharding(Arc<Shared>);

impl Sharding {
    pub(crate) fn new(options: ShardingOptions, around: Surroundings<'_>) -> Result<Sharding, config::Error> {
        let settings = options.settings(around.manager, around.host, around.config)?;
        let algorithm = options.find_algorithm(&settings, around.config).map_err(|problem| {
            config::Error { file: "the configuration".to_owned(), problems: vec![problem] }
        })?;
        let namespace = options.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| around.client.default_namespace().to_owned());
        let records = Records::new(around.client, around.clock.clone(), &namespace, &settings.identity.group);
        Ok(Sharding(Arc::new(Shared {
            kinds: Arc::new(Kinds::new(options.partition(&settings))),
            holding: Holding::new(settings.identity.slots, around.monotonic),
            settings: watch::Sender::new(Arc::new(settings)),
            algorithm,
            records: Arc::new(records),
            metrics: ShardMetrics::default(),
            recorder: around.recorder,
            watch: around.watch,
            entropy: around.entropy,
            clock: around.clock,
            replica: Mutex::new(None),
            nodes: watch::Sender::default(),
            joined: AtomicBool::new(false),
            connect: around.connect,
            pulse: Arc::default(),
            options,
        })))
    }

    pub(crate) fn kinds(&self) -> &Arc<Kinds> {
        &self.0.kinds
    }

    /// The metrics.
    pub fn metrics(&self) -> &ShardMetrics {
        &self.0.metrics
    }

    /// The id of this life; another one after a Lease was lost. None before the first.
    pub fn id(&self) -> Option<ReplicaId> {
        self.0.replica.lock().as_ref().map(|replica| replica.id().clone())
    }

    /// All replicas as this one sees them.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let now = self.0.holding.now();
        self.0.replica.lock().as_ref().map(|replica| replica.nodes(now)).unwrap_or_default()
    }

    /// Follows the replicas: told whenever one comes, goes, or changes its status or slots.
    pub fn watch_nodes(&self) -> watch::Receiver<Vec<NodeInfo>> {
        self.0.nodes.subscribe()
    }

    /// The record that is obeyed.
    pub fn map(&self) -> Option<Arc<ShardMap>> {
        self.0.replica.lock().as_ref().and_then(|replica| replica.map().cloned())
    }

    /// The slots that this replica works on, with their fencing tokens.
    pub fn active(&self) -> Vec<(SlotRange, Epoch)> {
        self.0.replica.lock().as_ref().map(Replica::active).unwrap_or_default()
    }

    /// What would move now and why.
    pub fn explain(&self) -> Option<Plan> {
        let now = self.0.holding.now();
        self.0.replica.lock().as_ref().and_then(|replica| replica.explain(now))
    }

    /// The slot that an object of a sharded kind belongs to.
    pub fn slot_of(&self, object: &crate::cache::Encoded) -> Slot {
        self.0.kinds.partition.slot_of(object)
    }

    /// Settings have changed. What the group must have in common stays until a restart.
    pub(crate) fn reload(&self, manager: &str, host: &str, config: &Config) -> Result<(), config::Error> {
        let new = self.0.options.settings(manager, host, config)?;
        self.0.settings.send_if_modified(|settings| {
            let identity = settings.identity.clone();
            if *new.identity != *identity {
                tracing::warn!("a change of sharding.algorithm takes effect after all replicas were drained");
            }
            *settings = Arc::new(Settings { identity, ..new.clone() });
            true
        });
        Ok(())
    }

    /// Lets in what belongs to slots of this replica.
    pub(crate) fn gate(&self) -> Gate {
        let (ask, enter) = (self.0.clone(), self.0.clone());
        Gate::new(move |_, object| match object {
            // Without its metadata nobody knows whose it is; the change that brings it will be asked about.
            Some(object) if ask.holding.admits(ask.kinds.partition.slot_of(object)) => {
                Admission::Admitted(None)
            }
            _ => Admission::Denied,
        })
        .entered_by(move |_, object| {
            let pass = enter.holding.enter(enter.kinds.partition.slot_of(object?))?;
            let label = enter.kinds.partition.label.clone();
            Some(Entry {
                fence: Some(pass.fence()),
                shard: Some(Shard { slot: pass.slot, epoch: pass.epoch, label }),
                lost: Some(pass.lost.clone()),
                failures: Some(enter.metrics.errors.clone()),
                guard: Some(Box::new(Counted { pass, metrics: enter.metrics.clone() })),
            })
        })
    }

    /// The component that takes part in the group. It starts after the controllers, whose caches are there then, and stops before
    /// them, so that they work until their slots are handed over.
    pub(crate) fn component(&self) -> Component {
        let (shared, ready, shown) = (self.0.clone(), self.0.clone(), self.clone());
        let mut component = Component::new(COMPONENT, move |stop: Stop| async move {
            let guarded = shared.holding.clone();
            let abort = shared.options.abort.clone();
            let _watching = if guarded.clock().is_everywhere() {
                watchdog::on_thread(&guarded, abort)?;
                None
            } else {
                let watching = watchdog::as_task(Arc::downgrade(&guarded), abort);
                let mut tasks = tokio::task::JoinSet::new();
                tasks.spawn(watching);
                Some(tasks)
            };
            coordination::run(shared, stop).await
        })
        .ready(move || ready.joined.load(Ordering::Relaxed))
        .inspect(move || shown.inspect());
        component.needs = self.0.kinds.controllers();
        component
    }

    /// For `/debug/inspect`.
    pub fn inspect(&self) -> Value {
        let now = self.0.holding.now();
        let ranges =
            |slots: &[SlotRange]| slots.iter().map(SlotRange::to_string).collect::<Vec<_>>().join(",");
        let nodes: Vec<Value> = self
            .nodes()
            .iter()
            .map(|node| {
                json!({
                    "id": node.id.as_str(),
                    "name": &*node.name,
                    "address": &*node.address,
                    "status": format!("{:?}", node.status),
                    "shards": ranges(&node.shards),
                    "lastSeenSecondsAgo": now.since(node.last_seen).as_secs_f64(),
                })
            })
            .collect();
        let active: Vec<Value> = self
            .active()
            .iter()
            .map(|(slots, epoch)| json!({"slots": slots.to_string(), "epoch": epoch}))
            .collect();
        json!({
            "group": self.0.records.group,
            "namespace": self.0.records.namespace,
            "id": self.id().map(|id| id.to_string()),
            "secondsToDeadline": self.0.holding.deadline().since(now).as_secs_f64(),
            "inFlight": self.0.holding.in_flight(),
            "active": active,
            "nodes": nodes,
            "version": self.map().map(|map| map.version),
            "unowned": self.map().map(|map| map.unowned()),
            "caches": self.0.kinds.inspect(),
        })
    }
}

impl Shared {
    /// An id that was never used: the name and something random.
    fn new_id(&self, settings: &Settings) -> ReplicaId {
        match &self.options.id {
            Some(id) => ReplicaId::new(id.as_str()),
            None => ReplicaId::new(format!("{}-{}", settings.name, self.entropy.name_suffix(8))),
        }
    }
}

/// Work that is counted when it ends.
struct Counted {
    pass: Pass,
    metrics: ShardMetrics,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.processed.inc();
        self.metrics.latency.observe(self.pass.elapsed().as_secs_f64());
        if self.pass.lost.is_cancelled() {
            self.metrics.cut_off.inc();
        }
    }
}
