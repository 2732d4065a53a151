//! What keeps a schema from being structural, in the words of the real server.

use serde_json::{Value, json};

use super::{MAX_DEPTH, list, pattern, text};
use crate::invalid::{Errors, Path};

/// Where a schema stands: what it must say depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Parts that are schemas, besides properties and those in lists.
const SINGLE: [&str; 3] = ["items", "additionalProperties", "not"];
const JUNCTORS: [&str; 3] = ["allOf", "oneOf", "anyOf"];
const EMPTY: &str = "must be empty to be structural";
const UNDEFINED: &str = "must be undefined to be structural";
const FALSE: &str = "must be false to be structural";

/// Checks an `openAPIV3Schema` that stands at `path`. Nothing is added when it is structural.
pub fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if flag(schema, "nullable") {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    let before = errors.0.len();
    keywords(schema, path, 0, errors);
    // What a walk refused for its depth is not walked again.
    if errors.0[before..].iter().any(|e| e.message.ends_with(TOO_DEEP)) {
        return;
    }
    let mut found = Errors::new();
    invariants(schema, Level::Root, path, &mut found);
    if found.is_empty() {
        completeness(schema, path, &mut found);
    }
    found.0.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
    errors.0.extend(found.0);
}

const TOO_DEEP: &str = "the schema is nested too deeply";

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn has(schema: &Value, name: &str) -> bool {
    match schema.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn object<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get(name).filter(|v| v.is_object())
}

/// Keywords that are not served, contradict each other or miss something, anywhere in the schema.
fn keywords(schema: &Value, path: &Path<'_>, depth: usize, errors: &mut Errors) {
    if depth > MAX_DEPTH {
        errors.invalid_str(path, "", TOO_DEEP);
        return;
    }
    unsupported(schema, path, errors);
    if flag(schema, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), why);
    }
    let additional =
        schema.get("additionalProperties").filter(|v| v.is_object() || **v == Value::Bool(false));
    if additional.is_some() && properties(schema).next().is_some() {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.forbidden(&path.child("additionalProperties"), why);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let place = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&place, &json!(false), "must be true or undefined");
    }
    list_type(schema, path, errors);
    map_type(schema, path, errors);
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        if text(rule, "rule").trim().is_empty() {
            let place = path.child("x-kubernetes-validations");
            errors.required(&place.index(index).child("rule"), "rule is not specified");
        }
    }
    for name in SINGLE {
        if let Some(inner) = object(schema, name) {
            keywords(inner, &path.child(name), depth + 1, errors);
        }
    }
    for (name, inner) in properties(schema) {
        keywords(inner, &path.child("properties").key(name), depth + 1, errors);
    }
    for name in JUNCTORS {
        for (index, inner) in list(schema, name).iter().enumerate() {
            keywords(inner, &path.child(name).index(index), depth + 1, errors);
        }
    }
}

fn unsupported(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if has(schema, name) {
            errors.forbidden(&path.child(name), &format!("{name} is not supported"));
        }
    }
    match text(schema, "type") {
        "null" => {
            let why = "type cannot be set to null, use nullable as an alternative";
            errors.forbidden(&path.child("type"), why);
        }
        kind if !kind.is_empty() && !TYPES.contains(&kind) => {
            errors.not_supported(&path.child("type"), kind, &TYPES);
        }
        _ => {}
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
}

fn list_type(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (kind, list_type) = (text(schema, "type"), text(schema, "x-kubernetes-list-type"));
    let place = path.child("x-kubernetes-list-type");
    let keys = list(schema, "x-kubernetes-list-map-keys");
    if !list_type.is_empty() {
        wrong_type(kind, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
        if !["atomic", "set", "map"].contains(&list_type) {
            errors.not_supported(&place, list_type, &["atomic", "map", "set"]);
        }
    }
    if !keys.is_empty() && list_type != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list_type.is_empty() {
            errors.required(&place, why);
        } else {
            errors.invalid_str(&place, list_type, why);
        }
    }
    match list_type {
        "map" => map_list(schema, keys, path, errors),
        "set" => set_list(schema, path, errors),
        _ => {}
    }
}

fn wrong_type(kind: &str, wanted: &str, why: &str, path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("type");
    match kind {
        "" => errors.required(&place, why),
        kind if kind != wanted => errors.invalid_str(&place, kind, why),
        _ => {}
    }
}

fn map_list(schema: &Value, keys: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(&place, "must not be empty if x-kubernetes-list-type is map");
    }
    let items_path = path.child("items");
    let Some(items) = object(schema, "items") else {
        errors.required(&items_path, "must have a schema if x-kubernetes-list-type is map");
        return;
    };
    let why = "must be object if parent array's x-kubernetes-list-type is map";
    wrong_type(text(items, "type"), "object", why, &items_path, errors);
    let mut seen: Vec<&str> = Vec::new();
    for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
        if seen.contains(&key) {
            errors.duplicate(&place.index(index), &json!(key));
            continue;
        }
        seen.push(key);
        let properties_path = items_path.child("properties");
        let key_path = properties_path.key(key);
        let Some(property) = items.get("properties").and_then(|p| p.get(key)) else {
            errors.invalid(&place.index(index), &json!(key), "entries must all be names of item properties");
            continue;
        };
        let kind = text(property, "type");
        if matches!(kind, "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.invalid_str(&key_path.child("type"), kind, why);
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&key_path.child("nullable"), why);
        }
        if !list(items, "required").iter().any(|r| r == key) && !has(property, "default") {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&key_path.child("default"), why);
        }
    }
}

fn set_list(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let items_path = path.child("items");
    let Some(items) = object(schema, "items") else { return };
    if flag(items, "nullable") {
        let why = "cannot be nullable when x-kubernetes-list-type is set";
        errors.forbidden(&items_path.child("nullable"), why);
    }
    let (name, why) = match text(items, "type") {
        "object" => {
            ("x-kubernetes-map-type", "must be atomic as item of a list with x-kubernetes-list-type=set")
        }
        "array" => {
            ("x-kubernetes-list-type", "must be atomic as item of a list with x-kubernetes-list-type=set")
        }
        _ => return,
    };
    match text(items, name) {
        "atomic" => {}
        "" if name == "x-kubernetes-list-type" => {}
        "" => errors.required(&items_path.child(name), why),
        given => errors.invalid_str(&items_path.child(name), given, why),
    }
}

fn map_type(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let map_type = text(schema, "x-kubernetes-map-type");
    if map_type.is_empty() {
        return;
    }
    let why = "must be object if x-kubernetes-map-type is specified";
    wrong_type(text(schema, "type"), "object", why, path, errors);
    if !["atomic", "granular"].contains(&map_type) {
        errors.not_supported(&path.child("x-kubernetes-map-type"), map_type, &["atomic", "granular"]);
    }
}

/// What every schema outside of `allOf` and its like must be.
fn invariants(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    match object(schema, "items") {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if kind == "array" => errors.required(&path.child("items"), "must be specified"),
        None => {}
    }
    for (name, property) in properties(schema) {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    let additional_path = path.child("additionalProperties");
    if has(schema, "additionalProperties") {
        if level == Level::Root {
            errors.forbidden(&additional_path, "must not be used at the root");
        }
        if embedded {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            errors.forbidden(&additional_path, why);
        }
        if let Some(values) = object(schema, "additionalProperties") {
            invariants(values, Level::Field, &additional_path, errors);
        }
    }
    for (name, set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.invalid(&path.child(name), &json!(true), why);
        }
    }
    value_validation(schema, is_int_or_string(schema), first_is_int_or_string(schema), path, errors);
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        wrong_type(kind, "object", why, path, errors);
    } else if kind.is_empty() && !int_or_string && !preserves {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&path.child("type"), why);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid_str(&path.child("type"), kind, "must be object at the root");
    }
    resource_fields(schema, level, embedded, path, errors);
    if embedded && !preserves && properties(schema).next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), why);
    }
}

/// apiVersion, kind and metadata may be mentioned, but hardly restricted.
fn resource_fields(schema: &Value, level: Level, embedded: bool, path: &Path<'_>, errors: &mut Errors) {
    let all = path.child("properties");
    let known = |name: &str| schema.get("properties").and_then(|p| p.get(name));
    let resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = known(name).filter(|p| resource && text(p, "type") != "string") {
            let place = all.key(name);
            errors.invalid_str(&place.child("type"), text(property, "type"), "must be string");
        }
    }
    let Some(metadata) = known("metadata") else { return };
    let place = all.key("metadata");
    if resource && text(metadata, "type") != "object" {
        errors.invalid_str(&place.child("type"), text(metadata, "type"), "must be object");
    }
    if level != Level::Root {
        return;
    }
    let harmless = |(name, value): (&String, &Value)| match name.as_str() {
        "type" | "default" | "description" => true,
        "properties" => properties(metadata).all(|(name, _)| name == "name" || name == "generateName"),
        _ => *value == Value::Bool(false),
    };
    if !metadata.as_object().is_some_and(|m| m.iter().all(harmless)) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&place, why);
    }
}

/// `anyOf` of exactly integer and string.
fn is_int_or_string(schema: &Value) -> bool {
    schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn first_is_int_or_string(schema: &Value) -> bool {
    list(schema, "allOf").first().is_some_and(is_int_or_string)
}

fn value_validation(schema: &Value, skip_any: bool, skip_first: bool, path: &Path<'_>, errors: &mut Errors) {
    for name in JUNCTORS {
        if name == "anyOf" && skip_any {
            continue;
        }
        for (index, inner) in list(schema, name).iter().enumerate() {
            let skip = name == "allOf" && skip_first && index == 0;
            nested(inner, skip, &path.child(name).index(index), errors);
        }
    }
    if let Some(not) = object(schema, "not") {
        nested(not, false, &path.child("not"), errors);
    }
    let expression = text(schema, "pattern");
    if !expression.is_empty()
        && let Err(why) = pattern::compile(expression)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid_str(&path.child("pattern"), expression, &why);
    }
}

/// What may not stand below `allOf` and its like.
fn nested(schema: &Value, skip_any: bool, path: &Path<'_>, errors: &mut Errors) {
    value_validation(schema, skip_any, false, path, errors);
    if let Some(items) = object(schema, "items") {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        let all = path.child("properties");
        let place = all.key(name);
        if name == "metadata" {
            errors.forbidden(&place, "must not be specified in a nested context");
        }
        nested(property, false, &place, errors);
    }
    for (name, why) in [
        ("type", EMPTY),
        ("additionalProperties", UNDEFINED),
        ("default", UNDEFINED),
        ("title", EMPTY),
        ("description", EMPTY),
        ("nullable", FALSE),
        ("externalDocs", UNDEFINED),
        ("x-kubernetes-preserve-unknown-fields", FALSE),
        ("x-kubernetes-embedded-resource", FALSE),
        ("x-kubernetes-int-or-string", FALSE),
        ("x-kubernetes-list-map-keys", EMPTY),
        ("x-kubernetes-list-type", UNDEFINED),
        ("x-kubernetes-map-type", UNDEFINED),
        ("x-kubernetes-validations", EMPTY),
    ] {
        if has(schema, name) {
            errors.forbidden(&path.child(name), why);
        }
    }
}

/// Every field named below `allOf` and its like is also described outside of it.
fn completeness(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    junctor_parts(schema, schema, path, path, errors);
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = object(schema, name) {
            completeness(inner, &path.child(name), errors);
        }
    }
    for (name, property) in properties(schema) {
        completeness(property, &path.child("properties").key(name), errors);
    }
}

/// The parts below `allOf` and its like of `nested`, against the schema that describes the same value.
fn junctor_parts(nested: &Value, schema: &Value, at: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    for name in JUNCTORS {
        for (index, inner) in list(nested, name).iter().enumerate() {
            part(inner, schema, at, &path.child(name).index(index), errors);
        }
    }
    if let Some(not) = object(nested, "not") {
        part(not, schema, at, &path.child("not"), errors);
    }
}

fn part(nested: &Value, schema: &Value, at: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    junctor_parts(nested, schema, at, path, errors);
    if let Some(items) = object(nested, "items") {
        let (at, path) = (at.child("items"), path.child("items"));
        match object(schema, "items") {
            Some(described) => part(items, described, &at, &path, errors),
            None => errors.required(&at, &format!("because it is defined in {path}")),
        }
    }
    for (name, property) in properties(nested) {
        let (all_at, all_path) = (at.child("properties"), path.child("properties"));
        let (at, path) = (all_at.key(name), all_path.key(name));
        match schema.get("properties").and_then(|p| p.get(name)) {
            Some(described) => part(property, described, &at, &path, errors),
            None => errors.required(&at, &format!("because it is defined in {path}")),
        }
    }
}
