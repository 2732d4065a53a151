//! What a write changed, field by field.

use serde_json::Value;

use super::element::Element;
use super::place::{Implied, Place, Schema, implied, is_hollow};
use super::set::{FieldSet, Parts};
use crate::Map;
use crate::schema::Field;

/// The difference between two objects.
#[derive(Clone, Debug, Default)]
pub struct Comparison<'a> {
    /// Fields that are new or have another value.
    pub written: FieldSet<'a>,
    /// Fields that are gone.
    pub removed: FieldSet<'a>,
}

impl Comparison<'_> {
    /// Whether no field differs.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }
}

/// Compares two objects of a type. Fields that real servers always write count as present in both.
pub fn compare<'a>(schema: Schema<'_>, old: &'a Value, new: &'a Value) -> Comparison<'a> {
    let change = walk(schema, schema.place(), Some(old), Some(new));
    Comparison { written: change.written.children, removed: change.removed.children }
}

#[derive(Default)]
struct Change<'a> {
    written: Parts<'a>,
    removed: Parts<'a>,
}

impl<'a> Change<'a> {
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Change<'a> {
        let mut change = Change::default();
        change.written.member = new.is_some() && old != new;
        change.removed.member = new.is_none();
        change
    }

    fn push(&mut self, element: Element<'a>, inner: Change<'a>) {
        let Change { written, removed } = inner;
        if removed.member || !removed.children.is_empty() {
            self.removed.children.push(element.clone(), removed);
        }
        self.written.children.push(element, written);
    }
}

fn walk<'a>(
    schema: Schema<'_>,
    place: Place<'_>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Change<'a> {
    let settled = match (place, old, new) {
        (Place::Deduced, Some(old), Some(new)) => {
            let (before, after) = (place.settle(old), place.settle(new));
            if before.is_map() != after.is_map() && !is_hollow(old) && !is_hollow(new) {
                // Another form of value: all of the old is gone, the new is written whole.
                let mut change = walk(schema, before, Some(old), None);
                change.written = walk(schema, after, None, Some(new)).written;
                change.written.member = true;
                change.removed.member = false;
                return change;
            }
            if before.is_map() { before } else { after }
        }
        (place, Some(value), _) | (place, None, Some(value)) => place.settle(value),
        (place, None, None) => place,
    };
    if matches!(settled, Place::Leaf | Place::Deduced)
        || (old.is_none_or(is_hollow) && new.is_none_or(is_hollow))
    {
        return Change::leaf(old, new);
    }
    let mut change = if settled.is_map() {
        members(schema, settled, old.and_then(Value::as_object), new.and_then(Value::as_object))
    } else {
        items(schema, settled, old.and_then(Value::as_array), new.and_then(Value::as_array))
    };
    change.written.member = old.is_none();
    change.removed.member = new.is_none();
    change
}

fn members<'a>(
    schema: Schema<'_>,
    place: Place<'_>,
    old: Option<&'a Map>,
    new: Option<&'a Map>,
) -> Change<'a> {
    let mut change = Change::default();
    let mut cursor = 0;
    let mut before = old.into_iter().flatten().peekable();
    let mut after = new.into_iter().flatten().peekable();
    loop {
        // Both are sorted by name: the lesser name comes first, equal ones together.
        let (left, right) = match (before.peek(), after.peek()) {
            (Some((a, _)), Some((b, _))) if a == b => (before.next(), after.next()),
            (Some((a, _)), Some((b, _))) if a < b => (before.next(), None),
            (Some(_), None) => (before.next(), None),
            (_, Some(_)) => (None, after.next()),
            (None, None) => return change,
        };
        let Some(name) = left.or(right).map(|(name, _)| name) else { return change };
        let (inner, field) = schema.member(place, &mut cursor, name);
        let (left, right) = (left.map(|(_, v)| v), right.map(|(_, v)| v));
        let found = match (left, right, field) {
            (None, Some(value), Some(field)) if old.is_some() => {
                from_implied(schema, inner, field, value, true)
            }
            (Some(value), None, Some(field)) if new.is_some() => {
                from_implied(schema, inner, field, value, false)
            }
            _ => None,
        };
        let inner = found.unwrap_or_else(|| walk(schema, inner, left, right));
        change.push(Element::field(name), inner);
    }
}

/// Compares a value with what real servers write for the absent field on the other side, if anything.
fn from_implied<'a>(
    schema: Schema<'_>,
    place: Place<'_>,
    field: &Field,
    value: &'a Value,
    is_new: bool,
) -> Option<Change<'a>> {
    let implied = implied(field);
    if matches!(implied, Implied::Nothing) {
        return None;
    }
    if implied.equals(value) {
        return Some(Change::default());
    }
    if matches!(place, Place::Leaf | Place::Deduced) || is_hollow(value) {
        // Zero is a value too: the field is written, in either direction.
        let mut change = Change::default();
        change.written.member = true;
        return Some(change);
    }
    let (map, list) = (value.as_object(), value.as_array());
    let empty = place.is_map().then(no_members);
    let mut change = match (place.is_map(), is_new) {
        (true, true) => members(schema, place, empty, map),
        (true, false) => members(schema, place, map, empty),
        (false, true) => items(schema, place, None, list),
        (false, false) => items(schema, place, list, None),
    };
    change.written.member = false;
    change.removed.member = false;
    Some(change)
}

fn no_members() -> &'static Map {
    static EMPTY: std::sync::LazyLock<Map> = std::sync::LazyLock::new(Map::new);
    &EMPTY
}

fn items<'a>(
    schema: Schema<'_>,
    place: Place<'_>,
    old: Option<&'a Vec<Value>>,
    new: Option<&'a Vec<Value>>,
) -> Change<'a> {
    if old == new {
        return Change::default();
    }
    let named = |list: Option<&'a Vec<Value>>| {
        let mut named: Vec<(Element<'static>, &'a Value)> =
            list.into_iter().flatten().map(|item| (schema.item(place, item).1, item)).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named
    };
    let inner = schema.items_place(place);
    let (before, after) = (named(old), named(new));
    let (mut left, mut right) = (before.as_slice(), after.as_slice());
    let mut change = Change::default();
    while let Some(element) = match (left.first(), right.first()) {
        (Some((a, _)), Some((b, _))) => Some(a.min(b).clone()),
        (one, other) => one.or(other).map(|(e, _)| e.clone()),
    } {
        let olds = take_run(&mut left, &element);
        let news = take_run(&mut right, &element);
        let found = match (olds, news) {
            ([], [(_, item)]) => walk(schema, inner, None, Some(item)),
            ([(_, item)], []) => walk(schema, inner, Some(item), None),
            ([(_, item)], [(_, other)]) => walk(schema, inner, Some(item), Some(other)),
            // Items that share a name are compared together, as one value.
            _ => {
                let mut change = Change::default();
                change.written.member = !news.is_empty() && olds != news;
                change.removed.member = news.is_empty();
                change
            }
        };
        change.push(element, found);
    }
    change
}

/// Splits off the items in front that have this name.
fn take_run<'s, 'a>(
    list: &mut &'s [(Element<'static>, &'a Value)],
    element: &Element<'static>,
) -> &'s [(Element<'static>, &'a Value)] {
    let length = list.iter().take_while(|(e, _)| e == element).count();
    let (run, rest) = list.split_at(length);
    *list = rest;
    run
}
