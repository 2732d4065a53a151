//! Fills in defaults, and checks the defaults a schema gives.

use serde_json::Value;

use super::prune::prune_value;
use super::{Additional, MAX_DEPTH, Schema, validate};
use crate::invalid::{Errors, Path};

/// Sets fields that are absent, or null where null is no value, to their defaults.
pub fn default(schema: &Schema, value: &mut Value) {
    fill(schema, value, 0);
}

fn fill(schema: &Schema, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, known) in &schema.properties {
                let Some(default) = &known.default else { continue };
                if members.get(&**name).is_none_or(|v| v.is_null() && !known.nullable) {
                    members.insert(name.to_string(), default.clone());
                }
            }
            for (name, value) in members.iter_mut() {
                if let Some(known) = schema.field(name) {
                    instead_of_null(known, value);
                    fill(known, value, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for item in items {
                instead_of_null(schema, item);
                fill(schema, item, depth + 1);
            }
        }
        _ => {}
    }
}

fn instead_of_null(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}

/// Removes fields that are null where null is no value: they count as absent.
pub fn drop_nulls(schema: &Schema, value: &mut Value) {
    drop_below(schema, value, 0);
}

fn drop_below(schema: &Schema, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => members.retain(|name, value| {
            let Some(known) = schema.field(name) else { return true };
            if value.is_null() && schema.properties.contains_key(name.as_str()) {
                return known.nullable || known.preserve_unknown && known.kind.is_empty();
            }
            drop_below(known, value, depth + 1);
            true
        }),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| drop_below(schema, item, depth + 1));
        }
        _ => {}
    }
}

/// Checks that the defaults of a schema obey it and hold no unknown fields. `path` is where the schema stands.
pub fn check_defaults(schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    check_below(schema, path, true, 0, errors);
}

fn check_below(schema: &Schema, path: &Path<'_>, root: bool, depth: usize, errors: &mut Errors) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(default) = &schema.default {
        let place = path.child("default");
        let mut pruned = default.clone();
        // The type and metadata of a resource are not part of its schema.
        prune_value(schema, &mut pruned, schema.embedded || root);
        if pruned != *default {
            errors.invalid(&place, default, "must not have unknown fields");
        }
        let mut found = Errors::new();
        validate(schema, default, None, &mut found);
        let base = place.to_string();
        for error in found.0 {
            let field = match error.field.as_str() {
                "" => base.clone(),
                inner if inner.starts_with('[') => format!("{base}{inner}"),
                inner => format!("{base}.{inner}"),
            };
            errors.push_at(field, error.reason, error.message);
        }
    }
    if let Some(items) = &schema.items {
        check_below(items, &path.child("items"), false, depth + 1, errors);
    }
    for (name, known) in &schema.properties {
        check_below(known, &path.child("properties").key(name), false, depth + 1, errors);
    }
    if let Additional::Values(values) = &schema.additional {
        check_below(values, &path.child("additionalProperties"), false, depth + 1, errors);
    }
}
