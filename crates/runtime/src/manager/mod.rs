//! One process with all its controllers: life cycle, election, health.
//!
//! A manager starts in this order: settings, client, informers (until their caches are full), controllers in the order
//! of their needs, readiness. It stops in this order: no new events, drain, clean up, wait. [`Phase`] shows where it is.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use shoal_runtime::manager::{Component, Manager};
//!
//! let cluster = shoal_testkit::Cluster::start().await;
//! let mut manager = Manager::builder("greeter").client(cluster.client()).embedded().build().await?;
//! manager.add(Component::new("greeter", |stop| async move {
//!     stop.requested().await;
//!     Ok(())
//! }));
//! let stopper = manager.stopper();
//! let running = tokio::spawn(manager.run());
//! stopper.stop();
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod builder;
mod component;
mod limit;
mod phase;
mod plan;
mod recorders;
mod signals;
mod stop;
mod supervise;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use shoal_objects::{Clock, Entropy};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use builder::Builder;
pub use component::{BoxError, Component, Inspect, Ready, Run, Stage};
pub use phase::Phase;
pub use plan::PlanError;
pub use stop::{Level, Stop, Stopper};

use crate::cache::Informers;
use crate::client;
use crate::config::{self, Config};
use crate::election::Leadership;
use crate::events::Recorder;
use crate::health::{self, Health};
use crate::metrics::Metrics;
use crate::queue::QueueMetrics;
use crate::shard::Sharding;
use crate::worker::WorkerMetrics;
use limit::Limit;
use phase::Board;
use recorders::Recorders;
use signals::Signals;
use supervise::Supervisor;

/// The component that holds the leadership; all elected ones need it.
const ELECTOR: &str = "leader-election";

/// Why a manager could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The components cannot be started together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The election is set up wrongly.
    #[error("the leader election cannot be used: {0}")]
    Election(String),
    /// The health endpoint has no socket.
    #[error("the health endpoint cannot listen on port {port}: {source}; set metrics.port to a free one")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signals(std::io::Error),
    /// A component gave an error.
    #[error("component {name:?} failed: {source}")]
    Failed {
        /// Which.
        name: String,
        /// What it gave.
        source: BoxError,
    },
    /// A component was over although nobody had asked it to stop.
    #[error("component {name:?} ended before it was asked to")]
    Ended {
        /// Which.
        name: String,
    },
    /// A component panicked.
    #[error("component {name:?} panicked: {message}")]
    Panicked {
        /// Which.
        name: String,
        /// What it said.
        message: String,
    },
    /// The stop took too long; what was left was dropped.
    #[error("after {deadline:?} these components had not stopped and were dropped: {}", names.join(", "))]
    Deadline {
        /// How long they had.
        deadline: Duration,
        /// Which.
        names: Vec<String>,
    },
    /// A second signal came; everything was dropped.
    #[error("stopped at once, as asked: work may be half done")]
    Aborted,
}

/// Something that becomes a component of a manager, with what the manager has.
pub trait IntoComponent {
    /// Takes client, informers, metrics and settings from the manager.
    fn into_component(self, manager: &Manager) -> Component;
}

impl IntoComponent for Component {
    fn into_component(self, _manager: &Manager) -> Component {
        self
    }
}

/// All controllers of a process.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::Namespace;
/// use shoal_runtime::{Action, Context, Controller, Manager};
/// # let client = shoal_testkit::Cluster::start().await.client();
///
/// // In a pod or on a desk: without `client` it finds the cluster by itself. `embedded` is for tests and for programs with
/// // a life of their own: no signals, no socket for probes, no election.
/// let mut manager = Manager::builder("greeter").client(client).embedded().build().await?;
/// manager.add(Controller::of::<Namespace>("spaces").reconcile(|context: Context<Namespace>| async move {
///     tracing::info!(space = %context.key(), "hello");
///     Ok(Action::done())
/// }));
/// let (stopper, mut phase) = (manager.stopper(), manager.phase());
/// let running = tokio::spawn(manager.run());
/// phase.wait_for(|phase| *phase == shoal_runtime::manager::Phase::Running).await?;
/// stopper.stop();
/// running.await??;
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    name: String,
    client: Client,
    config: config::Source,
    metrics: Metrics,
    health: Health,
    clock: Clock,
    entropy: Entropy,
    election: Option<(Component, Leadership)>,
    sharding: Option<Sharding>,
    components: Vec<Component>,
    informers: Informers,
    recorders: Recorders,
    queue_metrics: QueueMetrics,
    worker_metrics: WorkerMetrics,
    reconciles: Limit,
    board: Arc<Board>,
    stopper: Stopper,
    stop: Stop,
    listeners: Vec<TcpListener>,
    signals: Option<Signals>,
    stop_deadline: Duration,
}

impl Manager {
    /// Settings of a manager. The name is also the name of its lease.
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }

    /// Adds a component. It starts with [`Manager::run`].
    pub fn add(&mut self, component: impl IntoComponent) -> &mut Manager {
        let component = component.into_component(self);
        self.components.push(component);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client, whose writes are on record.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The shared caches. Ask for kinds before [`Manager::run`]: they are full before any controller starts.
    pub fn informers(&self) -> &Informers {
        &self.informers
    }

    /// A recorder of events that speaks in the name of `component`.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.recorders.of(component)
    }

    /// A recorder of events that speaks in exactly this name, for components that people know by theirs.
    pub fn recorder_named(&self, name: &str) -> Recorder {
        self.recorders.of(name)
    }

    /// The metrics of all work queues, already registered.
    pub fn queue_metrics(&self) -> &QueueMetrics {
        &self.queue_metrics
    }

    /// The metrics of all workers, already registered.
    pub fn worker_metrics(&self) -> &WorkerMetrics {
        &self.worker_metrics
    }

    /// One permit for each reconcile that may run at the same time, whichever controller it is of.
    pub fn reconciles(&self) -> Arc<Semaphore> {
        self.reconciles.permits.clone()
    }

    /// The settings in force now.
    pub fn config(&self) -> Arc<Config> {
        self.config.current()
    }

    /// Where settings come from; subscribe here to changes.
    pub fn config_source(&self) -> &config::Source {
        &self.config
    }

    /// The registry of metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The health endpoints.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The source of timestamps.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The source of chance.
    pub fn entropy(&self) -> &Entropy {
        &self.entropy
    }

    /// Tells whether this replica leads; None without election.
    pub fn leadership(&self) -> Option<Leadership> {
        self.election.as_ref().map(|(_, leadership)| leadership.clone())
    }

    /// This manager's part in its group; None if it is not sharded.
    pub fn sharding(&self) -> Option<&Sharding> {
        self.sharding.as_ref()
    }

    /// Where the manager is in its life.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.board.subscribe()
    }

    /// Where the health endpoint listens.
    pub fn health_address(&self) -> Option<std::net::SocketAddr> {
        self.listeners.first()?.local_addr().ok()
    }

    /// Asks the running manager to stop, or to drop everything.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs until a signal, the [`Stopper`] or a failure ends it. Returns when all work has ended.
    pub async fn run(mut self) -> Result<(), Error> {
        let mut components = std::mem::take(&mut self.components);
        let mut elector = None;
        if let Some((component, leadership)) = self.election.take()
            && components.iter().any(|component| component.elected)
        {
            components.push(component);
            elector = Some((ELECTOR, leadership));
        }
        if let Some(component) = self.sharding.as_ref().map(Sharding::component)
            && !component.needs.is_empty()
        {
            components.push(component);
        }
        let supervisor =
            Supervisor::new(components, elector, self.board.clone(), self.stop.clone(), self.stop_deadline)?;
        let (around, ended) = Stop::channel();
        let mut around_work: Vec<JoinHandle<()>> = Vec::new();
        for listener in self.listeners {
            let server = health::Server::new(listener, self.health.clone());
            around_work.push(tokio::spawn(server.run(ended.clone())));
        }
        around_work.push(tokio::spawn(self.config.clone().run(ended)));
        let limit = tokio::spawn(self.reconciles.follow());
        let signals = self.signals.map(|signals| tokio::spawn(signals.forward(self.stopper.clone())));
        tracing::info!(manager = self.name, "starting");
        let result = supervisor.run().await;
        around.stop();
        limit.abort();
        if let Some(signals) = signals {
            signals.abort();
        }
        for task in around_work {
            let _ = task.await;
        }
        match &result {
            Ok(()) => tracing::info!(manager = self.name, "stopped"),
            Err(error) => tracing::error!(manager = self.name, %error, "stopped"),
        }
        result
    }
}
