//! Log lines as JSON objects: `timestamp`, `level`, `target`, `message`, and the fields of the line and its spans.

use std::fmt;
use std::io::Write as _;

use serde_json::{Map, Value};
use shoal_objects::Clock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Writes each event as one line of JSON.
pub struct JsonLayer<W> {
    clock: Clock,
    writer: W,
}

impl<W> JsonLayer<W> {
    /// Timestamps come from `clock`.
    pub fn new(clock: Clock, writer: W) -> JsonLayer<W> {
        JsonLayer { clock, writer }
    }
}

/// The fields of a span or event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut line = Fields::default();
        line.put("timestamp", self.clock.now().to_micro_string().into());
        line.put("level", metadata.level().as_str().to_ascii_lowercase().into());
        line.put("target", metadata.target().into());
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.0.extend(fields.0.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        event.record(&mut line);
        let mut bytes = Value::Object(line.0).to_string().into_bytes();
        bytes.push(b'\n');
        // A log that cannot be written has nowhere to complain.
        let _ = self.writer.make_writer_for(metadata).write_all(&bytes);
    }
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn put_text(&mut self, field: &Field, text: String) {
        match field.name().strip_prefix("json.") {
            Some(name) => {
                let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                self.put(name, value);
            }
            None => self.put(field.name(), Value::String(text)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field.name(), value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format!("{value:?}"));
    }
}
