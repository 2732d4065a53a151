//! One trace from an event to the API calls that it caused.
//!
//! The spans are ordinary `tracing` spans of level trace (the reconcile: info), so they cost next to nothing unless
//! somebody listens. With the feature
//! `otel`, `otlp` sends them to an OpenTelemetry collector, and requests carry the `traceparent` header.
//!
//! ```text
//! event ┬─ queue       from the event until a worker takes the key
//!       └─ reconcile ─ api_call, api_call, …
//! ```

#[cfg(feature = "otel")]
mod export;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Span;

#[cfg(feature = "otel")]
pub use export::{Exporter, otlp};

/// The traces of keys that wait in a queue. Cheap to clone.
#[derive(Debug)]
pub struct Journeys<K>(Arc<Mutex<BTreeMap<K, Journey>>>);

#[derive(Debug)]
struct Journey {
    event: Span,
    queue: Span,
    events: u64,
}

/// Keys whose traces are kept; later ones are not traced. Traces are for looking at, not for counting.
const MOST: usize = 10_000;

impl<K> Default for Journeys<K> {
    fn default() -> Journeys<K> {
        Journeys(Arc::default())
    }
}

impl<K> Clone for Journeys<K> {
    fn clone(&self) -> Journeys<K> {
        Journeys(self.0.clone())
    }
}

impl<K: Ord + Clone + std::fmt::Display> Journeys<K> {
    /// An event queues this key. Events that find the key queued belong to the journey that has begun.
    pub fn event(&self, controller: &str, key: &K, trigger: &str) {
        if !tracing::enabled!(tracing::Level::TRACE) {
            return;
        }
        let mut journeys = self.0.lock();
        if let Some(journey) = journeys.get_mut(key) {
            journey.events += 1;
        } else if journeys.len() < MOST {
            let none = tracing::field::Empty;
            let event = tracing::trace_span!(parent: None, "event", controller, %key, trigger, events = none);
            let queue = tracing::trace_span!(parent: &event, "queue");
            journeys.insert(key.clone(), Journey { event, queue, events: 1 });
        }
    }

    /// A worker takes the key: the span to run the reconcile in.
    pub fn reconcile(&self, controller: &str, key: &K) -> Span {
        let begun = if tracing::enabled!(tracing::Level::TRACE) { self.0.lock().remove(key) } else { None };
        match begun {
            Some(Journey { event, queue, events }) => {
                drop(queue);
                event.record("events", events);
                tracing::info_span!(parent: &event, "reconcile", controller, %key)
            }
            None => tracing::info_span!(parent: None, "reconcile", controller, %key),
        }
    }
}

/// Writes the current trace into the header of a request.
#[cfg(feature = "otel")]
pub(crate) fn inject(headers: &mut http::HeaderMap) {
    export::inject(headers);
}

/// Writes the current trace into the header of a request.
#[cfg(not(feature = "otel"))]
pub(crate) fn inject(_headers: &mut http::HeaderMap) {}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::{Context, SubscriberExt as _};
    use tracing_subscriber::registry::LookupSpan;
    use tracing_subscriber::{Layer, Registry};

    use crate::key::ObjectKey;

    /// Notes each span with its parent.
    #[derive(Clone, Default)]
    struct Family(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Family {
        fn on_new_span(&self, _: &tracing::span::Attributes<'_>, id: &tracing::Id, context: Context<'_, S>) {
            let Some(span) = context.span(id) else { return };
            let parent = span.parent().map_or("-", |parent| parent.name());
            self.0.lock().push(format!("{} in {parent}", span.name()));
        }

        fn on_close(&self, id: tracing::Id, context: Context<'_, S>) {
            if let Some(span) = context.span(&id) {
                self.0.lock().push(format!("{} ends", span.name()));
            }
        }
    }

    #[test]
    fn event_queue_and_reconcile_are_one_trace() {
        let family = Family::default();
        let subscriber = Registry::default().with(family.clone());
        tracing::subscriber::with_default(subscriber, || {
            let journeys: Journeys<ObjectKey> = Journeys::default();
            let key = ObjectKey::new("default", "a");
            journeys.event("web", &key, "added");
            journeys.event("web", &key, "modified");
            let span = journeys.reconcile("web", &key);
            span.in_scope(|| tracing::trace_span!("api_call"));
            drop(span);
            drop(journeys.reconcile("web", &key));
        });
        assert_eq!(
            *family.0.lock(),
            [
                "event in -",
                "queue in event",
                "queue ends",
                "reconcile in event",
                "api_call in reconcile",
                "api_call ends",
                "reconcile ends",
                "event ends",
                "reconcile in -",
                "reconcile ends",
            ]
        );
    }

    #[test]
    fn nothing_is_kept_when_nobody_listens() {
        let journeys: Journeys<ObjectKey> = Journeys::default();
        journeys.event("web", &ObjectKey::new("default", "a"), "added");
        assert!(journeys.0.lock().is_empty());
    }
}
