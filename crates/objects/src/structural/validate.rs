//! Checks values against a schema, in the words of the OpenAPI validator of the real server.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{Additional, Limits, MAX_DEPTH, Schema, formats};
use crate::invalid::{Errors, Path, Reason};

/// More complaints help nobody.
const MAX_ERRORS: usize = 1_000;

/// Where a value stands, as text made when needed.
type Place<'a> = Option<&'a Path<'a>>;

/// Checks an object. Parts that are what they were in `old` are not complained about: they were stored under an
/// older schema, and the change at hand is not to blame.
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    value(schema, object, old, None, 0, errors);
}

fn text(place: Place<'_>) -> String {
    place.map(ToString::to_string).unwrap_or_default()
}

fn value(schema: &Schema, v: &Value, old: Option<&Value>, at: Place<'_>, depth: usize, errors: &mut Errors) {
    if depth > MAX_DEPTH || errors.0.len() > MAX_ERRORS || old.is_some_and(|old| old == v) {
        return;
    }
    kind(schema, v, at, errors);
    if !schema.limits.one_of.is_empty() && !schema.limits.one_of.iter().any(|one| same(one, v)) {
        not_supported(&schema.limits.one_of, v, at, errors);
    }
    if v.is_null() {
        return;
    }
    junctors(schema, v, at, depth, errors);
    match v {
        Value::String(s) => string(&schema.limits, s, at, errors),
        Value::Number(_) => number(&schema.limits, v, at, errors),
        Value::Array(items) => list(schema, items, old, at, depth, errors),
        Value::Object(members) => object(schema, members, old, at, depth, errors),
        _ => {}
    }
}

fn kind_of(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn kind(schema: &Schema, v: &Value, at: Place<'_>, errors: &mut Errors) {
    let found = kind_of(v);
    let wanted = &*schema.kind;
    let fits = match wanted {
        _ if v.is_null() => schema.nullable || (wanted.is_empty() && !schema.int_or_string),
        "" if schema.int_or_string => matches!(found, "integer" | "string") || whole(v),
        "" => true,
        "number" => v.is_number(),
        "integer" => found == "integer" || whole(v),
        wanted => wanted == found,
    };
    if !fits {
        let wanted = if schema.int_or_string { "integer,string" } else { wanted };
        let place = text(at);
        let message =
            format!("Invalid value: \"{found}\": {place} in body must be of type {wanted}: \"{found}\"");
        errors.push_at(place, Reason::TypeInvalid, message);
    }
}

fn whole(v: &Value) -> bool {
    v.as_f64().is_some_and(|n| n.fract() == 0.0)
}

/// Equal, whether a number is written with a fraction of zero or not.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

fn not_supported(supported: &[Value], v: &Value, at: Place<'_>, errors: &mut Errors) {
    let list: Vec<String> = supported
        .iter()
        .map(|one| match one {
            Value::String(s) => format!("{s:?}"),
            other => format!("{:?}", other.to_string()),
        })
        .collect();
    let message = format!("Unsupported value: {v}: supported values: {}", list.join(", "));
    errors.push_at(text(at), Reason::NotSupported, message);
}

fn invalid(at: Place<'_>, shown: &str, why: &str, errors: &mut Errors) {
    let place = text(at);
    let message = format!("Invalid value: {shown}: {place} in body {why}");
    errors.push_at(place, Reason::Invalid, message);
}

fn string(limits: &Limits, s: &str, at: Place<'_>, errors: &mut Errors) {
    let shown = || format!("{s:?}");
    let length =
        if limits.max_length.is_some() || limits.min_length.is_some() { s.chars().count() } else { 0 };
    // The first of these is told, as the real server does.
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        errors.push_at(text(at), Reason::TooLong, format!("Too long: may not be more than {max} bytes"));
    } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
        invalid(at, &shown(), &format!("should be at least {min} chars long"), errors);
    } else if let Some(pattern) = limits.pattern.as_ref().filter(|p| !p.matches(s)) {
        invalid(at, &shown(), &format!("should match '{}'", pattern.text()), errors);
    }
    if !limits.format.is_empty() && !formats::holds(&limits.format, s) {
        let place = text(at);
        let format = &limits.format;
        let message = format!("Invalid value: {s:?}: {place} in body must be of type {format}: {s:?}");
        errors.push_at(place, Reason::TypeInvalid, message);
    }
}

fn number(limits: &Limits, v: &Value, at: Place<'_>, errors: &mut Errors) {
    let Some(n) = v.as_f64() else { return };
    let shown = v.to_string();
    if let Some(factor) = limits.multiple_of.filter(|f| *f > 0.0) {
        let exact = match (v.as_i64(), factor.fract() == 0.0 && factor < 9e18) {
            (Some(n), true) => n % (factor as i64) == 0,
            _ => (n / factor).fract() == 0.0,
        };
        if !exact {
            invalid(at, &shown, &format!("should be a multiple of {factor}"), errors);
        }
    }
    match limits.maximum {
        Some((max, true)) if n >= max => invalid(at, &shown, &format!("should be less than {max}"), errors),
        Some((max, false)) if n > max => {
            invalid(at, &shown, &format!("should be less than or equal to {max}"), errors);
        }
        _ => {}
    }
    match limits.minimum {
        Some((min, true)) if n <= min => {
            invalid(at, &shown, &format!("should be greater than {min}"), errors);
        }
        Some((min, false)) if n < min => {
            invalid(at, &shown, &format!("should be greater than or equal to {min}"), errors);
        }
        _ => {}
    }
    if let Some(wrong) = formats::integer_overflow(&limits.format, n) {
        invalid(at, &shown, wrong, errors);
    }
}

fn list(
    schema: &Schema,
    items: &[Value],
    old: Option<&Value>,
    at: Place<'_>,
    depth: usize,
    errors: &mut Errors,
) {
    let limits = &schema.limits;
    if let Some(min) = limits.min_items.filter(|min| items.len() < *min) {
        invalid(at, &items.len().to_string(), &format!("should have at least {min} items"), errors);
    }
    if let Some(max) = limits.max_items.filter(|max| items.len() > *max) {
        too_many(at, items.len(), max, errors);
    }
    if limits.unique_items {
        let mut seen = HashSet::new();
        if !items.iter().all(|item| seen.insert(item.to_string())) {
            invalid(at, "\"\"", "shouldn't contain duplicates", errors);
        }
    }
    let Some(item_schema) = &schema.items else { return };
    let before = Before::new(schema, old);
    let root = Path::new("");
    for (index, item) in items.iter().enumerate() {
        let place = at.unwrap_or(&root).index(index);
        value(item_schema, item, before.item(schema, item, index), Some(&place), depth + 1, errors);
    }
}

/// The items a list had, by what identifies them.
enum Before<'a> {
    Nothing,
    Keyed(BTreeMap<String, &'a Value>),
}

impl<'a> Before<'a> {
    fn new(schema: &Schema, old: Option<&'a Value>) -> Before<'a> {
        match old.and_then(Value::as_array) {
            Some(items) if &*schema.list_type == "map" => {
                Before::Keyed(items.iter().map(|item| (map_key(schema, item).to_string(), item)).collect())
            }
            Some(items) if &*schema.list_type == "set" => {
                Before::Keyed(items.iter().map(|item| (item.to_string(), item)).collect())
            }
            _ => Before::Nothing,
        }
    }

    fn item(&self, schema: &Schema, item: &Value, _index: usize) -> Option<&'a Value> {
        match self {
            Before::Nothing => None,
            Before::Keyed(items) if &*schema.list_type == "map" => {
                items.get(&map_key(schema, item).to_string()).copied()
            }
            Before::Keyed(items) => items.get(&item.to_string()).copied(),
        }
    }
}

fn object(
    schema: &Schema,
    members: &crate::Map,
    old: Option<&Value>,
    at: Place<'_>,
    depth: usize,
    errors: &mut Errors,
) {
    let limits = &schema.limits;
    if let Some(min) = limits.min_properties.filter(|min| members.len() < *min) {
        invalid(at, &members.len().to_string(), &format!("should have at least {min} properties"), errors);
        return;
    }
    if let Some(max) = limits.max_properties.filter(|max| members.len() > *max) {
        too_many(at, members.len(), max, errors);
        return;
    }
    let place = |name: &str| match at {
        Some(path) => path.child(name).to_string(),
        None => name.to_owned(),
    };
    for name in schema.required.iter().filter(|name| !members.contains_key(&***name)) {
        errors.push_at(place(name), Reason::Required, "Required value");
    }
    for (name, member) in members {
        let path = match at {
            Some(path) => path.child(name),
            None => Path::new(name),
        };
        if let Some(known) = schema.field(name) {
            let before = old.and_then(|old| old.get(name));
            value(known, member, before, Some(&path), depth + 1, errors);
        } else if matches!(schema.additional, Additional::Refused) {
            let message = format!("Invalid value: \"\": {path} in body is a forbidden property");
            errors.push_at(path.to_string(), Reason::Invalid, message);
        }
    }
}

fn too_many(at: Place<'_>, actual: usize, max: usize, errors: &mut Errors) {
    let mut found = Errors::new();
    found.too_many(&Path::new(""), actual, max);
    for error in found.0 {
        errors.push_at(text(at), error.reason, error.message);
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
fn junctors(schema: &Schema, v: &Value, at: Place<'_>, depth: usize, errors: &mut Errors) {
    let tried = |one: &Schema| {
        let mut found = Errors::new();
        value(one, v, None, at, depth + 1, &mut found);
        found
    };
    // The real server gives these no place of their own.
    let mut failed = |why: String, found: Vec<Errors>| {
        let message = format!("Invalid value: \"\": {:?} {why}", text(at));
        errors.push_at("<nil>".to_owned(), Reason::Invalid, message);
        errors.0.extend(found.into_iter().flat_map(|found| found.0));
    };
    // Of several ways to fail the nearest miss is told.
    let nearest =
        |tries: Vec<Errors>| tries.into_iter().min_by_key(|found| found.0.len()).into_iter().collect();
    if !schema.any_of.is_empty() {
        let tries: Vec<Errors> = schema.any_of.iter().map(tried).collect();
        if tries.iter().all(|found| !found.is_empty()) {
            failed("must validate at least one schema (anyOf)".to_owned(), nearest(tries));
        }
    }
    if !schema.one_of.is_empty() {
        let tries: Vec<Errors> = schema.one_of.iter().map(tried).collect();
        let fits = tries.iter().filter(|found| found.is_empty()).count();
        let why = "must validate one and only one schema (oneOf).";
        match fits {
            0 => failed(format!("{why} Found none valid"), nearest(tries)),
            1 => {}
            n => failed(format!("{why} Found {n} valid alternatives"), Vec::new()),
        }
    }
    if !schema.all_of.is_empty() {
        let tries: Vec<Errors> = schema.all_of.iter().map(tried).collect();
        let fits = tries.iter().filter(|found| found.is_empty()).count();
        if fits < tries.len() {
            let none = if fits == 0 { ". None validated" } else { "" };
            failed(format!("must validate all the schemas (allOf){none}"), tries);
        }
    }
    if schema.not.as_deref().is_some_and(|not| tried(not).is_empty()) {
        failed("must not validate the schema (not)".to_owned(), Vec::new());
    }
}

/// Checks that items of sets and map lists are there once.
pub fn validate_list_types(schema: &Schema, object: &Value, errors: &mut Errors) {
    list_types(schema, object, None, 0, errors);
}

fn list_types(schema: &Schema, v: &Value, at: Place<'_>, depth: usize, errors: &mut Errors) {
    if depth > MAX_DEPTH {
        return;
    }
    match v {
        Value::Array(items) => {
            let keyed = &*schema.list_type == "map";
            let mut seen = HashSet::new();
            let root = Path::new("");
            for (index, item) in items.iter().enumerate() {
                let place = at.unwrap_or(&root).index(index);
                let identity = if keyed { map_key(schema, item) } else { item.clone() };
                if (keyed || &*schema.list_type == "set") && !seen.insert(identity.to_string()) {
                    errors.duplicate(&place, &identity);
                }
                if let Some(schema) = &schema.items {
                    list_types(schema, item, Some(&place), depth + 1, errors);
                }
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let Some(known) = schema.field(name) else { continue };
                let path = match at {
                    Some(path) => path.child(name),
                    None => Path::new(name),
                };
                list_types(known, member, Some(&path), depth + 1, errors);
            }
        }
        _ => {}
    }
}

/// The fields that identify an item of a map list.
fn map_key(schema: &Schema, item: &Value) -> Value {
    let fields =
        schema.list_map_keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
    Value::Object(fields.collect())
}
