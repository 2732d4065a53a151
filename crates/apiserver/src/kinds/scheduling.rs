//! PriorityClass and RuntimeClass: how pods are preferred and run.

use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{existing_mut, field, int_at, list_at, object_at, set_default, str_at};
use super::pod::validate_tolerations;
use super::resource_lists::{amounts, round_up, validate_amount, validate_container_name};
use super::seen::Seen;
use super::{Rules, checks};

/// The rules of PriorityClass.
pub const PRIORITY_RULES: Rules = Rules {
    default: |class| set_default(class, "preemptionPolicy", "PreemptLowerPriority"),
    validate: validate_priority,
    validate_update: validate_priority_update,
    ..Rules::NONE
};

/// The rules of RuntimeClass.
pub const RUNTIME_RULES: Rules = Rules {
    default: default_runtime,
    validate: validate_runtime,
    validate_update: |new, old, errors| {
        if str_at(new, "handler") != str_at(old, "handler") {
            errors.invalid_str(&Path::new("handler"), str_at(new, "handler"), checks::IMMUTABLE);
        }
    },
    ..Rules::NONE
};

/// The highest priority a user may define.
pub const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// The classes the server brings along: name and value.
pub const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn validate_priority(class: &Value, errors: &mut Errors) {
    let (name, value) = (meta::name(class), int_at(class, "value").unwrap_or_default());
    if name.starts_with("system-") {
        if !SYSTEM_PRIORITIES.contains(&(name, value)) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not \
                 a known system priority class"
            );
            errors.forbidden(&Path::new("metadata").child("name"), &detail);
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.forbidden(&Path::new("value"), &detail);
    }
    if let Some(policy) = field(class, "preemptionPolicy").and_then(Value::as_str) {
        let policies = ["Never", "PreemptLowerPriority"];
        checks::supported_text(policy, &policies, &Path::new("preemptionPolicy"), errors);
    }
}

fn validate_priority_update(new: &Value, old: &Value, errors: &mut Errors) {
    if int_at(new, "value") != int_at(old, "value") {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    if field(new, "preemptionPolicy") != field(old, "preemptionPolicy") {
        let policy = str_at(new, "preemptionPolicy");
        errors.invalid_str(&Path::new("preemptionPolicy"), policy, checks::IMMUTABLE);
    }
}

fn default_runtime(class: &mut Value) {
    if let Some(overhead) = existing_mut(class, "overhead") {
        round_up(overhead, "podFixed");
    }
}

fn validate_runtime(class: &Value, errors: &mut Errors) {
    let handler = str_at(class, "handler");
    checks::text(errors, &Path::new("handler"), handler, names::dns1123_label(handler));
    if let Some(overhead) = field(class, "overhead") {
        let path = Path::new("overhead");
        let list = path.child("podFixed");
        for (name, amount) in amounts(overhead, "podFixed") {
            validate_container_name(name, &list.key(name), errors);
            validate_amount(name, &amount, &list.key(name), errors);
        }
    }
    if let Some(scheduling) = field(class, "scheduling") {
        let path = Path::new("scheduling");
        if let Some(selector) = object_at(scheduling, "nodeSelector") {
            meta::validate_labels(selector, &path.child("nodeSelector"), errors);
        }
        let tolerations = list_at(scheduling, "tolerations");
        let list = path.child("tolerations");
        validate_tolerations(tolerations, &list, errors);
        let mut seen = Seen::default();
        for (i, toleration) in tolerations.iter().enumerate() {
            if seen.again(toleration.to_string()) {
                errors.duplicate(&list.index(i), toleration);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn priorities_of_users_have_a_ceiling() {
        let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
        assert!(causes(|e| validate_priority(&class("a", 5), e)).is_empty());
        assert!(causes(|e| validate_priority(&class("system-node-critical", 2_000_001_000), e)).is_empty());
        assert_eq!(
            causes(|e| validate_priority(&class("a", 1_000_000_001), e)),
            ["value FieldValueForbidden"]
        );
        assert_eq!(
            causes(|e| validate_priority(&class("system-mine", 1), e)),
            ["metadata.name FieldValueForbidden"]
        );
        assert_eq!(
            causes(|e| validate_priority_update(&class("a", 1), &class("a", 2), e)),
            ["value FieldValueForbidden"]
        );
    }

    #[test]
    fn a_runtime_has_a_handler() {
        assert_eq!(
            causes(|e| validate_runtime(&json!({"handler": "Bad_"}), e)),
            ["handler FieldValueInvalid"]
        );
    }
}
