//! Checks that many kinds share, in the words of Kubernetes.

use serde_json::json;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{field, int_at, str_at};

/// The message for a number that must not be negative.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// The message for a field that cannot change.
pub const IMMUTABLE: &str = "field is immutable";

/// Adds one `Invalid value` per message of a name check.
pub fn text(errors: &mut Errors, path: &Path<'_>, value: &str, messages: Vec<String>) {
    for message in messages {
        errors.invalid_str(path, value, &message);
    }
}

/// Adds one `Invalid value` per message of a check of a number.
pub fn number(errors: &mut Errors, path: &Path<'_>, value: i64, messages: Vec<String>) {
    for message in messages {
        errors.invalid(path, &json!(value), &message);
    }
}

/// A text that must be given and, if given, pass `check`.
pub fn required_text(
    v: &Value,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
    check: fn(&str) -> Vec<String>,
) {
    match str_at(v, name) {
        "" => errors.required(&path.child(name), ""),
        given => text(errors, &path.child(name), given, check(given)),
    }
}

/// A text that must be given.
pub fn required(v: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    required_text(v, name, path, errors, |_| Vec::new());
}

/// A text that may be left out but must pass `check` when given.
pub fn optional_text(
    v: &Value,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
    check: fn(&str) -> Vec<String>,
) {
    let given = str_at(v, name);
    if !given.is_empty() {
        text(errors, &path.child(name), given, check(given));
    }
}

/// A number that, when given, must not be negative.
pub fn not_negative(v: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int_at(v, name).filter(|n| *n < 0) {
        errors.invalid(&path.child(name), &json!(n), NOT_NEGATIVE);
    }
}

/// A number that, when given, must lie between two others.
pub fn between(v: &Value, name: &str, min: i64, max: i64, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int_at(v, name) {
        number(errors, &path.child(name), n, names::in_range(n, min, max));
    }
}

/// A text of a closed set that must be given.
pub fn one_of(v: &Value, name: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match str_at(v, name) {
        "" => errors.required(&path.child(name), ""),
        given => supported_text(given, supported, &path.child(name), errors),
    }
}

/// A text of a closed set that may be left out.
pub fn optional_one_of(v: &Value, name: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(given) = field(v, name).and_then(Value::as_str) {
        supported_text(given, supported, &path.child(name), errors);
    }
}

/// A text of a closed set.
pub fn supported_text(given: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if !supported.contains(&given) {
        errors.not_supported(path, given, supported);
    }
}

/// The field is in `new` what it is in `old`.
pub fn immutable(new: &Value, old: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if field(new, name) != field(old, name) {
        errors.invalid(&path.child(name), new.get(name).unwrap_or(&Value::Null), IMMUTABLE);
    }
}

/// A counter of the status never falls.
pub fn not_decremented(new: &Value, old: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let now = int_at(new, name).unwrap_or(0);
    if int_at(old, name).is_some_and(|before| now < before) {
        errors.invalid(&path.child(name), &json!(now), "cannot be decremented");
    }
}

/// A relative path without `..`.
pub fn local_descending_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.starts_with('/') {
        errors.invalid_str(path, value, "must be a relative path");
    }
    no_backsteps(value, path, errors);
}

/// No part of the path is `..`.
pub fn no_backsteps(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.split('/').any(|part| part == "..") {
        errors.invalid_str(path, value, "must not contain '..'");
    }
}

/// A whole number or a percentage.
pub fn int_or_percent(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    match v {
        Value::String(s) => text(errors, path, s, names::percent(s)),
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => errors.invalid(path, v, NOT_NEGATIVE),
        _ => {}
    }
}

/// Percentages above 100 are refused.
pub fn not_more_than_100_percent(v: &Value, path: &Path<'_>, errors: &mut Errors) {
    if percent_of(v).is_some_and(|p| p > 100) {
        errors.invalid(path, v, "must not be greater than 100%");
    }
}

/// The number before the `%`.
pub fn percent_of(v: &Value) -> Option<i64> {
    let s = v.as_str()?;
    if !names::percent(s).is_empty() {
        return None;
    }
    Some(s.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

/// What an int-or-percentage amounts to when only zero or not matters.
pub fn int_or_percent_number(v: &Value) -> i64 {
    v.as_i64().or_else(|| percent_of(v)).unwrap_or(0)
}
