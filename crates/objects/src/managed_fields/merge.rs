//! Lays an applied configuration over an object, and takes fields away again.

use std::collections::HashMap;

use serde_json::Value;

use super::element::Element;
use super::place::{Place, Schema, is_hollow};
use super::set::FieldSet;

/// Lays what is applied over a live object.
pub fn merge(schema: Schema<'_>, live: &mut Value, applied: &Value) {
    merge_place(schema, schema.place(), live, applied);
}

fn merge_place(schema: Schema<'_>, place: Place<'_>, live: &mut Value, applied: &Value) {
    let place = match place {
        // Values of different forms: what is applied wins.
        Place::Deduced
            if live.is_object() != applied.is_object() && !is_hollow(live) && !applied.is_null() =>
        {
            Place::Leaf
        }
        other => other.settle(if live.is_object() { live } else { applied }),
    };
    if matches!(place, Place::Leaf | Place::Deduced) || (is_hollow(live) && is_hollow(applied)) {
        if live != applied {
            live.clone_from(applied);
        }
        return;
    }
    if is_hollow(applied) {
        return;
    }
    match (&mut *live, applied) {
        (Value::Object(members), Value::Object(given)) if place.is_map() => {
            let mut cursor = 0;
            for (name, value) in given {
                match members.get_mut(name) {
                    Some(present) => {
                        let (inner, _) = schema.member(place, &mut cursor, name);
                        merge_place(schema, inner, present, value);
                    }
                    None => {
                        members.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(items), Value::Array(given)) if !place.is_map() => {
            merge_items(schema, place, items, given);
        }
        _ => live.clone_from(applied),
    }
}

/// Applied items come in the order they are given; items only the live list has keep their place between them.
fn merge_items(schema: Schema<'_>, place: Place<'_>, live: &mut Vec<Value>, applied: &[Value]) {
    let inner = schema.items_place(place);
    if live.len() == applied.len() && live.iter().zip(applied).all(|(a, b)| schema.same_item(place, a, b)) {
        live.iter_mut().zip(applied).for_each(|(item, given)| merge_place(schema, inner, item, given));
        return;
    }
    let wanted: Vec<Element<'static>> = applied.iter().map(|item| schema.item(place, item).1).collect();
    let present: Vec<Element<'static>> = live.iter().map(|item| schema.item(place, item).1).collect();
    let wanted_at: HashMap<&str, usize> = wanted.iter().enumerate().map(|(i, e)| (&*e.text, i)).collect();
    // Of live items that share a name none is the one meant.
    let mut present_at: HashMap<&str, Option<usize>> = HashMap::with_capacity(present.len());
    for (index, element) in present.iter().enumerate() {
        present_at.entry(&element.text).and_modify(|at| *at = None).or_insert(Some(index));
    }
    let mut shared = (0..wanted.len()).filter(|i| present_at.contains_key(&*wanted[*i].text)).peekable();
    let mut old: Vec<Option<Value>> = std::mem::take(live).into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(old.len().max(applied.len()));
    let emit = |index: usize, old: &mut [Option<Value>], out: &mut Vec<Value>| {
        let partner = present_at.get(&*wanted[index].text).copied().flatten();
        match partner.and_then(|at| old[at].take()) {
            Some(mut item) => {
                merge_place(schema, inner, &mut item, &applied[index]);
                out.push(item);
            }
            None => out.push(applied[index].clone()),
        }
    };
    let mut next = 0;
    for (index, element) in present.iter().enumerate() {
        match wanted_at.get(&*element.text) {
            None => out.extend(old[index].take()),
            Some(at) => {
                if shared.next_if_eq(at).is_some() {
                    (next..=*at).for_each(|i| emit(i, &mut old, &mut out));
                    next = at + 1;
                }
            }
        }
    }
    (next..wanted.len()).for_each(|i| emit(i, &mut old, &mut out));
    *live = out;
}

/// Whether merging would leave the object as it is.
pub fn covers(schema: Schema<'_>, live: &Value, applied: &Value) -> bool {
    covers_place(schema, schema.place(), live, applied)
}

fn covers_place(schema: Schema<'_>, place: Place<'_>, live: &Value, applied: &Value) -> bool {
    let place = place.settle(live);
    match (live, applied) {
        (Value::Object(members), Value::Object(given)) if place.is_map() && !given.is_empty() => {
            let mut cursor = 0;
            given.iter().all(|(name, value)| {
                let (inner, _) = schema.member(place, &mut cursor, name);
                members.get(name).is_some_and(|present| covers_place(schema, inner, present, value))
            })
        }
        (Value::Array(items), Value::Array(given))
            if matches!(place, Place::Set | Place::ListMap(..)) && !given.is_empty() =>
        {
            let mut rest = items.iter();
            let inner = schema.items_place(place);
            given.iter().all(|item| {
                rest.any(|present| {
                    schema.same_item(place, present, item) && covers_place(schema, inner, present, item)
                })
            })
        }
        _ => live == applied,
    }
}

/// Takes the fields of a set away, each with all that is in it. What loses its last member becomes null.
pub fn remove(schema: Schema<'_>, object: &mut Value, fields: &FieldSet<'_>) {
    remove_place(schema, schema.place(), object, fields);
}

fn remove_place(schema: Schema<'_>, place: Place<'_>, value: &mut Value, fields: &FieldSet<'_>) {
    if fields.is_empty() || is_hollow(value) {
        return;
    }
    let place = place.settle(value);
    match value {
        Value::Object(members) if place.is_map() => {
            let mut cursor = 0;
            members.retain(|name, value| {
                let Some(node) = fields.field(name) else { return true };
                if !node.member {
                    let (inner, _) = schema.member(place, &mut cursor, name);
                    remove_place(schema, inner, value, &node.children);
                }
                !node.member
            });
        }
        Value::Array(items) if matches!(place, Place::Set | Place::ListMap(..)) => {
            items.retain_mut(|item| {
                let (inner, element) = schema.item(place, item);
                let Some(node) = fields.node(&element) else { return true };
                if !node.member {
                    remove_place(schema, inner, item, &node.children);
                }
                !node.member
            });
        }
        // One value now, and somebody owned parts of it.
        Value::Object(_) | Value::Array(_) => *value = Value::Null,
        _ => {}
    }
    if is_hollow(value) {
        *value = Value::Null;
    }
}
