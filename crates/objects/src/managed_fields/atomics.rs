//! What a configuration would replace as a whole.

use serde_json::Value;

use super::element::Element;
use super::place::{Place, Schema};

/// No more paths than these are gathered.
const MAX_FOUND: usize = 50;

/// Paths of the lists, maps and objects in a value that have no parts of their own: setting one field of theirs removes
/// all others.
pub fn atomics(schema: Schema<'_>, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    search(schema, schema.place(), object, &mut String::new(), &mut found);
    found
}

fn search(schema: Schema<'_>, place: Place<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let place = place.settle(value);
    if found.len() >= MAX_FOUND {
        return;
    }
    match value {
        Value::Object(members) if place.is_map() => {
            let mut cursor = 0;
            for (name, member) in members {
                let (inner, _) = schema.member(place, &mut cursor, name);
                within(path, &Element::field(name), |path| search(schema, inner, member, path, found));
            }
        }
        Value::Array(items) if matches!(place, Place::Set | Place::ListMap(..)) => {
            let inner = schema.items_place(place);
            for (index, item) in items.iter().enumerate() {
                within(path, &Element::index(index), |path| search(schema, inner, item, path, found));
            }
        }
        Value::Object(_) | Value::Array(_) => found.push(path.clone()),
        _ => {}
    }
}

fn within(path: &mut String, element: &Element<'_>, step: impl FnOnce(&mut String)) {
    let length = path.len();
    element.show(path);
    step(path);
    path.truncate(length);
}
