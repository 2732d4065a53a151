//! Structural schemas: what a CustomResourceDefinition says about its objects, and what follows from it.
//!
//! [`check`] tells what keeps an `openAPIV3Schema` from being structural, [`Schema::parse`] reads one that is, and the
//! objects of a custom kind then go through [`prune`], [`default`] and [`validate`], in this order. [`to_types`] gives the
//! same schema as a type table, so that server-side apply treats a custom kind like a built-in one.

mod check;
mod defaults;
mod formats;
mod metadata;
mod pattern;
mod prune;
#[cfg(test)]
mod tests;
mod types;
mod validate;

use std::collections::BTreeMap;

use serde_json::Value;

pub use check::check;
pub use defaults::{check_defaults, default, drop_nulls};
pub use metadata::validate_embedded;
pub use pattern::{Pattern, check as check_pattern, compile_within};
pub use prune::{prune, prune_noting};
pub use types::to_types;
pub use validate::{validate, validate_list_types};

/// Nothing useful is nested deeper; every walk over a schema stops here.
pub const MAX_DEPTH: usize = 120;

/// A schema, or a part of one below `allOf` and its like.
#[derive(Debug, Default)]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty.
    pub kind: Box<str>,
    /// null is a value.
    pub nullable: bool,
    /// What an absent field becomes.
    pub default: Option<Value>,
    /// Known fields.
    pub properties: BTreeMap<Box<str>, Schema>,
    /// Values of fields that are not known by name.
    pub additional: Additional,
    /// Items of a list.
    pub items: Option<Box<Schema>>,
    /// Fields that must be there.
    pub required: Vec<Box<str>>,
    /// Unknown fields stay.
    pub preserve_unknown: bool,
    /// An object with apiVersion, kind and metadata of its own.
    pub embedded: bool,
    /// A number or a text.
    pub int_or_string: bool,
    /// `atomic`, `set`, `map`, or empty.
    pub list_type: Box<str>,
    /// Fields that identify an item of a `map` list.
    pub list_map_keys: Vec<Box<str>>,
    /// The object is one value under apply.
    pub atomic_map: bool,
    /// `x-kubernetes-validations`, as written.
    pub rules: Vec<Value>,
    /// What values must be like.
    pub limits: Limits,
    /// All of these hold.
    pub all_of: Vec<Schema>,
    /// One of these holds at least.
    pub any_of: Vec<Schema>,
    /// Exactly one of these holds.
    pub one_of: Vec<Schema>,
    /// This does not hold.
    pub not: Option<Box<Schema>>,
}

/// What `additionalProperties` says.
#[derive(Debug, Default)]
pub enum Additional {
    /// Nothing.
    #[default]
    Unsaid,
    /// `true`: any value.
    Any,
    /// `false`: no others.
    Refused,
    /// Values of this kind.
    Values(Box<Schema>),
}

/// Limits of values.
#[derive(Debug, Default)]
pub struct Limits {
    /// `format`
    pub format: Box<str>,
    /// `enum`
    pub one_of: Vec<Value>,
    /// `minimum`, and whether it is excluded.
    pub minimum: Option<(f64, bool)>,
    /// `maximum`, and whether it is excluded.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minLength`
    pub min_length: Option<usize>,
    /// `maxLength`
    pub max_length: Option<usize>,
    /// `pattern`
    pub pattern: Option<Pattern>,
    /// `minItems`
    pub min_items: Option<usize>,
    /// `maxItems`
    pub max_items: Option<usize>,
    /// `minProperties`
    pub min_properties: Option<usize>,
    /// `maxProperties`
    pub max_properties: Option<usize>,
    /// `uniqueItems`
    pub unique_items: bool,
}

impl Schema {
    /// Reads an `openAPIV3Schema`. What [`check`] refuses is read as far as it makes sense.
    pub fn parse(schema: &Value) -> Schema {
        parse(schema, 0)
    }

    /// The schema of a field: known by name, or of any other name.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Values(values) => Some(values),
            _ => None,
        })
    }

    /// Whether any part of the schema has a default.
    pub fn has_defaults(&self) -> bool {
        self.default.is_some()
            || self.properties.values().any(Schema::has_defaults)
            || self.items.as_deref().is_some_and(Schema::has_defaults)
            || matches!(&self.additional, Additional::Values(values) if values.has_defaults())
    }
}

fn parse(schema: &Value, depth: usize) -> Schema {
    if depth > MAX_DEPTH {
        return Schema { preserve_unknown: true, ..Schema::default() };
    }
    let below = |value: &Value| parse(value, depth + 1);
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let texts = |name: &str| -> Vec<Box<str>> {
        list(schema, name).iter().filter_map(Value::as_str).map(Box::from).collect()
    };
    let many = |name: &str| -> Vec<Schema> { list(schema, name).iter().map(below).collect() };
    let boxed = |name: &str| schema.get(name).filter(|v| v.is_object()).map(|v| Box::new(below(v)));
    let properties = schema.get("properties").and_then(Value::as_object);
    Schema {
        kind: text(schema, "type").into(),
        nullable: flag("nullable"),
        default: schema.get("default").filter(|v| !v.is_null()).cloned(),
        properties: properties.into_iter().flatten().map(|(k, v)| (k.as_str().into(), below(v))).collect(),
        additional: match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::Refused,
            Some(values @ Value::Object(_)) => Additional::Values(Box::new(below(values))),
            _ => Additional::Unsaid,
        },
        items: boxed("items"),
        required: texts("required"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        list_type: text(schema, "x-kubernetes-list-type").into(),
        list_map_keys: texts("x-kubernetes-list-map-keys"),
        atomic_map: text(schema, "x-kubernetes-map-type") == "atomic",
        rules: list(schema, "x-kubernetes-validations").to_vec(),
        limits: limits(schema),
        all_of: many("allOf"),
        any_of: many("anyOf"),
        one_of: many("oneOf"),
        not: boxed("not"),
    }
}

fn limits(schema: &Value) -> Limits {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let count = |name: &str| number(name).map(|n| n.max(0.0) as usize);
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let pattern = text(schema, "pattern");
    Limits {
        format: text(schema, "format").into(),
        one_of: list(schema, "enum").to_vec(),
        minimum: number("minimum").map(|n| (n, flag("exclusiveMinimum"))),
        maximum: number("maximum").map(|n| (n, flag("exclusiveMaximum"))),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: (!pattern.is_empty()).then(|| Pattern::new(pattern)),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        unique_items: flag("uniqueItems"),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
