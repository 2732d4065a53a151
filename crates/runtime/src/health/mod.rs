//! Probes, metrics and a look inside, over HTTP.
//!
//! | path | answer |
//! | --- | --- |
//! | `/healthz` | 200 while the process is alive and not stopping |
//! | `/readyz` | 200 when caches are synced and queues accept work; `?verbose` lists every check |
//! | `/metrics` | all metrics as text (the path can be set) |
//! | `/debug/inspect` | JSON: watches, caches, queues, work in flight, leases, shards |
//! | `/debug/loglevel` | GET shows the log level, PUT sets it |
//! | `/debug/pprof/profile` | where CPU time goes, when profiles are switched on and built in (feature `profiling`) |
//! | `/debug/pprof/heap` | where memory was asked for, when profiles are switched on and the program gives one |
//!
//! Everything below `/debug` answers callers on this machine only; `kubectl port-forward` is one.

mod answer;
mod profile;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub use server::{Server, bind};

use crate::logging::Level;
use crate::manager::Inspect;
use crate::metrics::Metrics;

/// Paths that metrics cannot have.
pub const RESERVED_PATHS: &[&str] = &["/", "/healthz", "/livez", "/readyz"];

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is checked.
    pub name: String,
    /// Why it does not hold; None when it does.
    pub problem: Option<String>,
}

/// Gives the profile of the program's allocator, or says why it cannot.
pub type HeapProfile = Arc<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>;

type Checks = Box<dyn Fn() -> Vec<Check> + Send + Sync>;

/// What the endpoints tell. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    alive: Mutex<Vec<Checks>>,
    ready: Mutex<Vec<Checks>>,
    inspect: Mutex<BTreeMap<String, Inspect>>,
    level: RwLock<Option<Level>>,
    metrics: RwLock<Option<(String, Metrics)>>,
    profiling: AtomicBool,
    heap: RwLock<Option<HeapProfile>>,
}

impl Health {
    /// Adds checks of `/healthz`.
    pub fn alive(&self, checks: impl Fn() -> Vec<Check> + Send + Sync + 'static) {
        self.0.alive.lock().push(Box::new(checks));
    }

    /// Adds checks of `/readyz`.
    pub fn ready(&self, checks: impl Fn() -> Vec<Check> + Send + Sync + 'static) {
        self.0.ready.lock().push(Box::new(checks));
    }

    /// Shows what `inspect` gives under this name in `/debug/inspect`.
    pub fn inspect(&self, name: &str, inspect: impl Fn() -> Value + Send + Sync + 'static) {
        self.0.inspect.lock().insert(name.to_owned(), Arc::new(inspect));
    }

    /// Lets `/debug/loglevel` read and change the log level.
    pub fn log_level(&self, level: Level) {
        *self.0.level.write() = Some(level);
    }

    /// Serves metrics on a path; None serves none.
    pub fn metrics(&self, metrics: Option<(&str, Metrics)>) {
        *self.0.metrics.write() = metrics.map(|(path, metrics)| (path.to_owned(), metrics));
    }

    /// Switches profiles on or off. Off by default.
    pub fn profiling(&self, on: bool) {
        self.0.profiling.store(on, Ordering::Relaxed);
    }

    /// Serves this as `/debug/pprof/heap`, when profiles are switched on. The allocator is the program's, so is its
    /// profile: with jemalloc, the file that `prof.dump` writes.
    pub fn heap_profile(&self, dump: impl Fn() -> Result<Vec<u8>, String> + Send + Sync + 'static) {
        *self.0.heap.write() = Some(Arc::new(dump));
    }

    /// All checks of `/healthz`.
    pub fn alive_checks(&self) -> Vec<Check> {
        self.0.alive.lock().iter().flat_map(|checks| checks()).collect()
    }

    /// All checks of `/readyz`.
    pub fn ready_checks(&self) -> Vec<Check> {
        self.0.ready.lock().iter().flat_map(|checks| checks()).collect()
    }

    /// What `/debug/inspect` shows.
    pub fn inspection(&self) -> Value {
        let parts: Vec<(String, Inspect)> =
            self.0.inspect.lock().iter().map(|(name, inspect)| (name.clone(), inspect.clone())).collect();
        // Outside the lock: a part may take its time.
        Value::Object(parts.into_iter().map(|(name, inspect)| (name, inspect())).collect())
    }
}

impl Check {
    /// A check that holds, or does not for a reason.
    pub fn new(name: impl Into<String>, problem: Option<String>) -> Check {
        Check { name: name.into(), problem }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}
