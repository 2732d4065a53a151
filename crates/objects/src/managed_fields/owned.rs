//! The fields an object gives values to.

use serde_json::Value;

use super::place::{Place, Schema, is_hollow};
use super::set::{FieldSet, Parts};

/// All fields of an object as an applier owns them: leaves, list items and map entries, but no field that only holds
/// other fields.
pub fn owned_fields<'a>(schema: Schema<'_>, object: &'a Value) -> FieldSet<'a> {
    parts(schema, schema.place(), object).children
}

fn parts<'a>(schema: Schema<'_>, place: Place<'_>, value: &'a Value) -> Parts<'a> {
    let mut out = Parts::default();
    match (place.settle(value), value) {
        (Place::Leaf | Place::Deduced, _) => out.member = true,
        (place @ (Place::Struct(_) | Place::Map(_)), Value::Object(members)) => {
            out.children.nodes.reserve(members.len());
            let mut cursor = 0;
            for (name, value) in members {
                let (inner, named) = schema.member(place, &mut cursor, name);
                let mut child = parts(schema, inner, value);
                child.member |= named.is_none() || value.is_null() || (value.is_object() && is_hollow(value));
                out.children.push(super::element::Element::field(name), child);
            }
        }
        (place @ (Place::Set | Place::ListMap(..)), Value::Array(items)) => {
            let mut named: Vec<_> = items.iter().map(|item| (schema.item(place, item), item)).collect();
            named.sort_by(|((_, a), _), ((_, b), _)| a.cmp(b));
            for index in 0..named.len() {
                let ((inner, element), item) = &named[index];
                let same =
                    |other: Option<&((Place<'_>, _), _)>| other.is_some_and(|((_, e), _)| e == element);
                if same(index.checked_sub(1).and_then(|i| named.get(i))) {
                    continue;
                }
                // Items that share a name are owned together, as one value.
                let mut child =
                    if same(named.get(index + 1)) { Parts::default() } else { parts(schema, *inner, item) };
                child.member = true;
                out.children.push(element.clone(), child);
            }
        }
        _ => {}
    }
    out
}

/// Adds the fields that hold members of the set and are named by a type: they go when nobody owns anything in them.
pub(super) fn with_holders<'a>(schema: Schema<'_>, mut set: FieldSet<'a>) -> FieldSet<'a> {
    add_holders(schema, schema.place(), &mut set);
    set
}

fn add_holders(schema: Schema<'_>, place: Place<'_>, set: &mut FieldSet<'_>) {
    let mut cursor = 0;
    for node in set.nodes.iter_mut().filter(|n| !n.children.is_empty()) {
        let inner = match place {
            Place::Struct(_) => {
                let (inner, named) = schema.member(place, &mut cursor, &node.element.text);
                node.member |= named.is_some();
                inner
            }
            Place::Map(shape) | Place::ListMap(shape, _) => schema.item_place(shape),
            Place::Leaf | Place::Set | Place::Deduced => continue,
        };
        add_holders(schema, inner, &mut node.children);
    }
}

/// Brings a set written under an older schema to this one: what has become one value is owned as a whole.
pub(super) fn reconcile(schema: Schema<'_>, set: &mut FieldSet<'_>) {
    reconcile_place(schema, schema.place(), set);
}

fn reconcile_place(schema: Schema<'_>, place: Place<'_>, set: &mut FieldSet<'_>) {
    let mut cursor = 0;
    for node in set.nodes.iter_mut().filter(|n| !n.children.is_empty()) {
        let inner = match place {
            Place::Struct(_) => match schema.member(place, &mut cursor, &node.element.text) {
                (inner, Some(_)) => inner,
                (_, None) => continue,
            },
            Place::Map(shape) | Place::ListMap(shape, _) => schema.item_place(shape),
            Place::Leaf | Place::Set | Place::Deduced => continue,
        };
        if matches!(inner, Place::Leaf) {
            node.member = true;
            node.children = FieldSet::default();
        } else {
            reconcile_place(schema, inner, &mut node.children);
        }
    }
}
