//! One step of a field path: a field, a list item by key or by value, an index.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

use crate::schema::{Shape, Type, Types};

/// Which form of step it is. The order is the one real servers sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// `f:`
    Field,
    /// `k:`
    Key,
    /// `v:`
    Value,
    /// `i:`
    Index,
}

/// A step of a path, in the text it is written with after its form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element<'a> {
    pub(super) form: Form,
    pub(super) text: Cow<'a, str>,
}

impl<'a> Element<'a> {
    /// A field of an object or an entry of a map.
    pub(super) fn field(name: &'a str) -> Element<'a> {
        Element { form: Form::Field, text: Cow::Borrowed(name) }
    }

    /// An item of a list without names.
    pub(super) fn index(index: usize) -> Element<'a> {
        Element { form: Form::Index, text: Cow::Owned(index.to_string()) }
    }

    /// Reads a member name of FieldsV1. Keys and values are brought to the one form that this module writes.
    pub(super) fn parse(text: &'a str) -> Option<Element<'a>> {
        let (form, rest) = text.split_at_checked(2)?;
        let form = match form {
            "f:" => return Some(Element::field(rest)),
            "k:" => Form::Key,
            "v:" => Form::Value,
            "i:" => Form::Index,
            _ => return None,
        };
        if form == Form::Index {
            rest.parse::<i64>().ok()?;
            return Some(Element { form, text: Cow::Borrowed(rest) });
        }
        let value: Value = serde_json::from_str(rest).ok()?;
        if form == Form::Key && !value.is_object() {
            return None;
        }
        let canonical = value.to_string();
        let text = if canonical == rest { Cow::Borrowed(rest) } else { Cow::Owned(canonical) };
        Some(Element { form, text })
    }

    /// The member name in FieldsV1.
    pub(super) fn written(&self) -> String {
        let prefix = match self.form {
            Form::Field => "f:",
            Form::Key => "k:",
            Form::Value => "v:",
            Form::Index => "i:",
        };
        let mut out = String::with_capacity(2 + self.text.len());
        out.push_str(prefix);
        out.push_str(&self.text);
        out
    }

    /// Appends the step as people read it: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
    pub(super) fn show(&self, out: &mut String) {
        match self.form {
            Form::Field => {
                out.push('.');
                out.push_str(&self.text);
            }
            Form::Index => {
                let _ = write!(out, "[{}]", self.text);
            }
            Form::Value => {
                let _ = write!(out, "[={}]", self.text);
            }
            Form::Key => {
                let key: crate::Map = serde_json::from_str(&self.text).unwrap_or_default();
                let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let _ = write!(out, "[{}]", parts.join(","));
            }
        }
    }
}

/// The step to an item of a set.
pub(super) fn set_item(item: &Value) -> Element<'static> {
    Element { form: Form::Value, text: Cow::Owned(item.to_string()) }
}

/// The step to an item of a list with keys; the error says why there is none, with what could be found.
pub(super) fn keyed_item(
    types: &Types,
    shape: &Shape,
    keys: &[Box<str>],
    item: &Value,
) -> Result<Element<'static>, (String, Element<'static>)> {
    let described = match shape {
        Shape::Object(id) => Some(types.get(*id)),
        _ => None,
    };
    let mut fault = None;
    let mut found: Vec<(&str, &Value)> = Vec::with_capacity(keys.len());
    match item {
        Value::Object(members) => {
            for key in keys {
                match members.get(&**key).or_else(|| key_default(described, key)) {
                    Some(value) => found.push((key, value)),
                    None => {
                        fault.get_or_insert_with(|| {
                            format!(
                                "associative list with keys has an element that omits key field {key:?} (and doesn't \
                                 have default value)"
                            )
                        });
                    }
                }
            }
        }
        Value::Null => fault = Some("associative list with keys may not have a null element".to_owned()),
        _ => fault = Some("associative list with keys may not have non-map elements".to_owned()),
    }
    found.sort_by_key(|(name, _)| *name);
    let mut text = String::with_capacity(32);
    text.push('{');
    for (position, (name, value)) in found.iter().enumerate() {
        let comma = if position > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{}:{value}", Quoted(name));
    }
    text.push('}');
    let element = Element { form: Form::Key, text: Cow::Owned(text) };
    match fault {
        Some(why) => Err((why, element)),
        None => Ok(element),
    }
}

fn key_default<'t>(described: Option<&'t Type>, key: &str) -> Option<&'t Value> {
    described?.field(key)?.default.as_deref()
}

/// A text as JSON.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| std::fmt::Error)?)
    }
}
