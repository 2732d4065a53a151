//! `leader_election_master_status`: 1 on the replica that leads, as client-go has it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Leadership;

/// Whether this replica leads, asked when somebody looks.
#[derive(Clone, Debug)]
pub struct LeaderMetrics(Leadership);

impl LeaderMetrics {
    /// The metrics of one election.
    pub fn new(leadership: Leadership) -> LeaderMetrics {
        LeaderMetrics(leadership)
    }

    /// Shows these metrics in a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for LeaderMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(i64::from(self.0.is_leader()));
        let help = "Whether this replica leads";
        let mut status =
            encoder.encode_descriptor("leader_election_master_status", help, None, gauge.metric_type())?;
        let name = self.0.lease.rsplit('/').next().unwrap_or_default();
        gauge.encode(status.encode_family(&[("name", name)])?)
    }
}
