//! `controller_workqueue_*`: read from the queues when someone asks, so that adding a key costs nothing more.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Queue, Stats};

/// Asks a queue for its numbers; None when it is gone.
type Source = Box<dyn Fn() -> Option<Stats> + Send + Sync>;

/// One of the numbers.
type Read = fn(&Stats) -> u64;

/// The metrics of all queues of a process, by the name of their controller.
#[derive(Clone, Default)]
pub struct QueueMetrics {
    queues: Arc<Mutex<Vec<(String, Source)>>>,
}

impl QueueMetrics {
    /// Shows these metrics in a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Counts a queue in, for as long as it exists. A queue of the same controller is replaced.
    pub fn watch<K: Send + 'static>(&self, controller: &str, queue: &Queue<K>) {
        let queue = Arc::downgrade(&queue.shared);
        let stats = move || queue.upgrade().map(|shared| Queue { shared }.stats());
        let mut queues = self.queues.lock();
        queues.retain(|(name, source)| name != controller && source().is_some());
        queues.push((controller.to_owned(), Box::new(stats)));
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.queues.lock().iter().map(|(name, _)| name)).finish()
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues = self.queues.lock();
        let stats: Vec<_> =
            queues.iter().filter_map(|(name, source)| Some((name.as_str(), source()?))).collect();
        encode_all(&mut encoder, &stats)
    }
}

fn encode_all(encoder: &mut DescriptorEncoder<'_>, stats: &[(&str, Stats)]) -> fmt::Result {
    let mut depth = encoder.encode_descriptor(
        "controller_workqueue_depth",
        "Keys that are ready for a worker",
        None,
        MetricType::Gauge,
    )?;
    for (controller, stats) in stats {
        let value = ConstGauge::new(i64::try_from(stats.depth).unwrap_or(i64::MAX));
        value.encode(depth.encode_family(&[("controller", *controller)])?)?;
    }
    let totals: [(&str, &str, Read); 2] = [
        ("controller_workqueue_adds", "Keys that became ready", |stats| stats.adds),
        ("controller_workqueue_retries", "Keys that were added again after a failure", |stats| stats.retries),
    ];
    for (name, help, read) in totals {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (controller, stats) in stats {
            ConstCounter::new(read(stats)).encode(family.encode_family(&[("controller", *controller)])?)?;
        }
    }
    Ok(())
}
