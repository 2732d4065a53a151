//! `sharded_controller_*`. Objects and replicas are never labels.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds in seconds: from a look into the cache to a takeover.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Why {
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Status {
    pub(crate) status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Step {
    pub(crate) phase: &'static str,
}

/// What sharding tells about itself.
#[derive(Clone, Debug)]
pub struct ShardMetrics {
    pub(crate) shards: Gauge,
    pub(crate) rebalances: Counter,
    pub(crate) changes: Counter,
    pub(crate) nodes: Gauge,
    pub(crate) health: Family<Status, Gauge>,
    pub(crate) processed: Counter,
    pub(crate) latency: Histogram,
    pub(crate) errors: Counter,
    pub(crate) unowned: Gauge,
    pub(crate) unowned_seconds: Gauge<f64, AtomicU64>,
    pub(crate) overlaps: Counter,
    pub(crate) cut_off: Counter,
    pub(crate) handover: Family<Step, Histogram, fn() -> Histogram>,
    pub(crate) moves: Family<Why, Counter>,
    pub(crate) load: Gauge<f64, AtomicU64>,
    pub(crate) lives: Counter,
}

impl Default for ShardMetrics {
    fn default() -> ShardMetrics {
        ShardMetrics {
            shards: Gauge::default(),
            rebalances: Counter::default(),
            changes: Counter::default(),
            nodes: Gauge::default(),
            health: Family::default(),
            processed: Counter::default(),
            latency: Histogram::new(BUCKETS),
            errors: Counter::default(),
            unowned: Gauge::default(),
            unowned_seconds: Gauge::default(),
            overlaps: Counter::default(),
            cut_off: Counter::default(),
            handover: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            moves: Family::default(),
            load: Gauge::default(),
            lives: Counter::default(),
        }
    }
}

impl ShardMetrics {
    /// Shows these metrics in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let mut named = |name: &str, about: &str, metric: Box<dyn prometheus_client::registry::Metric>| {
            registry.register(format!("sharded_controller_{name}"), about, Shown(metric));
        };
        named("shard_count", "Slots that this replica works on", Box::new(self.shards.clone()));
        named("rebalances", "Rounds in which this replica moved slots", Box::new(self.rebalances.clone()));
        named("shard_changes", "Slots that changed hands anywhere", Box::new(self.changes.clone()));
        named("node_count", "Replicas of the group", Box::new(self.nodes.clone()));
        named("node_health", "Replicas of the group by status", Box::new(self.health.clone()));
        named("processed_resources", "Reconciles of sharded objects", Box::new(self.processed.clone()));
        named("processing_latency_seconds", "Time that they took", Box::new(self.latency.clone()));
        named("processing_errors", "Those that failed", Box::new(self.errors.clone()));
        named("unowned_slots", "Slots that nobody works on", Box::new(self.unowned.clone()));
        let about = "For how long there have been such slots without a break";
        named("unowned_seconds", about, Box::new(self.unowned_seconds.clone()));
        let about = "Slots that another replica got while work on them was in flight here; always 0";
        named("overlaps_detected", about, Box::new(self.overlaps.clone()));
        let about = "Reconciles that were cut off because their slot was lost or the time was over";
        named("cut_off_reconciles", about, Box::new(self.cut_off.clone()));
        named("handover_seconds", "Time that the phases of a handover took", Box::new(self.handover.clone()));
        named("moves", "Slots that this replica moved on, by reason", Box::new(self.moves.clone()));
        named("load", "Reconciles at work at one time, on average", Box::new(self.load.clone()));
        named("lives", "Lives that this process began", Box::new(self.lives.clone()));
    }

    pub(crate) fn took(&self, phase: &'static str, seconds: f64) {
        self.handover.get_or_create(&Step { phase }).observe(seconds);
    }
}

/// A metric behind a pointer.
#[derive(Debug)]
struct Shown(Box<dyn prometheus_client::registry::Metric>);

impl prometheus_client::encoding::EncodeMetric for Shown {
    fn encode(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> prometheus_client::metrics::MetricType {
        self.0.metric_type()
    }
}
