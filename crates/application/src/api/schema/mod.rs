//! The schema of the kind: descriptions for `kubectl explain`, defaults, bounds. The rules are those of [`rules`].
//!
//! Everything that a rule looks at is bounded, because the cost of rules is estimated from the bounds.

mod basics;
mod execution;
mod parts;
mod placement;
mod rollout;
mod status;

use serde_json::{Value, json};

use super::rules;

/// The whole schema.
pub(super) fn schema() -> Value {
    let mut root = object(
        "A program that runs in the cluster, with everything around it: pods, service, scaling, storage.",
        &["spec"],
        vec![("spec", spec()), ("status", status::status())],
    );
    root["properties"]["metadata"] = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 63}},
    });
    at("", root)
}

fn spec() -> Value {
    let fields =
        [basics::basics(), execution::execution(), rollout::rollout(), placement::placement()].concat();
    at("spec", object("What is wanted.", &["image"], fields))
}

/// The schema with the rules of that place.
fn at(place: &str, mut schema: Value) -> Value {
    let rules: Vec<Value> = rules::RULES
        .iter()
        .filter(|rule| rule.at == place)
        .map(|rule| json!({"rule": rule.cel, "message": rule.message}))
        .collect();
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = Value::Array(rules);
    }
    schema
}

fn object(about: &str, required: &[&str], fields: Vec<(&str, Value)>) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    let mut schema = json!({"type": "object", "description": about, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// An object that Kubernetes describes elsewhere.
fn open(about: &str) -> Value {
    json!({"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true})
}

#[allow(clippy::needless_pass_by_value, reason = "made where it is used")]
fn list(about: &str, most: u32, item: Value) -> Value {
    json!({"type": "array", "description": about, "maxItems": most, "items": item, "x-kubernetes-list-type": "atomic"})
}

fn map_list(about: &str, keys: &[&str], most: u32, item: Value) -> Value {
    let mut schema = list(about, most, item);
    schema["x-kubernetes-list-type"] = json!("map");
    schema["x-kubernetes-list-map-keys"] = json!(keys);
    schema
}

fn text(about: &str, longest: u32) -> Value {
    json!({"type": "string", "description": about, "maxLength": longest})
}

fn pattern(mut schema: Value, pattern: &str) -> Value {
    schema["pattern"] = json!(pattern);
    schema["minLength"] = json!(1);
    schema
}

fn choice(about: &str, values: &[&str]) -> Value {
    json!({"type": "string", "description": about, "enum": values})
}

fn flag(about: &str) -> Value {
    json!({"type": "boolean", "description": about})
}

fn integer(about: &str, least: i32, most: i32) -> Value {
    json!({"type": "integer", "format": "int32", "description": about, "minimum": least, "maximum": most})
}

fn port(about: &str) -> Value {
    integer(about, 1, 65_535)
}

fn default(mut schema: Value, value: Value) -> Value {
    schema["default"] = value;
    schema
}

fn number_or_text(about: &str) -> Value {
    json!({"description": about, "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
}

fn number_or_percent(about: &str) -> Value {
    let mut schema = number_or_text(&format!("{about} A number, or a part of all such as 25%."));
    schema["pattern"] = json!("^[0-9]+%?$");
    schema["maxLength"] = json!(10);
    schema
}

fn quantity(about: &str) -> Value {
    let mut schema = number_or_text(about);
    schema["pattern"] =
        json!(r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$");
    schema["maxLength"] = json!(32);
    schema
}

fn quantities(about: &str) -> Value {
    let value = quantity("An amount.");
    json!({"type": "object", "description": about, "maxProperties": 16, "additionalProperties": value})
}

fn texts_by_name(about: &str) -> Value {
    let value = json!({"type": "string", "maxLength": 4096});
    json!({"type": "object", "description": about, "maxProperties": 64, "additionalProperties": value})
}
