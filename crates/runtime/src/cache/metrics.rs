//! Figures of all caches, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::informers::{InformerSnapshot, Informers};

/// Reads the figures when they are asked for. Labelled by the collection that is watched, never by objects.
#[derive(Clone)]
pub struct InformerMetrics {
    informers: Informers,
}

impl InformerMetrics {
    /// Figures of these caches.
    pub fn new(informers: Informers) -> InformerMetrics {
        InformerMetrics { informers }
    }

    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl fmt::Debug for InformerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InformerMetrics")
    }
}

type Figure = fn(&InformerSnapshot) -> u64;

const GAUGES: [(&str, &str, Figure); 4] = [
    ("controller_informer_objects", "Objects held", |one| one.objects as u64),
    ("controller_informer_bytes", "Bytes of the bodies held", |one| one.bytes as u64),
    ("controller_informer_pending", "Changes that subscribers have not fetched", |one| one.pending as u64),
    ("controller_informer_synced", "Whether the first list is there", |one| u64::from(one.synced)),
];

const COUNTERS: [(&str, &str, Figure); 3] = [
    ("controller_informer_lists", "Lists begun", |one| one.lists),
    ("controller_informer_failures", "Failures of lists and watches", |one| one.troubles),
    ("controller_informer_malformed", "Objects that do not have the shape of their type", |one| {
        one.malformed
    }),
];

impl Collector for InformerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.informers.snapshot();
        let labels = |one: &InformerSnapshot| {
            let selector = one.label_selector.clone().unwrap_or_default();
            [
                ("path", one.path.clone()),
                ("selector", selector),
                ("metadata_only", one.metadata_only.to_string()),
            ]
        };
        for (name, help, figure) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for one in &all {
                let value = ConstGauge::new(i64::try_from(figure(one)).unwrap_or(i64::MAX));
                value.encode(family.encode_family(&labels(one))?)?;
            }
        }
        for (name, help, figure) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for one in &all {
                ConstCounter::new(figure(one)).encode(family.encode_family(&labels(one))?)?;
            }
        }
        Ok(())
    }
}
