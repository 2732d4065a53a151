//! Events, in the fields of either of their groups.

use serde_json::Value;
use shoal_objects::Timestamp;

use super::Column;
use super::cells::{NAME, text};
use super::duration::since;
use crate::kinds::access::{at, field, int_at, str_at};

/// Columns of events.
pub static EVENT: &[Column] = &[
    Column::text("Last Seen", "When it happened last.", |o, now| last_seen(o, now).into()),
    Column::text("Type", "Normal or Warning.", |o, _| text(o, &["type"])),
    Column::text("Reason", "Why, in one word.", |o, _| text(o, &["reason"])),
    Column::text("Object", "What it happened to.", |o, _| {
        let about = about(o);
        match (str_at(about, "kind").to_lowercase(), str_at(about, "name")) {
            (kind, "") => kind.into(),
            (kind, name) => format!("{kind}/{name}").into(),
        }
    }),
    Column::text("Subobject", "Which part of it.", |o, _| text(about(o), &["fieldPath"])).wide(),
    Column::text("Source", "Who reported it.", source).wide(),
    Column::text("Message", "What happened.", |o, _| {
        either(o, "message", "note").and_then(Value::as_str).unwrap_or_default().trim().into()
    }),
    Column::text("First Seen", "When it happened first.", |o, now| first_seen(o, now).into()).wide(),
    Column::text("Count", "How often it happened.", |o, _| count(o).into()).wide(),
    NAME.wide(),
];

/// The field in the core group, or as it is called in `events.k8s.io`.
fn either<'a>(event: &'a Value, core: &str, events: &str) -> Option<&'a Value> {
    field(event, core).or_else(|| field(event, events))
}

fn about(event: &Value) -> &Value {
    either(event, "involvedObject", "regarding").unwrap_or(&Value::Null)
}

fn source(event: &Value, _: Timestamp) -> Value {
    let source = either(event, "source", "deprecatedSource").unwrap_or(&Value::Null);
    let reporter = either(event, "reportingComponent", "reportingController").and_then(Value::as_str);
    let first = |own: &str, otherwise: &str| (if own.is_empty() { otherwise } else { own }).to_owned();
    let component = first(str_at(source, "component"), reporter.unwrap_or_default());
    match first(str_at(source, "host"), str_at(event, "reportingInstance")) {
        instance if instance.is_empty() => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    let first = either(event, "firstTimestamp", "deprecatedFirstTimestamp");
    since(first.or_else(|| field(event, "eventTime")), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if let Some(series) = field(event, "series") {
        return since(field(series, "lastObservedTime"), now);
    }
    match either(event, "lastTimestamp", "deprecatedLastTimestamp") {
        Some(last) => since(Some(last), now),
        None => first_seen(event, now),
    }
}

/// An event that says nothing about it happened once.
fn count(event: &Value) -> i64 {
    if field(event, "series").is_some() {
        return at(event, &["series", "count"]).and_then(Value::as_i64).unwrap_or_default();
    }
    let counted = int_at(event, "count").or_else(|| int_at(event, "deprecatedCount"));
    counted.filter(|count| *count != 0).unwrap_or(1)
}
