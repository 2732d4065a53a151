//! Where settings come from, and what happens when the file changes while the process runs.
//!
//! The file is read again every few seconds, through whatever links lead to it, so the swap of links by which a
//! mounted ConfigMap changes is noticed like any other change. New content counts when it has been the same twice, so
//! that a file that is just being written is not taken for a short one. Content that cannot be used changes nothing:
//! the last good settings stay, and the reason is kept for inspection, metrics and events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{CONFIG_FILE, Config, Error};
use crate::manager::Stop;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// What came of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// New settings are in force.
    Applied {
        /// Counts the settings that were in force, from 1.
        generation: u64,
    },
    /// The file cannot be used; the settings of this generation stay in force.
    Rejected {
        /// Counts the settings that were in force, from 1.
        generation: u64,
        /// Why.
        error: Error,
    },
    /// The settings before the last change are in force again.
    RolledBack {
        /// Counts the settings that were in force, from 1.
        generation: u64,
    },
}

/// Counts what happened to the settings.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    generation: Gauge,
    rejected: Counter,
    last_reload_successful: Gauge,
}

type Guard = Box<dyn Fn(&Config) -> Result<(), String> + Send + Sync>;
type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// The settings in force. Cheap to clone; all clones are one source.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    current: watch::Sender<Arc<Config>>,
    track: Mutex<Track>,
    guards: Mutex<Vec<Guard>>,
    listeners: Mutex<Vec<Listener>>,
    metrics: Metrics,
}

struct Track {
    generation: u64,
    /// The content that was last decided about.
    decided: Option<Vec<u8>>,
    /// Content that was seen once.
    pending: Option<Vec<u8>>,
    previous: Option<Arc<Config>>,
    rejected: Option<Error>,
}

impl Source {
    /// Settings that never change.
    pub fn fixed(config: Config) -> Source {
        Source::new(config, None, None)
    }

    /// The settings of this file, now and when it changes.
    pub fn file(path: impl Into<PathBuf>) -> Result<Source, Error> {
        let path = path.into();
        let content = read(&path)?;
        let config = parse(&path, &content)?;
        Ok(Source::new(config, Some(path), Some(content)))
    }

    /// The file that `CONFIG_FILE` names; defaults without that variable.
    pub fn from_environment() -> Result<Source, Error> {
        match path_from_environment() {
            Some(path) => Source::file(path),
            None => load(None).map(Source::fixed),
        }
    }

    fn new(config: Config, path: Option<PathBuf>, content: Option<Vec<u8>>) -> Source {
        let metrics = Metrics::default();
        metrics.generation.set(1);
        metrics.last_reload_successful.set(1);
        let track = Track { generation: 1, decided: content, pending: None, previous: None, rejected: None };
        Source(Arc::new(Inner {
            path,
            current: watch::Sender::new(Arc::new(config)),
            track: Mutex::new(track),
            guards: Mutex::default(),
            listeners: Mutex::default(),
            metrics,
        }))
    }

    /// The settings in force.
    pub fn current(&self) -> Arc<Config> {
        self.0.current.borrow().clone()
    }

    /// The settings in force, and those that follow.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.0.current.subscribe()
    }

    /// Asks `guard` before new settings come into force. Its refusal keeps the old ones.
    pub fn guard(&self, guard: impl Fn(&Config) -> Result<(), String> + Send + Sync + 'static) {
        self.0.guards.lock().push(Box::new(guard));
    }

    /// Tells `listener` what came of each change.
    pub fn on_change(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.0.listeners.lock().push(Box::new(listener));
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let metrics = &self.0.metrics;
        registry.register(
            "config_generation",
            "Settings that were in force so far",
            metrics.generation.clone(),
        );
        registry.register(
            "config_rejected",
            "Changes of the settings that could not be used",
            metrics.rejected.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "Whether the file as it is now is in force",
            metrics.last_reload_successful.clone(),
        );
    }

    /// Looks at the file until asked to stop.
    pub async fn run(self, stop: Stop) {
        if self.0.path.is_none() {
            stop.requested().await;
            return;
        }
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return,
                () = tokio::time::sleep(INTERVAL) => {
                    self.poll();
                }
            }
        }
    }

    /// Looks at the file once.
    pub fn poll(&self) -> Option<Change> {
        let path = self.0.path.as_deref()?;
        let result = match read(path) {
            Ok(content) => {
                let mut track = self.0.track.lock();
                if track.decided.as_ref() == Some(&content) {
                    track.pending = None;
                    return None;
                }
                if track.pending.as_ref() != Some(&content) {
                    track.pending = Some(content);
                    return None;
                }
                track.pending = None;
                track.decided = Some(content.clone());
                drop(track);
                parse(path, &content).and_then(|config| self.ask_guards(path, config))
            }
            Err(error) => {
                let mut track = self.0.track.lock();
                // Told once, not at every look; whatever comes back is decided about anew.
                if track.decided.take().is_none() && track.rejected.as_ref() == Some(&error) {
                    return None;
                }
                Err(error)
            }
        };
        Some(self.conclude(result))
    }

    /// Puts the settings before the last change in force again, until the file changes once more.
    pub fn roll_back(&self) -> Option<Change> {
        let mut track = self.0.track.lock();
        let previous = track.previous.take()?;
        track.generation += 1;
        let change = Change::RolledBack { generation: track.generation };
        drop(track);
        self.0.current.send_replace(previous);
        self.tell(&change);
        Some(change)
    }

    /// For `/debug/inspect`.
    pub fn inspect(&self) -> Value {
        let track = self.0.track.lock();
        json!({
            "file": self.0.path,
            "generation": track.generation,
            "rejected": track.rejected.as_ref().map(|error| &error.problems),
            "settings": *self.current(),
        })
    }

    fn ask_guards(&self, path: &Path, config: Config) -> Result<Config, Error> {
        let problems: Vec<String> =
            self.0.guards.lock().iter().filter_map(|guard| guard(&config).err()).collect();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(Error { file: path.display().to_string(), problems })
        }
    }

    fn conclude(&self, result: Result<Config, Error>) -> Change {
        let mut track = self.0.track.lock();
        let change = match result {
            Ok(config) => {
                track.generation += 1;
                track.rejected = None;
                track.previous = Some(self.0.current.send_replace(Arc::new(config)));
                Change::Applied { generation: track.generation }
            }
            Err(error) => {
                track.rejected = Some(error.clone());
                Change::Rejected { generation: track.generation, error }
            }
        };
        drop(track);
        self.tell(&change);
        change
    }

    fn tell(&self, change: &Change) {
        let metrics = &self.0.metrics;
        match change {
            Change::Applied { generation } => {
                metrics.generation.set(i64::try_from(*generation).unwrap_or(i64::MAX));
                metrics.last_reload_successful.set(1);
                tracing::info!(generation, "new settings are in force");
            }
            Change::Rejected { generation, error } => {
                metrics.rejected.inc();
                metrics.last_reload_successful.set(0);
                tracing::error!(generation, %error, "new settings cannot be used, the last good ones stay in force");
            }
            Change::RolledBack { generation } => {
                metrics.generation.set(i64::try_from(*generation).unwrap_or(i64::MAX));
                metrics.last_reload_successful.set(0);
                tracing::warn!(generation, "the settings before the last change are in force again");
            }
        }
        self.0.listeners.lock().iter().for_each(|listener| listener(change));
    }
}

pub(super) fn path_from_environment() -> Option<PathBuf> {
    std::env::var_os(CONFIG_FILE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

pub(super) fn load(path: Option<&Path>) -> Result<Config, Error> {
    match path {
        Some(path) => parse(path, &read(path)?),
        None => Config::parse("", &variable)
            .map_err(|error| Error { file: "the environment".to_owned(), ..error }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error {
        file: path.display().to_string(),
        problems: vec![format!("it cannot be read: {error}; check {CONFIG_FILE} and the mount")],
    })
}

fn parse(path: &Path, content: &[u8]) -> Result<Config, Error> {
    let file = path.display().to_string();
    match std::str::from_utf8(content) {
        Ok(text) => Config::parse(text, &variable).map_err(|error| Error { file, ..error }),
        Err(_) => Err(Error { file, problems: vec!["it is not text: YAML in UTF-8 is expected".to_owned()] }),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
