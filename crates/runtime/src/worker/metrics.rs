//! `controller_reconcile_*`, by controller. Keys are never labels.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds in seconds: from a look into the cache to a reconcile near its timeout.
const BUCKETS: [f64; 17] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    controller: String,
}

/// The metrics of all workers of a process.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    errors: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    time: Family<Labels, Histogram, fn() -> Histogram>,
}

/// Those of one controller.
#[derive(Clone, Debug)]
pub struct Meters {
    pub(super) errors: Counter,
    pub(super) panics: Counter,
    pub(super) time: Histogram,
}

impl Default for WorkerMetrics {
    fn default() -> WorkerMetrics {
        WorkerMetrics {
            errors: Family::default(),
            panics: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl WorkerMetrics {
    /// Shows these metrics in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let errors = "Reconciles that failed, by an error, a timeout or a panic";
        registry.register("controller_reconcile_errors", errors, self.errors.clone());
        registry.register("controller_reconcile_panics", "Reconciles that panicked", self.panics.clone());
        let time = "Time that a reconcile took, in seconds";
        registry.register("controller_reconcile_time_seconds", time, self.time.clone());
    }

    /// The metrics of one controller; they are there, at zero, from now on.
    pub fn of(&self, controller: &str) -> Meters {
        let labels = Labels { controller: controller.to_owned() };
        Meters {
            errors: self.errors.get_or_create(&labels).clone(),
            panics: self.panics.get_or_create(&labels).clone(),
            time: self.time.get_or_create(&labels).clone(),
        }
    }
}
