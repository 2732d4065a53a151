//! Cells that many kinds have.

use serde_json::Value;
use shoal_objects::selector::LabelSelector;
use shoal_objects::{Timestamp, meta};

use super::Column;
use super::duration::since;
use crate::kinds::access::{at, list_at, str_at};

/// Stands where there is nothing.
pub const NONE: &str = "<none>";
/// Stands where nothing was chosen.
pub const UNSET: &str = "<unset>";

/// The name of the object.
pub const NAME: Column =
    Column::text("Name", "The object's name, unique among those of its kind in a namespace.", |o, _| {
        meta::name(o).into()
    })
    .naming();
/// How long the object has existed.
pub const AGE: Column = Column::text("Age", "Time since the server created the object.", age);
/// Containers of a pod template at `spec.template`.
pub const CONTAINERS: Column = Column::text("Containers", "The template's containers.", |o, _| {
    each(at(o, &["spec", "template", "spec"]), "containers", "name").into()
})
.wide();
/// Images of a pod template at `spec.template`.
pub const IMAGES: Column = Column::text("Images", "Images of the template's containers.", |o, _| {
    each(at(o, &["spec", "template", "spec"]), "containers", "image").into()
})
.wide();
/// The label selector at `spec.selector`.
pub const SELECTOR: Column = Column::text("Selector", "Which pods belong to the object.", |o, _| {
    selector(at(o, &["spec", "selector"])).into()
})
.wide();

/// Kinds about which a name says enough.
pub static NAME_AND_AGE: &[Column] = &[NAME, AGE];
/// Kinds without columns of their own.
pub static NAME_AND_CREATED_AT: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        kind: "date",
        format: "",
        priority: 0,
        description: "When the server created the object.",
        cell: |o, _| meta::creation_timestamp(o).into(),
    },
];

/// Time since creation.
pub fn age(object: &Value, now: Timestamp) -> Value {
    since(at(object, &["metadata", "creationTimestamp"]), now).into()
}

/// The text at a path, empty when there is none.
pub fn text(object: &Value, path: &[&str]) -> Value {
    text_or(object, path, "")
}

/// The text at a path, or something instead of an absent or empty one.
pub fn text_or(object: &Value, path: &[&str], otherwise: &str) -> Value {
    let found = at(object, path).and_then(Value::as_str).filter(|s| !s.is_empty());
    found.unwrap_or(otherwise).into()
}

/// The whole number at a path, 0 when there is none.
pub fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether `true` stands at a path, or the default where nothing does.
pub fn flag(object: &Value, path: &[&str], default: bool) -> Value {
    at(object, path).and_then(Value::as_bool).unwrap_or(default).into()
}

/// How many entries the list or map at a path has.
pub fn count(object: &Value, path: &[&str]) -> usize {
    match at(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    }
}

/// A quantity or number-or-text as it is written, `0` when absent.
pub fn quantity(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "0".to_owned(),
    }
}

/// A text field of each item of a list.
pub fn each(parent: Option<&Value>, list: &str, name: &str) -> String {
    let items = parent.map_or(&[][..], |parent| list_at(parent, list));
    items.iter().map(|item| str_at(item, name)).collect::<Vec<_>>().join(",")
}

/// The texts of a list, joined.
pub fn joined(parent: Option<&Value>, list: &str) -> String {
    let items = parent.map_or(&[][..], |parent| list_at(parent, list));
    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Something instead of nothing.
pub fn or(text: String, otherwise: &str) -> Value {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// `a=b,c=d`
pub fn labels(labels: Option<&Value>) -> Value {
    let mut pairs: Vec<(&str, &str)> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    or(pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","), NONE)
}

/// A label selector as one writes it on the command line.
pub fn selector(object: Option<&Value>) -> String {
    match LabelSelector::from_object(object) {
        _ if object.is_none() => NONE.to_owned(),
        Ok(selector) if selector.is_everything() => NONE.to_owned(),
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_owned(),
    }
}

/// The first few of many: `a,b,c + 2 more...`
pub fn few(items: &[String], most: usize, separator: &str) -> String {
    match items.len().checked_sub(most) {
        None | Some(0) => items.join(separator),
        Some(more) => format!("{} + {more} more...", items[..most].join(separator)),
    }
}
