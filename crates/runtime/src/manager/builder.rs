//! Settings of a manager, and the first two steps of its life.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use shoal_objects::{Clock, Entropy};

use super::limit::Limit;
use super::phase::{Board, Phase};
use super::recorders::Recorders;
use super::signals::Signals;
use super::{Component, ELECTOR, Error, Manager, Stop};
use crate::cache::{InformerMetrics, InformerOptions, Informers};
use crate::client;
use crate::config::{Change, Config, Source};
use crate::election::{Election, Elector, LeaderMetrics, Leadership, Timing};
use crate::events::{Recorder, Severity};
use crate::health::{self, Health};
use crate::logging;
use crate::metrics::Metrics;
use crate::monotonic::Monotonic;
use crate::queue::QueueMetrics;
use crate::shard::{self, Sharding, ShardingOptions};
use crate::watch::WatchOptions;
use crate::worker::WorkerMetrics;

/// How long a stop may take; Kubernetes kills a pod 30 seconds after asking it to stop.
const STOP_DEADLINE: Duration = Duration::from_secs(25);

/// Settings of a manager.
pub struct Builder {
    name: String,
    client: Option<Client>,
    places: Option<client::Places>,
    client_options: client::Options,
    config: Option<Source>,
    cache_size: usize,
    election: bool,
    lease_namespace: Option<String>,
    identity: Option<String>,
    cautious: bool,
    clock: Clock,
    entropy: Entropy,
    monotonic: Option<Monotonic>,
    signals: bool,
    listen: bool,
    profiling: bool,
    heap_profile: Option<health::HeapProfile>,
    log_level: Option<logging::Level>,
    stop_deadline: Duration,
    sharding: Option<ShardingOptions>,
}

impl Builder {
    pub(super) fn new(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            client: None,
            places: None,
            client_options: client::Options::default(),
            config: None,
            cache_size: InformerOptions::default().cache_size,
            election: false,
            lease_namespace: None,
            identity: None,
            cautious: false,
            clock: Clock::system(),
            entropy: Entropy::system(),
            monotonic: None,
            signals: true,
            listen: true,
            profiling: false,
            heap_profile: None,
            log_level: None,
            stop_deadline: STOP_DEADLINE,
            sharding: None,
        }
    }

    /// Talks to this cluster. Without it, the cluster is found by [`client::infer`]. Leases of a sharded manager are then renewed
    /// by this client, too, and not over a connection of their own: see [`Builder::places`].
    #[must_use]
    pub fn client(mut self, client: Client) -> Builder {
        self.client = Some(client);
        self
    }

    /// Looks for the cluster here, instead of where this process would look.
    #[must_use]
    pub fn places(mut self, places: client::Places) -> Builder {
        self.places = Some(places);
        self
    }

    /// User agent, rate and timeout of requests.
    #[must_use]
    pub fn client_options(mut self, options: client::Options) -> Builder {
        self.client_options = options;
        self
    }

    /// How many decoded objects of each kind are kept beside the encoded ones, unless `INFORMER_CACHE_SIZE` says so. Fewer for
    /// reconcilers that look at each object once in a while: decoding takes microseconds.
    #[must_use]
    pub fn cache_size(mut self, objects: usize) -> Builder {
        self.cache_size = objects;
        self
    }

    /// Settings that never change. Without any, `CONFIG_FILE` and the environment are read.
    #[must_use]
    pub fn config(self, config: Config) -> Builder {
        self.config_source(Source::fixed(config))
    }

    /// Settings that may change.
    #[must_use]
    pub fn config_source(mut self, source: Source) -> Builder {
        self.config = Some(source);
        self
    }

    /// Elects a leader among the replicas of this name: elected components run on it only. The lease lies in the
    /// client's namespace. Without this, elected components run on every replica.
    #[must_use]
    pub fn leader_election(mut self) -> Builder {
        self.election = true;
        self
    }

    /// Shares the objects of all controllers among the replicas of this name, except of those that run
    /// [on every replica](crate::controller::Builder::on_every_replica).
    #[must_use]
    pub fn sharded(mut self, options: ShardingOptions) -> Builder {
        self.sharding = Some(options);
        self
    }

    /// Puts the lease into this namespace.
    #[must_use]
    pub fn lease_namespace(mut self, namespace: &str) -> Builder {
        self.lease_namespace = Some(namespace.to_owned());
        self
    }

    /// Stands for election under this name, which must be unique. Default: the host's name and a random part.
    #[must_use]
    pub fn identity(mut self, identity: &str) -> Builder {
        self.identity = Some(identity.to_owned());
        self
    }

    /// Waits before leading under a lease that was never seen: see [`Election::cautious`].
    #[must_use]
    pub fn cautious_election(mut self) -> Builder {
        self.cautious = true;
        self
    }

    /// Where timestamps come from.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Where chance comes from.
    #[must_use]
    pub fn entropy(mut self, entropy: Entropy) -> Builder {
        self.entropy = entropy;
        self
    }

    /// What leases are measured with.
    #[must_use]
    pub fn monotonic(mut self, monotonic: Monotonic) -> Builder {
        self.monotonic = Some(monotonic);
        self
    }

    /// Inside another program or a test: no signals, no socket, and time is tokio's.
    #[must_use]
    pub fn embedded(mut self) -> Builder {
        self.signals = false;
        self.listen = false;
        self.monotonic = Some(Monotonic::tokio());
        self
    }

    /// Whether SIGTERM and SIGINT stop the manager. Default true.
    #[must_use]
    pub fn signals(mut self, catch: bool) -> Builder {
        self.signals = catch;
        self
    }

    /// Whether probes and metrics are served on `metrics.port`. Default true.
    #[must_use]
    pub fn listen(mut self, listen: bool) -> Builder {
        self.listen = listen;
        self
    }

    /// Whether profiles can be taken over HTTP, from this machine only. Default false.
    #[must_use]
    pub fn profiling(mut self, on: bool) -> Builder {
        self.profiling = on;
        self
    }

    /// What `/debug/pprof/heap` gives when profiles can be taken: see [`Health::heap_profile`].
    #[must_use]
    pub fn heap_profile(
        mut self,
        dump: impl Fn() -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Builder {
        self.heap_profile = Some(Arc::new(dump));
        self
    }

    /// Lets `/debug/loglevel` and changes of `logging.level` set the level.
    #[must_use]
    pub fn log_level(mut self, level: logging::Level) -> Builder {
        self.log_level = Some(level);
        self
    }

    /// How long a stop may take before what is left is dropped. Default 25 s.
    #[must_use]
    pub fn stop_deadline(mut self, deadline: Duration) -> Builder {
        self.stop_deadline = deadline;
        self
    }

    /// Reads and checks the settings, makes the client and opens the socket.
    pub async fn build(self) -> Result<Manager, Error> {
        let board = Board::new();
        let signals = if self.signals { Some(Signals::listen().map_err(Error::Signals)?) } else { None };
        let source = match &self.config {
            Some(source) => source.clone(),
            None => Source::from_environment()?,
        };
        let config = source.current();
        config.check()?;
        board.enter(Phase::Client);
        // Lists have a limit of their own.
        let timeout = self.client_options.timeout.max(config.informer.list_timeout);
        let options = client::Options { timeout, ..self.client_options.clone() };
        let client = match &self.client {
            Some(client) => client::instrumented(client.clone(), &options),
            None => client::infer_from(&self.where_to_look(), &options).await?,
        };
        let metrics = Metrics::default();
        let (queue_metrics, worker_metrics) = (QueueMetrics::default(), WorkerMetrics::default());
        metrics.register(|registry| {
            source.register(registry);
            queue_metrics.register(registry);
            worker_metrics.register(registry);
        });
        let informers = Informers::new(client.clone(), self.informer_options(&config));
        metrics.register(|registry| InformerMetrics::new(informers.clone()).register(registry));
        let recorders = Recorders::new(client.clone(), &host(), self.clock.clone());
        let health = Health::default();
        health.profiling(self.profiling);
        if let Some(dump) = self.heap_profile.clone() {
            health.heap_profile(move || dump());
        }
        health.metrics(config.metrics.enabled.then_some((config.metrics.path.as_str(), metrics.clone())));
        let (alive, ready, inspect, settings) = (board.clone(), board.clone(), board.clone(), source.clone());
        health.alive(move || alive.alive());
        health.ready(move || ready.ready());
        health.inspect("manager", move || inspect.inspect());
        health.inspect("config", move || settings.inspect());
        let caches = informers.clone();
        health.inspect("caches", move || serde_json::json!(caches.snapshot()));
        self.follow_log_level(&source, &health);
        tell_of_rejections(&source, &recorders.of(&self.name), client.default_namespace());
        let mut listeners = Vec::new();
        let ports = [config.metrics.port, config.metrics.probe_port];
        // No probe port means that one is enough.
        for port in ports.into_iter().filter(|port| self.listen && *port != 0) {
            listeners.push(health::bind(port).await.map_err(|source| Error::Listen { port, source })?);
        }
        let election = match self.election.then(|| self.stand(&client, &config)) {
            None => None,
            Some(election) => {
                let (elector, leadership) = election.candidate(client.clone()).map_err(Error::Election)?;
                metrics.register(|registry| LeaderMetrics::new(leadership.clone()).register(registry));
                let shown = leadership.clone();
                health.inspect("leases", move || serde_json::json!([shown.inspect()]));
                Some((component(elector, leadership.clone()), leadership))
            }
        };
        warn_of_restarts(&source);
        let reconciles = Limit::new(&source);
        let (caches, settings) = (informers.clone(), source.clone());
        source.on_change(move |_| caches.set_resync(resync(&settings.current())));
        let sharding = match &self.sharding {
            None => None,
            Some(options) => Some(self.share(options, &client, &source, &recorders, &metrics, &health)?),
        };
        let (stopper, stop) = Stop::channel();
        Ok(Manager {
            name: self.name,
            client,
            config: source,
            metrics,
            health,
            clock: self.clock,
            entropy: self.entropy,
            election,
            sharding,
            components: vec![of_informers(&informers), recorders.component()],
            informers,
            recorders,
            queue_metrics,
            worker_metrics,
            reconciles,
            board,
            stopper,
            stop,
            listeners,
            signals,
            stop_deadline: self.stop_deadline,
        })
    }

    fn follow_log_level(&self, source: &Source, health: &Health) {
        let Some(level) = self.log_level.clone() else { return };
        health.log_level(level.clone());
        let settings = source.clone();
        let last = parking_lot::Mutex::new(source.current().logging.level.clone());
        source.on_change(move |_| {
            // Only a change of the setting counts: a level that was set by hand stays otherwise.
            let wanted = settings.current().logging.level.clone();
            let mut last = last.lock();
            if *last != wanted {
                if let Err(error) = level.set(&wanted) {
                    tracing::error!(error, "the log level could not be changed");
                }
                *last = wanted;
            }
        });
    }

    fn informer_options(&self, config: &Config) -> InformerOptions {
        InformerOptions {
            watch: WatchOptions {
                list_timeout: config.informer.list_timeout,
                incremental: config.informer.incremental_sync,
                entropy: self.entropy.clone(),
                ..WatchOptions::default()
            },
            cache_size: config.informer.cache_size.unwrap_or(self.cache_size),
            resync: resync(config),
            ..InformerOptions::default()
        }
    }

    fn where_to_look(&self) -> client::Places {
        self.places.clone().unwrap_or_else(client::Places::of_this_process)
    }

    /// How coordination gets a client of its own: as this manager got its.
    fn connect(&self) -> Option<shard::Connect> {
        let options = client::Options { limit: None, ..self.client_options.clone() };
        self.client.is_none().then(|| shard::Connect { places: self.where_to_look(), options })
    }

    fn share(
        &self,
        options: &ShardingOptions,
        client: &Client,
        source: &Source,
        recorders: &Recorders,
        metrics: &Metrics,
        health: &Health,
    ) -> Result<Sharding, Error> {
        let (host, config) = (host(), source.current());
        let sharding = Sharding::new(
            options.clone(),
            shard::Surroundings {
                manager: &self.name,
                host: &host,
                config: &config,
                client: client.clone(),
                connect: self.connect(),
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                monotonic: self.monotonic.clone().unwrap_or_else(Monotonic::system),
                recorder: recorders.of(shard::COMPONENT),
                watch: self.informer_options(&config).watch,
            },
        )?;
        metrics.register(|registry| sharding.metrics().register(registry));
        let shown = sharding.clone();
        health.inspect("shards", move || shown.inspect());
        let (reloaded, settings, name) = (sharding.clone(), source.clone(), self.name.clone());
        source.on_change(move |_| {
            if let Err(error) = reloaded.reload(&name, &host, &settings.current()) {
                tracing::error!(%error, "the settings of sharding stay as they were");
            }
        });
        Ok(sharding)
    }

    fn stand(&self, client: &Client, config: &Config) -> Election {
        let namespace = self.lease_namespace.as_deref().unwrap_or_else(|| client.default_namespace());
        let unique = || format!("{}_{}", host(), self.entropy.uid());
        Election {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            identity: self.identity.clone().unwrap_or_else(unique),
            timing: Timing::from(&config.state),
            cautious: self.cautious,
            monotonic: self.monotonic.clone().unwrap_or_else(Monotonic::system),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        }
    }
}

/// The election as a component: ready while this replica leads, and over when it leads no more.
fn component(mut elector: Elector, leadership: Leadership) -> Component {
    let ready = leadership.clone();
    Component::new(ELECTOR, move |stop: Stop| async move { elector.run(&stop).await.map_err(Into::into) })
        .ready(move || ready.is_leader())
        .inspect(move || leadership.inspect())
}

/// The caches as a component: ready when every cache that was asked for is full.
fn of_informers(informers: &Informers) -> Component {
    let (ready, inspect, informers) = (informers.clone(), informers.clone(), informers.clone());
    let run = move |stop: Stop| async move {
        stop.requested().await;
        informers.stop();
        Ok(())
    };
    Component::new("informers", run)
        .cache()
        .ready(move || ready.have_synced())
        .inspect(move || serde_json::json!(inspect.snapshot().len()))
}

/// In a cluster the host's name is the pod's.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Settings that cannot be used are told where operators look first.
fn tell_of_rejections(source: &Source, recorder: &Recorder, namespace: &str) {
    let recorder = recorder.clone();
    let pod = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(host()),
        ..ObjectReference::default()
    };
    source.on_change(move |change| {
        let (severity, reason, message) = match change {
            Change::Applied { generation } => (
                Severity::Normal,
                "ConfigApplied",
                format!("settings of generation {generation} are in force"),
            ),
            Change::Rejected { generation, error } => {
                let message = format!("{error}\nsettings of generation {generation} stay in force");
                (Severity::Warning, "ConfigRejected", message)
            }
            Change::RolledBack { generation } => {
                let message = format!("the settings before are in force again, as generation {generation}");
                (Severity::Warning, "ConfigRolledBack", message)
            }
        };
        // Longer notes are refused.
        recorder.record(pod.clone(), severity, reason, message.chars().take(1000).collect::<String>());
    });
}

/// How often every object is looked at again.
fn resync(config: &Config) -> Option<Duration> {
    Some(config.reconcile_config.resync_period).filter(|period| !period.is_zero())
}

/// Some settings are used once, at the start.
fn warn_of_restarts(source: &Source) {
    let (settings, first) = (source.clone(), source.current());
    source.on_change(move |_| {
        let now = settings.current();
        let timers = |config: &Config| Timing::from(&config.state);
        for (key, differs) in [
            ("metrics", now.metrics != first.metrics),
            ("logging.format", now.logging.format != first.logging.format),
            ("state.leaseDuration, renewDeadline, retryPeriod", timers(&now) != timers(&first)),
        ] {
            if differs {
                tracing::warn!(key, "this change takes effect after a restart");
            }
        }
    });
}
