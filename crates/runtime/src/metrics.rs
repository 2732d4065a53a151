//! The metrics of one process: a registry that every part adds its own to.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// What scrapers are told about the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry of a manager. Cheap to clone; all clones are one registry.
///
/// ```
/// use prometheus_client::metrics::counter::Counter;
///
/// let metrics = shoal_runtime::metrics::Metrics::default();
/// let cakes = Counter::<u64>::default();
/// metrics.register(|registry| registry.register("cakes", "Cakes eaten", cakes.clone()));
/// cakes.inc();
/// assert!(metrics.text().contains("cakes_total 1"));
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Adds metrics. Names are added without `_total`, which the text of counters gets by itself.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.0.lock());
    }

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.0.lock());
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
