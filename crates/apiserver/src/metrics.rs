//! Figures for Prometheus, under the names of the real server where it has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use shoal_store::Stats;

use crate::audit::Figures;
use crate::request::Target;
use crate::response::Reply;

/// What a request was about. Object names are never labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Label {
    verb: &'static str,
    group: Shared,
    resource: Shared,
    subresource: Shared,
}

/// A text taken from the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shared(Box<str>);

impl EncodeLabelValue for Shared {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Done {
    #[prometheus(flatten)]
    request: Label,
    code: u16,
}

/// Counters of one server.
pub struct Metrics {
    registry: Registry,
    requests: Family<Done, Counter>,
    durations: Family<Label, Histogram>,
    watchers: Arc<AtomicI64>,
}

/// Counts something open until it is dropped.
pub struct Gauge(Arc<AtomicI64>);

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Label {
    /// The labels of a request to a resource.
    pub fn new(target: &Target, verb: &'static str) -> Label {
        let known = |name: &str| target.resource.subresource(name).is_some();
        let subresource = if known(&target.subresource) { target.subresource.as_str() } else { "" };
        Label {
            verb,
            group: Shared(target.resource.group.clone()),
            resource: Shared(target.resource.plural.clone()),
            subresource: Shared(subresource.into()),
        }
    }
}

impl Metrics {
    /// All zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let requests = Family::<Done, Counter>::default();
        let durations = Family::<Label, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_05, 4.0, 10))
        });
        registry.register("apiserver_request", "Requests by verb, resource and code", requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time from request to response header, watches included",
            durations.clone(),
        );
        Metrics { registry, requests, durations, watchers: Arc::default() }
    }

    /// Counts a watch that starts.
    pub fn watcher_opened(&self) -> Gauge {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Gauge(self.watchers.clone())
    }

    /// Counts a request that was answered.
    pub fn request_done(&self, request: Label, code: StatusCode, took: Duration) {
        self.durations.get_or_create(&request).observe(took.as_secs_f64());
        self.requests.get_or_create(&Done { request, code: code.as_u16() }).inc();
    }

    /// The text of `/metrics`.
    pub fn answer(&self, store: &Stats, audit: Option<&Figures>) -> Reply {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            return Reply::text(500, "metrics could not be written\n");
        }
        let text = text.trim_end_matches("# EOF\n");
        let gauge = |name: &str, help: &str, value: f64| {
            format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n")
        };
        let counter = |name: &str, help: &str, value: f64| {
            format!("# HELP {name} {help}.\n# TYPE {name} counter\n{name}_total {value}\n")
        };
        let watchers = self.watchers.load(Ordering::Relaxed) as f64;
        let parts = [
            gauge("apiserver_longrunning_requests", "Watches that are open", watchers),
            gauge("shoal_store_objects", "Objects in the store", store.objects as f64),
            gauge("shoal_store_bytes", "Bytes of encoded objects", store.bytes as f64),
            gauge("shoal_store_revision", "Latest revision", store.revision as f64),
            gauge("shoal_store_compacted_revision", "Newest revision out of history", store.compacted as f64),
            gauge("shoal_store_history_events", "Events kept for watches", store.history_events as f64),
            gauge("shoal_store_pending_writes", "Writes that wait for the disk", store.pending as f64),
            gauge("shoal_journal_bytes", "Bytes of the journal on disk", store.journal_bytes as f64),
            counter("shoal_journal_fsync", "Times the journal was synced", store.syncs as f64),
            counter("shoal_journal_fsync_seconds", "Time spent syncing the journal", store.sync_seconds),
        ];
        let audit = audit.map_or_else(String::new, |figures| {
            let (written, lost) = (&figures.written, &figures.dropped);
            let number = |figure: &AtomicU64| figure.load(Ordering::Relaxed) as f64;
            counter("apiserver_audit_event", "Audit events written", number(written))
                + &counter("apiserver_audit_error", "Audit events lost: queue or disk full", number(lost))
        });
        let body = format!("{text}{}{audit}# EOF\n", parts.concat());
        Reply::full(200, body, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}
