//! What the operator counts.
//!
//! Figures of single Applications are the exception among the metrics of this program: they carry names, because that is what they
//! are asked for. They are bounded, and can be switched off.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use shoal_runtime::events::Severity;
use shoal_runtime::{Class, Error, Lister, ObjectKey};

use crate::Application;
use crate::api::Phase;
use crate::plan::Note;

/// Upper bounds in seconds.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// More Applications than this are not shown one by one.
const MOST_SHOWN: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

/// What the pods of an Application use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processors.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

/// The metrics of the operator. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    duration: Histogram,
    errors: Family<OfReason, Counter>,
    applied: Family<OfKind, Counter>,
    drift: Family<OfKind, Counter>,
    rollouts: Family<OfOutcome, Counter>,
    rollbacks: Counter,
    population: Population,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            duration: Histogram::new(BUCKETS),
            errors: Family::default(),
            applied: Family::default(),
            drift: Family::default(),
            rollouts: Family::default(),
            rollbacks: Counter::default(),
            population: Population::default(),
        }
    }
}

impl Metrics {
    /// Shows these metrics in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let duration = "Time that a look at one Application took, in seconds";
        registry.register("application_reconcile_duration_seconds", duration, self.duration.clone());
        let errors =
            "What went wrong, by reason: of reconciles that failed, and of Applications that do not go on";
        registry.register("application_errors", errors, self.errors.clone());
        registry.register("application_children_applied", "Children made or changed", self.applied.clone());
        let drift = "Children that somebody else had changed and that were set right";
        registry.register("application_drift_corrected", drift, self.drift.clone());
        registry.register("application_rollouts", "Rollouts that ended, by outcome", self.rollouts.clone());
        registry.register("application_rollbacks", "Templates that were put back", self.rollbacks.clone());
        registry.register_collector(Box::new(self.population.clone()));
    }

    /// Counts the Applications of this cache from now on.
    pub(crate) fn follow(&self, applications: Lister<Application>) {
        let _ = self.population.applications.set(applications);
    }

    pub(crate) fn reconciled(&self, took: Duration, error: Option<&Error>) {
        self.duration.observe(took.as_secs_f64());
        if let Some(error) = error.filter(|error| !error.is_ordinary()) {
            let reason = match error.class {
                Class::Transient => "Transient",
                Class::Permanent => "Permanent",
                Class::Unknown => "Unknown",
            };
            self.errors.get_or_create(&OfReason { reason: reason.to_owned() }).inc();
        }
    }

    pub(crate) fn applied(&self, kind: &str) {
        self.applied.get_or_create(&OfKind { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn drift(&self, kind: &str) {
        self.drift.get_or_create(&OfKind { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn rolled_out(&self) {
        self.rollouts.get_or_create(&OfOutcome { outcome: "complete" }).inc();
    }

    pub(crate) fn rollout(&self, rolled_back: bool) {
        self.rollouts.get_or_create(&OfOutcome { outcome: "failed" }).inc();
        if rolled_back {
            self.rollbacks.inc();
        }
    }

    pub(crate) fn noted(&self, notes: &[Note]) {
        for note in notes.iter().filter(|note| note.severity == Severity::Warning) {
            self.errors.get_or_create(&OfReason { reason: note.reason.to_owned() }).inc();
        }
    }

    /// What is used, by Application.
    pub(crate) fn used(&self, usage: BTreeMap<ObjectKey, Usage>) {
        *self.population.usage.lock() = usage;
    }
}

/// Figures that are read when they are asked for.
#[derive(Clone, Default)]
struct Population {
    applications: Arc<OnceLock<Lister<Application>>>,
    usage: Arc<Mutex<BTreeMap<ObjectKey, Usage>>>,
}

impl fmt::Debug for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Population")
    }
}

impl Collector for Population {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let applications = self.applications.get();
        let mut phases: BTreeMap<&'static str, i64> = Phase::ALL.map(|phase| (phase.as_str(), 0)).into();
        for app in applications.map(Lister::list).unwrap_or_default() {
            let phase = app.status.as_ref().and_then(|status| status.phase).unwrap_or(Phase::Creating);
            *phases.entry(phase.as_str()).or_default() += 1;
        }
        let help = "Applications, by phase";
        let mut family = encoder.encode_descriptor("applications_total", help, None, MetricType::Gauge)?;
        for (phase, count) in phases {
            ConstGauge::new(count).encode(family.encode_family(&[("phase", phase)])?)?;
        }
        let usage = self.usage.lock().clone();
        // Those that another replica looks after are its to show.
        let ours = |key: &ObjectKey| applications.is_some_and(|all| all.meta(key).is_some());
        let shown: Vec<(&ObjectKey, &Usage)> =
            usage.iter().filter(|(key, _)| ours(key)).take(MOST_SHOWN).collect();
        type Figure = fn(&Usage) -> f64;
        let figures: [(&str, &str, Figure); 2] = [
            ("application_resource_usage_cpu", "Processors that the pods of an Application use", |usage| {
                usage.cpu
            }),
            ("application_resource_usage_memory", "Bytes of memory that they use", |usage| usage.memory),
        ];
        for (name, help, figure) in figures {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (key, usage) in &shown {
                let labels = [("namespace", &*key.namespace), ("application", &*key.name)];
                ConstGauge::new(figure(usage)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
