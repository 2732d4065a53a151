//! Settings: `config.yaml`, the environment, and what happens when the file changes.
//!
//! The keys are those of [`Config`]. Every key has a default; a key that is not known is an error that names it.
//! [`Config::parse`] is pure; [`Source`] reads the file, follows its changes and keeps the last good settings.

pub mod duration;

mod check;
mod environment;
mod read;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

pub use environment::Informer;
pub use source::{Change, Metrics as SourceMetrics, Source};

/// The environment variable with the path of the file.
pub const CONFIG_FILE: &str = "CONFIG_FILE";

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// How objects are divided among replicas.
    pub sharding: Sharding,
    /// How replicas look after each other.
    pub node: Node,
    /// Leases and persisted state.
    pub state: State,
    /// Where metrics and probes are served.
    pub metrics: Metrics,
    /// What is logged and how.
    pub logging: Logging,
    /// How many reconciles of one controller run at once. Default 4.
    pub workers: Workers,
    /// Retries and rates of the work queues.
    pub queue_config: Queue,
    /// Limits of reconciles.
    pub reconcile_config: Reconcile,
    /// Caches; from the environment only.
    pub informer: Informer,
}

/// A number of workers, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Workers(pub usize);

impl Default for Workers {
    fn default() -> Workers {
        Workers(4)
    }
}

/// Section `sharding`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sharding {
    /// `sticky`, `hash`, `consistent-hash`, `rendezvous` or the name of an algorithm of one's own. Default `sticky`.
    pub algorithm: String,
    /// Points on the ring for each replica. Default 150.
    pub virtual_nodes: u32,
    /// How uneven shards may lie before they are moved, as a share of the even load. Default 0.1.
    pub rebalance_threshold: f64,
    /// How often this is looked at. Default 30 s.
    #[serde(serialize_with = "duration::serialize")]
    pub rebalance_interval: Duration,
}

/// Section `node`: a node is a replica of the controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// How often a replica shows that it is alive. Default 10 s.
    #[serde(serialize_with = "duration::serialize")]
    pub health_check_interval: Duration,
    /// How long one check may take. Default 5 s.
    #[serde(serialize_with = "duration::serialize")]
    pub health_check_timeout: Duration,
    /// After this time without a sign of life a replica counts as gone. Default 60 s.
    #[serde(serialize_with = "duration::serialize")]
    pub node_timeout: Duration,
}

/// Section `state`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// How often state is persisted. Default 10 s.
    #[serde(serialize_with = "duration::serialize")]
    pub sync_interval: Duration,
    /// How long a lease that is not renewed keeps others away. Default 15 s.
    #[serde(serialize_with = "duration::serialize")]
    pub lease_duration: Duration,
    /// How long a leader goes on without a successful renewal. Default 10 s.
    #[serde(serialize_with = "duration::serialize")]
    pub renew_deadline: Duration,
    /// How often a lease is renewed or asked for. Default 2 s.
    #[serde(serialize_with = "duration::serialize")]
    pub retry_period: Duration,
}

/// Section `metrics`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Whether metrics are served. Probes always are. Default true.
    pub enabled: bool,
    /// Default 8080.
    pub port: u16,
    /// Default `/metrics`.
    pub path: String,
    /// Where probes are answered as well, for clusters that let the kubelet in here and Prometheus there. Default 0: on
    /// `port` only.
    #[serde(skip_serializing_if = "is_zero")]
    pub probe_port: u16,
}

/// Section `logging`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,shoal_runtime::queue=debug`.
    pub level: String,
    /// Default json.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Section `queueConfig`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// After this many retries of an unknown error a key is parked until the next event or resync. Default 15.
    pub max_retries: u32,
    /// Delay before the first retry; doubles with each one. Default 5 ms.
    #[serde(serialize_with = "duration::serialize")]
    pub base_delay: Duration,
    /// No retry waits longer. Default 1000 s.
    #[serde(serialize_with = "duration::serialize")]
    pub max_delay: Duration,
    /// Retries per second of one queue, all keys together. Default 10.
    #[serde(rename = "rateLimiterQPS")]
    pub rate_limiter_qps: f64,
}

/// Section `reconcileConfig`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconcile {
    /// A reconcile that takes longer is cancelled and retried. Default 2 min.
    #[serde(serialize_with = "duration::serialize")]
    pub timeout: Duration,
    /// Every object is looked at again at least this often; 0 means never. Default 10 min.
    #[serde(serialize_with = "duration::serialize")]
    pub resync_period: Duration,
    /// Reconciles at once, all controllers of the process together. Default 64.
    pub max_concurrent: usize,
}

/// What is wrong with a configuration: everything at once, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// Where the text came from.
    pub file: String,
    /// Each with its key and what to do.
    pub problems: Vec<String>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be used", self.file)?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl Config {
    /// Reads and checks YAML. `environment` is asked for variables.
    ///
    /// ```
    /// use shoal_runtime::config::Config;
    ///
    /// let error = Config::parse("state: {leaseduration: 20s}", &|_| None).unwrap_err();
    /// assert_eq!(error.problems, ["state.leaseduration is not a key: did you mean leaseDuration?"]);
    /// ```
    pub fn parse(yaml: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let (mut config, mut problems) = read::config(yaml);
        config.informer = environment::informer(environment, &mut problems);
        problems.extend(check::problems(&config));
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(Error { file: "the configuration".to_owned(), problems })
        }
    }

    /// The settings from the file that `CONFIG_FILE` names and from the environment; defaults without that variable.
    pub fn from_environment() -> Result<Config, Error> {
        source::load(source::path_from_environment().as_deref())
    }

    /// What is wrong with settings that were made in code.
    pub fn check(&self) -> Result<(), Error> {
        let problems = check::problems(self);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Error { file: "the configuration".to_owned(), problems })
        }
    }
}

impl Default for Sharding {
    fn default() -> Sharding {
        Sharding {
            algorithm: "sticky".to_owned(),
            virtual_nodes: 150,
            rebalance_threshold: 0.1,
            rebalance_interval: Duration::from_secs(30),
        }
    }
}

impl Default for Node {
    fn default() -> Node {
        Node {
            health_check_interval: Duration::from_secs(10),
            health_check_timeout: Duration::from_secs(5),
            node_timeout: Duration::from_secs(60),
        }
    }
}

impl Default for State {
    fn default() -> State {
        State {
            sync_interval: Duration::from_secs(10),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics { enabled: true, port: 8080, path: "/metrics".to_owned(), probe_port: 0 }
    }
}

fn is_zero(port: &u16) -> bool {
    *port == 0
}

impl Default for Logging {
    fn default() -> Logging {
        Logging { level: "info".to_owned(), format: LogFormat::Json }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            max_retries: 15,
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            rate_limiter_qps: 10.0,
        }
    }
}

impl Default for Reconcile {
    fn default() -> Reconcile {
        Reconcile {
            timeout: Duration::from_secs(120),
            resync_period: Duration::from_secs(600),
            max_concurrent: 64,
        }
    }
}
