//! ConfigMap.

use shoal_objects::{Errors, Path, Value, names};

use super::Rules;
use super::access::{bool_at, entries_at, object_at};
use super::checks;

/// The rules of ConfigMap.
pub const RULES: Rules = Rules { validate, validate_update, ..Rules::NONE };

/// What `data` and `binaryData` of a ConfigMap, or `data` of a Secret, may hold together.
pub const MAX_DATA_BYTES: usize = 1024 * 1024;

pub(super) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

fn validate(config_map: &Value, errors: &mut Errors) {
    let (data, binary_data) = (Path::new("data"), Path::new("binaryData"));
    let mut size = 0;
    for (key, value) in entries_at(config_map, "data") {
        checks::text(errors, &data.key(key), key, names::config_map_key(key));
        if object_at(config_map, "binaryData").is_some_and(|binary| binary.contains_key(key)) {
            errors.invalid_str(&data.key(key), key, "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries_at(config_map, "binaryData") {
        checks::text(errors, &binary_data.key(key), key, names::config_map_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA_BYTES {
        errors.too_long(&Path::new(""), MAX_DATA_BYTES);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    if !bool_at(old, "immutable") {
        return;
    }
    if !bool_at(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), IMMUTABLE);
    }
    for field in ["data", "binaryData"] {
        if !same_map(new, old, field) {
            errors.forbidden(&Path::new(field), IMMUTABLE);
        }
    }
}

/// Whether a map holds the same in both; an empty one is as good as none.
pub(super) fn same_map(new: &Value, old: &Value, name: &str) -> bool {
    entries_at(new, name).eq(entries_at(old, name))
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_checked_and_may_not_occur_twice() {
        let bad = json!({"data": {"bad/key": "v", "..": "x"}});
        assert_eq!(
            causes(|e| validate(&bad, e)),
            ["data[..] FieldValueInvalid", "data[bad/key] FieldValueInvalid"]
        );
        let twice = json!({"data": {"k": "v"}, "binaryData": {"k": "AA=="}});
        let mut errors = Errors::new();
        validate(&twice, &mut errors);
        assert_eq!(
            errors.to_string(),
            "data[k]: Invalid value: \"k\": duplicate of key present in binaryData"
        );
    }

    #[test]
    fn more_than_a_mebibyte_is_too_long() {
        let big = json!({"data": {"k": "x".repeat(MAX_DATA_BYTES + 1)}});
        assert_eq!(causes(|e| validate(&big, e)), [" FieldValueTooLong"]);
        let fits = json!({"data": {"k": "x".repeat(MAX_DATA_BYTES)}});
        assert!(causes(|e| validate(&fits, e)).is_empty());
    }

    #[test]
    fn an_immutable_one_stays_as_it_is() {
        let old = json!({"immutable": true, "data": {"k": "v"}});
        let changed = json!({"immutable": true, "data": {"k": "w"}});
        assert_eq!(causes(|e| validate_update(&changed, &old, e)), ["data FieldValueForbidden"]);
        let thawed = json!({"immutable": false, "data": {"k": "v"}});
        assert_eq!(causes(|e| validate_update(&thawed, &old, e)), ["immutable FieldValueForbidden"]);
        let labelled = json!({"metadata": {"labels": {"a": "b"}}, "immutable": true, "data": {"k": "v"}});
        assert!(causes(|e| validate_update(&labelled, &old, e)).is_empty());
    }
}
