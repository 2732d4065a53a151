//! Lists under strategic merge: keyed items, sets of scalars, and the order of the result.
//!
//! The order is that of the patch for what the patch names, that of the document for the rest; where both are in
//! the document, its order decides how the two are woven together, and what is new comes first.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{PATCH, StrategicError, go_list, go_map, go_text, unknown_directive, wrong_type};
use crate::Map;

/// Whether the items of both lists are maps. All must be of one type, and not lists.
pub(super) fn holds_maps(a: &[Value], b: &[Value]) -> Result<bool, StrategicError> {
    let mut first = None;
    for item in a.iter().chain(b) {
        let kind = std::mem::discriminant(item);
        if item.is_array() {
            return Err(StrategicError::Unprocessable("lists of lists are not supported".to_owned()));
        }
        if *first.get_or_insert(kind) != kind {
            let lists = format!("[{} {}]", go_list(a), go_list(b));
            return Err(StrategicError::Internal(format!("list element types are not identical: {lists}")));
        }
    }
    Ok(a.first().or(b.first()).is_some_and(Value::is_object))
}

/// Removes these scalars.
pub(super) fn remove_values(list: &mut Vec<Value>, values: &[Value]) {
    let values: HashSet<String> = values.iter().map(identity).collect();
    list.retain(|value| !values.contains(&identity(value)));
}

/// Adds scalars that are not there yet.
pub(super) fn add_values(list: &mut Vec<Value>, values: &[Value]) {
    let before = list.clone();
    let mut seen = HashSet::new();
    list.extend_from_slice(values);
    list.retain(|value| seen.insert(identity(value)));
    weave(list, &positions(values, identity), &positions(&before, identity), identity);
}

/// Merges maps that are identified by `merge_key`; `merge` merges two that are the same.
pub(super) fn merge_maps(
    list: &mut Vec<Value>,
    patch: &[Value],
    merge_key: &str,
    merge: impl Fn(&mut Map, &Map) -> Result<(), StrategicError>,
) -> Result<(), StrategicError> {
    let (mut changes, mut deleted, mut replace) = (Vec::new(), HashSet::new(), false);
    for item in patch.iter().filter_map(Value::as_object) {
        match item.get(PATCH) {
            None => changes.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                deleted.insert(key_of(item, merge_key)?);
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(StrategicError::Internal(message.to_owned()));
            }
            Some(directive) => return Err(unknown_directive(directive, item)),
        }
    }
    if replace {
        *list = changes.into_iter().cloned().map(Value::Object).collect();
        return check_keys(list, merge_key);
    }
    let identity = |item: &Value| item.get(merge_key).map(identity).unwrap_or_default();
    list.retain(|item| item.get(merge_key).is_none() || !deleted.contains(&identity(item)));
    let order = positions(list, identity);
    let mut places = order.clone();
    let mut patch_order = HashMap::new();
    for change in changes {
        let key = key_of(change, merge_key)?;
        let rank = patch_order.len();
        patch_order.entry(key.clone()).or_insert(rank);
        match places.get(&key).and_then(|place| list.get_mut(*place)) {
            Some(Value::Object(item)) => merge(item, change)?,
            _ => {
                places.insert(key, list.len());
                list.extend(super::without_directives(&Value::Object(change.clone())));
            }
        }
    }
    check_keys(list, merge_key)?;
    weave(list, &patch_order, &order, identity);
    Ok(())
}

/// The list without nulls in its maps and without directives.
pub(super) fn without_directives(list: &[Value]) -> Vec<Value> {
    list.iter().filter_map(super::without_directives).collect()
}

/// What the patch sets must stand in `$setElementOrder`, in the same order.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    merge_key: Option<&str>,
) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        loop {
            let Some(next) = rest.next() else {
                let (patch, order) = (go_list(patch), go_list(order));
                return Err(StrategicError::Internal(format!(
                    "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
                )));
            };
            if item_key(item, merge_key)? == item_key(next, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

/// Puts a merged list in the order that `$setElementOrder` gives.
pub(super) fn reorder(
    list: &mut Vec<Value>,
    order: &[Value],
    before: &[Value],
    merge_key: Option<&str>,
) -> Result<(), StrategicError> {
    for item in list.iter().chain(order) {
        item_key(item, merge_key)?;
    }
    let identity = |item: &Value| item_key(item, merge_key).unwrap_or_default();
    weave(list, &positions(order, identity), &positions(before, identity), identity);
    Ok(())
}

/// Sorts what stands in `patch_order` by it and the rest by `server_order`, then weaves the two: an item of the rest
/// goes first only where the document had both and had it first.
fn weave(
    list: &mut Vec<Value>,
    patch_order: &HashMap<String, usize>,
    server_order: &HashMap<String, usize>,
    identity: impl Fn(&Value) -> String,
) {
    let ranked = |order: &HashMap<String, usize>, items: Vec<(String, Value)>| {
        let mut items = items;
        items.sort_by_key(|(key, _)| order.get(key).copied().unwrap_or(usize::MAX));
        items.into_iter().peekable()
    };
    let keyed = list.drain(..).map(|item| (identity(&item), item));
    let (patched, rest): (Vec<_>, Vec<_>) = keyed.partition(|(key, _)| patch_order.contains_key(key));
    let (mut patched, mut rest) = (ranked(patch_order, patched), ranked(server_order, rest));
    while let Some((key, _)) = patched.peek() {
        let place = server_order.get(key);
        let earlier = |(key, _): &(String, Value)| {
            server_order.get(key).zip(place).is_some_and(|(rest, patched)| rest < patched)
        };
        let next = rest.next_if(earlier).or_else(|| patched.next());
        list.extend(next.map(|(_, item)| item));
    }
    list.extend(rest.map(|(_, item)| item));
}

/// Where each item first stands.
fn positions(list: &[Value], identity: impl Fn(&Value) -> String) -> HashMap<String, usize> {
    let mut positions = HashMap::with_capacity(list.len());
    for (position, item) in list.iter().enumerate() {
        positions.entry(identity(item)).or_insert(position);
    }
    positions
}

/// Scalars are the same when their JSON is.
fn identity(value: &Value) -> String {
    value.to_string()
}

fn item_key(item: &Value, merge_key: Option<&str>) -> Result<String, StrategicError> {
    match (merge_key, item) {
        (None, item) => Ok(identity(item)),
        (Some(merge_key), Value::Object(item)) => key_of(item, merge_key),
        (Some(_), other) => Err(wrong_type("map[string]interface {}", other)),
    }
}

fn key_of(item: &Map, merge_key: &str) -> Result<String, StrategicError> {
    item.get(merge_key).map(identity).ok_or_else(|| {
        let map = go_map(item);
        StrategicError::Internal(format!("map: {map} does not contain declared merge key: {merge_key}"))
    })
}

fn check_keys(list: &[Value], merge_key: &str) -> Result<(), StrategicError> {
    for item in list {
        match item {
            Value::Object(item) => drop(key_of(item, merge_key)?),
            other => {
                let found = go_text(other);
                return Err(StrategicError::Internal(format!("value {found} is not a map.")));
            }
        }
    }
    Ok(())
}
