//! Event, in both of its groups. Stored as core/v1; `events.k8s.io/v1` is the same object under other field names.

use shoal_objects::{Errors, Path, Value, names};

use super::access::{at, child_mut, field, int_at, is_set, remove, set, set_default, str_at};
use super::checks;
use super::{NameRule, Rules};

/// The rules of core/v1 Event: only what was asked of events since the first day.
pub const CORE_RULES: Rules =
    Rules { default: default_core, validate: validate_core, name: NameRule::PathSegment, ..Rules::NONE };

/// The rules of events.k8s.io/v1 Event, which has no room for the old fields.
pub const EVENTS_RULES: Rules = Rules {
    default: default_events,
    validate: validate_events,
    validate_update: validate_events_update,
    ..Rules::NONE
};

/// Fields that are called differently: (core, events.k8s.io).
const RENAMED: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// Turns a stored (core/v1) event into an events.k8s.io/v1 one.
pub fn core_to_events(event: &mut Value) {
    for (core, events) in RENAMED {
        if let Some(value) = remove(event, core) {
            set(event, events, value);
        }
    }
    // Core writes these even when empty, the other group does not.
    for name in ["reportingController", "reportingInstance"] {
        if str_at(event, name).is_empty() {
            remove(event, name);
        }
    }
    set(event, "apiVersion", "events.k8s.io/v1");
    default_events(event);
}

/// Turns an events.k8s.io/v1 event into a core/v1 one, as it is stored.
pub fn events_to_core(event: &mut Value) {
    for (core, events) in RENAMED {
        if let Some(value) = remove(event, events) {
            set(event, core, value);
        }
    }
    set(event, "apiVersion", "v1");
    default_core(event);
}

/// Fields that are written even when they hold nothing.
fn default_core(event: &mut Value) {
    for name in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        set_default(event, name, Value::Null);
    }
    for name in ["reportingComponent", "reportingInstance"] {
        set_default(event, name, "");
    }
    for name in ["involvedObject", "source"] {
        child_mut(event, name);
    }
}

fn default_events(event: &mut Value) {
    for name in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        set_default(event, name, Value::Null);
    }
    for name in ["regarding", "deprecatedSource"] {
        child_mut(event, name);
    }
}

fn validate_core(event: &Value, errors: &mut Errors) {
    validate_stored(event, "reportingComponent", errors);
}

fn validate_events(event: &Value, errors: &mut Errors) {
    let mut stored = event.clone();
    events_to_core(&mut stored);
    validate_stored(&stored, "reportingController", errors);
    validate_series(&stored, errors);
    if field(&stored, "eventTime").is_none() {
        errors.required(&Path::new("eventTime"), "");
    }
    let kind = str_at(&stored, "type");
    if kind != "Normal" && kind != "Warning" {
        errors.invalid_str(&Path::new("type"), "", &format!("has invalid value: {kind}"));
    }
    for old in ["firstTimestamp", "lastTimestamp", "count"] {
        if is_set(&stored, old) {
            errors.invalid_str(&Path::new(old), "", "needs to be unset");
        }
    }
    let source = field(&stored, "source").unwrap_or(&Value::Null);
    if is_set(source, "component") || is_set(source, "host") {
        errors.invalid_str(&Path::new("source"), "", "needs to be unset");
    }
}

/// The checks of a core event; `reporting` is what the request calls the reporting component.
fn validate_stored(event: &Value, reporting: &str, errors: &mut Errors) {
    let namespace = at(event, &["metadata", "namespace"]).and_then(Value::as_str).unwrap_or_default();
    let involved = at(event, &["involvedObject", "namespace"]).and_then(Value::as_str).unwrap_or_default();
    let old_style = field(event, "eventTime").is_none();
    let agree = if old_style {
        // Events about cluster-scoped objects live in the namespace default.
        namespace == involved || involved.is_empty() && matches!(namespace, "" | "default")
    } else {
        !involved.is_empty() || matches!(namespace, "default" | "kube-system")
    };
    if !agree {
        let path = Path::new("involvedObject");
        errors.invalid_str(&path.child("namespace"), involved, "does not match event.namespace");
    }
    if !old_style {
        let component = str_at(event, "reportingComponent");
        if component.is_empty() {
            errors.required(&Path::new(reporting), "");
        }
        checks::text(errors, &Path::new(reporting), component, names::qualified_name(component));
        for name in ["reportingInstance", "action", "reason"] {
            let text = str_at(event, name);
            if text.is_empty() {
                errors.required(&Path::new(name), "");
            }
            if text.len() > 128 {
                errors.invalid_str(&Path::new(name), "", "can have at most 128 characters");
            }
        }
        if str_at(event, "message").len() > 1024 {
            errors.invalid_str(&Path::new("message"), "", "can have at most 1024 characters");
        }
    }
    checks::text(errors, &Path::new("namespace"), namespace, names::dns1123_subdomain(namespace));
}

fn validate_series(event: &Value, errors: &mut Errors) {
    let Some(series) = field(event, "series") else { return };
    let path = Path::new("series");
    if int_at(series, "count").unwrap_or_default() < 2 {
        errors.invalid_str(&path.child("count"), "", "should be at least 2");
    }
    if field(series, "lastObservedTime").is_none() {
        errors.required(&path.child("lastObservedTime"), "");
    }
}

fn validate_events_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (mut new, mut old) = (new.clone(), old.clone());
    events_to_core(&mut new);
    events_to_core(&mut old);
    let frozen = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingController",
        "reportingInstance",
    ];
    for name in frozen {
        let stored = if name == "reportingController" { "reportingComponent" } else { name };
        let (now, before) = (field(&new, stored), field(&old, stored));
        if now != before {
            errors.invalid(&Path::new(name), now.unwrap_or(&Value::Null), checks::IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    /// One event as both groups write it.
    fn both() -> (Value, Value) {
        (
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "n"}, "count": 3,
                "eventTime": null, "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:05Z",
                "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "n"},
                "message": "hello", "reason": "Tested", "reportingComponent": "", "reportingInstance": "",
                "source": {"component": "me"}, "type": "Normal",
            }),
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "n"},
                "deprecatedCount": 3, "deprecatedFirstTimestamp": "2024-01-01T00:00:00Z",
                "deprecatedLastTimestamp": "2024-01-01T00:00:05Z", "deprecatedSource": {"component": "me"},
                "eventTime": null, "note": "hello", "reason": "Tested", "type": "Normal",
                "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "n"},
            }),
        )
    }

    #[test]
    fn an_event_reads_the_same_in_both_groups() {
        let (core, events) = both();
        let mut converted = core.clone();
        core_to_events(&mut converted);
        assert_eq!(converted, events);
        events_to_core(&mut converted);
        assert_eq!(converted, core);
    }

    #[test]
    fn a_new_event_has_the_old_fields_empty() {
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e2", "namespace": "n"},
            "regarding": {"kind": "Pod", "name": "p", "namespace": "n"}, "reason": "R", "action": "A",
            "eventTime": "2024-01-01T00:00:00.000000Z", "type": "Warning", "note": "n",
            "reportingController": "example.test/c", "reportingInstance": "i",
        });
        default_events(&mut event);
        assert!(causes(|e| validate_events(&event, e)).is_empty());
        events_to_core(&mut event);
        assert_eq!(
            event,
            json!({
                "action": "A", "apiVersion": "v1", "eventTime": "2024-01-01T00:00:00.000000Z",
                "firstTimestamp": null, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "n"},
                "kind": "Event", "lastTimestamp": null, "message": "n",
                "metadata": {"name": "e2", "namespace": "n"}, "reason": "R",
                "reportingComponent": "example.test/c", "reportingInstance": "i", "source": {}, "type": "Warning",
            })
        );
    }

    #[test]
    fn the_new_group_asks_for_a_time_and_a_known_type() {
        let event = json!({
            "metadata": {"name": "e3", "namespace": "n"}, "reason": "R", "type": "Odd",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "n"},
        });
        let mut errors = Errors::new();
        validate_events(&event, &mut errors);
        assert_eq!(
            errors.to_string(),
            "[eventTime: Required value, type: Invalid value: \"\": has invalid value: Odd]"
        );
    }

    #[test]
    fn an_event_lives_beside_its_object() {
        let event = json!({
            "metadata": {"name": "e4", "namespace": "n"}, "reason": "x",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "elsewhere"},
        });
        let mut errors = Errors::new();
        validate_core(&event, &mut errors);
        assert_eq!(
            errors.to_string(),
            "involvedObject.namespace: Invalid value: \"elsewhere\": does not match event.namespace"
        );
    }

    #[test]
    fn only_the_series_of_a_new_event_may_change() {
        let (_, old) = both();
        let mut new = old.clone();
        set(&mut new, "note", "other");
        set(&mut new, "series", json!({"count": 2, "lastObservedTime": "t"}));
        assert_eq!(causes(|e| validate_events_update(&new, &old, e)), ["message FieldValueInvalid"]);
    }
}
