//! Strategic merge patch: a merge patch that knows which lists are keyed, and obeys directives.
//!
//! | directive | where | meaning |
//! | --- | --- | --- |
//! | `$patch: replace` | map, item of a keyed list | the map, or the whole list, is replaced by the rest of the patch |
//! | `$patch: delete` | map, item of a keyed list | the map is emptied, the item with that key removed |
//! | `$retainKeys` | map | all other keys are removed |
//! | `$deleteFromPrimitiveList/x` | map | these values are removed from list `x` |
//! | `$setElementOrder/x` | map | list `x` is put in this order, items not named keep their place as far as possible |

use serde_json::Value;

use super::not_an_object;
use crate::Map;
use crate::schema::{PatchStrategy, Shape, Type, TypeId, Types};

mod lists;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

const NO_STRATEGY: &PatchStrategy = &PatchStrategy { merge: false, retain_keys: false, merge_key: None };

/// Why a strategic merge patch was not applied. The class decides the status of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// A directive has the wrong form (400).
    #[error("{0}")]
    BadRequest(String),
    /// Something that is not supported (422).
    #[error("{0}")]
    Unprocessable(String),
    /// What the real server answers as a plain failure (500).
    #[error("{0}")]
    Internal(String),
}

/// Merges a patch into an object of type `ty`.
pub fn strategic_merge(
    types: &Types,
    ty: TypeId,
    current: &mut Value,
    patch: &Value,
) -> Result<(), StrategicError> {
    let Value::Object(patch) = patch else {
        return Err(StrategicError::BadRequest(not_an_object(patch)));
    };
    if !current.is_object() {
        *current = Value::Object(Map::new());
    }
    match current {
        Value::Object(current) => Merge { types }.map(Fields::Of(types.get(ty)), current, patch),
        _ => Ok(()),
    }
}

/// What is known of the fields of a map.
#[derive(Clone, Copy)]
enum Fields<'t> {
    /// They are those of a type.
    Of(&'t Type),
    /// They are data, all of one shape.
    All(&'t Shape),
    /// Nothing: maps merge, lists are replaced.
    Unknown,
}

struct Merge<'t> {
    types: &'t Types,
}

impl<'t> Merge<'t> {
    fn fields(&self, shape: &'t Shape) -> Fields<'t> {
        match shape {
            Shape::Object(id) => Fields::Of(self.types.get(*id)),
            Shape::Map(values) => Fields::All(values),
            _ => Fields::Unknown,
        }
    }

    /// Merges `patch` into a map.
    fn map(&self, fields: Fields<'t>, original: &mut Map, patch: &Map) -> Result<(), StrategicError> {
        match patch.get(PATCH) {
            None => {}
            Some(Value::String(directive)) if directive == "replace" => {
                original.clone_from(patch);
                original.remove(PATCH);
                return Ok(());
            }
            Some(Value::String(directive)) if directive == "delete" => {
                original.clear();
                return Ok(());
            }
            Some(directive) => return Err(unknown_directive(directive, patch)),
        }
        retain_keys(original, patch)?;
        let ordered = self.ordered_lists(fields, original, patch)?;
        for (key, value) in patch {
            if key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || ordered.contains(&key.as_str()) {
                continue;
            }
            let deletes = key.starts_with(DELETE_FROM_LIST);
            let key = if deletes { list_of(key, DELETE_FROM_LIST)? } else { key };
            if value.is_null() {
                original.remove(key);
                continue;
            }
            match (original.get_mut(key), value) {
                (Some(Value::Object(original)), Value::Object(patch)) => {
                    let (shape, _) = lookup(fields, key)?;
                    self.map(shape.map_or(Fields::Unknown, |s| self.fields(s)), original, patch)?;
                }
                (Some(Value::Array(original)), Value::Array(patch)) => {
                    let (shape, strategy) = lookup(fields, key)?;
                    self.list(shape, strategy, original, patch, deletes)?;
                }
                _ if deletes => {}
                _ => match without_directives(value) {
                    Some(value) => {
                        original.insert(key.to_owned(), value);
                    }
                    None => {
                        original.remove(key);
                    }
                },
            }
        }
        Ok(())
    }

    /// Merges the lists for which the patch gives an order, and names them.
    fn ordered_lists<'p>(
        &self,
        fields: Fields<'t>,
        original: &mut Map,
        patch: &'p Map,
    ) -> Result<Vec<&'p str>, StrategicError> {
        let mut done = Vec::new();
        for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(ELEMENT_ORDER)) {
            let Value::Array(order) = order else {
                return Err(wrong_type("[]interface {}", order));
            };
            let name = list_of(key, ELEMENT_ORDER)?;
            let additions = match patch.get(name) {
                None => None,
                Some(Value::Array(list)) => Some(list),
                Some(other) => return Err(wrong_type("[]interface {}", other)),
            };
            let (shape, strategy) = lookup(fields, name)?;
            let merge_key = strategy.merge_key.as_deref();
            lists::check_order(additions.map(Vec::as_slice).unwrap_or_default(), order, merge_key)?;
            let (before, mut merged) = match (original.remove(name), additions) {
                (None, None) => continue,
                (None, Some(additions)) => (Vec::new(), lists::without_directives(additions)),
                (Some(Value::Array(list)), None) => (list.clone(), list),
                (Some(Value::Array(list)), Some(additions)) => {
                    let mut merged = list.clone();
                    self.list(shape, strategy, &mut merged, additions, false)?;
                    (list, merged)
                }
                (Some(other), _) => return Err(wrong_type("[]interface {}", &other)),
            };
            lists::reorder(&mut merged, order, &before, merge_key)?;
            original.insert(name.to_owned(), Value::Array(merged));
            done.push(name);
        }
        Ok(done)
    }

    /// Merges `patch` into a list as the field's strategy says.
    fn list(
        &self,
        shape: Option<&'t Shape>,
        strategy: &PatchStrategy,
        original: &mut Vec<Value>,
        patch: &[Value],
        deletes: bool,
    ) -> Result<(), StrategicError> {
        if !strategy.merge && !deletes {
            *original = patch.to_vec();
            return Ok(());
        }
        if original.is_empty() && patch.is_empty() {
            return Ok(());
        }
        if !lists::holds_maps(original, patch)? {
            if deletes {
                lists::remove_values(original, patch);
            } else {
                lists::add_values(original, patch);
            }
            return Ok(());
        }
        let Some(merge_key) = strategy.merge_key.as_deref() else {
            return Err(StrategicError::Internal("cannot merge lists without merge key".to_owned()));
        };
        let fields = match shape {
            Some(Shape::List(items)) => self.fields(items),
            _ => Fields::Unknown,
        };
        lists::merge_maps(original, patch, merge_key, |item, patch| self.map(fields, item, patch))
    }
}

/// The shape (when known) and strategy of a field.
fn lookup<'t>(
    fields: Fields<'t>,
    key: &str,
) -> Result<(Option<&'t Shape>, &'t PatchStrategy), StrategicError> {
    match fields {
        Fields::Of(ty) => match ty.field(key) {
            Some(field) => Ok((Some(&field.shape), &field.patch)),
            None => {
                let name = ty.name.rsplit('.').next().unwrap_or_default();
                let message = format!("unable to find api field in struct {name} for the json field {key:?}");
                Err(StrategicError::Internal(message))
            }
        },
        Fields::All(shape) => Ok((Some(shape), NO_STRATEGY)),
        Fields::Unknown => Ok((None, NO_STRATEGY)),
    }
}

/// Obeys `$retainKeys`: what it does not name goes, and the patch may not set it either.
fn retain_keys(original: &mut Map, patch: &Map) -> Result<(), StrategicError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let wrong = || StrategicError::BadRequest("invalid patch format of retainKeys".to_owned());
    let keys: Vec<&str> = keys.as_array().ok_or_else(wrong)?.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch {
        let is_directive =
            key == RETAIN_KEYS || key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !keys.contains(&key.as_str()) {
            return Err(wrong());
        }
    }
    original.retain(|key, _| keys.contains(&key.as_str()));
    Ok(())
}

/// `x` of `$directive/x`.
fn list_of<'a>(key: &'a str, directive: &str) -> Result<&'a str, StrategicError> {
    match key.split_once('/') {
        Some((head, list)) if head == directive => Ok(list),
        _ => {
            let what = if directive == ELEMENT_ORDER { "setElementOrder list" } else { "primitive list" };
            Err(StrategicError::BadRequest(format!("invalid patch format of {what}")))
        }
    }
}

/// A value that is new to the document: without nulls and directives; none when it is but a directive.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let is_data = |key: &str| {
                key != RETAIN_KEYS && !key.starts_with(DELETE_FROM_LIST) && !key.starts_with(ELEMENT_ORDER)
            };
            let kept = fields.iter().filter(|(key, value)| is_data(key) && !value.is_null());
            Some(Value::Object(kept.filter_map(|(k, v)| Some((k.clone(), without_directives(v)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(lists::without_directives(items))),
        other => Some(other.clone()),
    }
}

fn unknown_directive(directive: &Value, map: &Map) -> StrategicError {
    let map = go_map(map);
    StrategicError::Internal(format!("unknown patch type: {} in map: {map}", go_text(directive)))
}

fn wrong_type(expected: &str, found: &Value) -> StrategicError {
    let found = match found {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    StrategicError::Internal(format!("expected a {expected}, but received a {found}"))
}

/// A value as the real server prints it in complaints.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(fields) => go_map(fields),
        other => other.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_text).collect::<Vec<String>>().join(" "))
}

fn go_map(fields: &Map) -> String {
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
    format!("map[{}]", fields.join(" "))
}

#[cfg(test)]
mod tests;
