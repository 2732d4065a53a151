//! FlowSchema and PriorityLevelConfiguration.

use shoal_objects::{Errors, Path, Value};

use super::access::{child_mut, existing_mut, field, int_at, is_set, set, set_default, str_at};
use super::{Rules, checks};

/// The rules of FlowSchema.
pub const SCHEMA_RULES: Rules = Rules { default: default_schema, validate: validate_schema, ..Rules::NONE };

/// The rules of PriorityLevelConfiguration.
pub const LEVEL_RULES: Rules = Rules { default: default_level, validate: validate_level, ..Rules::NONE };

fn default_schema(schema: &mut Value) {
    if let Some(spec) = child_mut(schema, "spec")
        && !is_set(spec, "matchingPrecedence")
    {
        set(spec, "matchingPrecedence", 1000);
    }
}

fn validate_schema(schema: &Value, errors: &mut Errors) {
    let spec = field(schema, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    let precedence = int_at(spec, "matchingPrecedence").unwrap_or_default();
    if precedence <= 0 || precedence > 10000 {
        let detail = "must be a positive value and less than or equal to 10000";
        errors.invalid(&path.child("matchingPrecedence"), &precedence.into(), detail);
    }
    if let Some(method) = field(spec, "distinguisherMethod") {
        let path = path.child("distinguisherMethod");
        checks::one_of(method, "type", &["ByNamespace", "ByUser"], &path, errors);
    }
    let level = field(spec, "priorityLevelConfiguration").unwrap_or(&Value::Null);
    checks::required(level, "name", &path.child("priorityLevelConfiguration"), errors);
}

fn default_level(level: &mut Value) {
    let Some(spec) = child_mut(level, "spec") else { return };
    if let Some(exempt) = existing_mut(spec, "exempt") {
        set_default(exempt, "nominalConcurrencyShares", 0);
        set_default(exempt, "lendablePercent", 0);
    }
    let Some(limited) = existing_mut(spec, "limited") else { return };
    set_default(limited, "nominalConcurrencyShares", 30);
    set_default(limited, "lendablePercent", 0);
    if let Some(queuing) = existing_mut(limited, "limitResponse").and_then(|r| existing_mut(r, "queuing")) {
        for (name, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if !is_set(queuing, name) {
                set(queuing, name, value);
            }
        }
    }
}

fn validate_level(level: &Value, errors: &mut Errors) {
    let spec = field(level, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    match str_at(spec, "type") {
        "Limited" => {
            if field(spec, "limited").is_none() {
                let detail = "must not be empty when type is Limited";
                errors.required(&path.child("limited"), detail);
            }
            if field(spec, "exempt").is_some() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
        }
        "Exempt" => {
            if field(spec, "limited").is_some() {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
        }
        other => errors.not_supported(&path.child("type"), other, &["Exempt", "Limited"]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn levels_and_schemas_are_filled_up() {
        let mut level = json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}});
        default_level(&mut level);
        assert_eq!(
            level["spec"]["limited"],
            json!({
                "nominalConcurrencyShares": 30, "lendablePercent": 0,
                "limitResponse": {"type": "Queue", "queuing": {"handSize": 8, "queues": 64, "queueLengthLimit": 50}},
            })
        );
        assert!(causes(|e| validate_level(&level, e)).is_empty());
        let mut schema = json!({"spec": {"priorityLevelConfiguration": {"name": "x"}}});
        default_schema(&mut schema);
        assert_eq!(schema["spec"]["matchingPrecedence"], 1000);
        assert!(causes(|e| validate_schema(&schema, e)).is_empty());
    }
}
