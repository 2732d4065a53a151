//! One step of a field path: a field, a list item by key or by value, an index.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

use crate::schema::{Shape, Type, Types};

/// Which form of step it is, in the order of their letters, so that written sets are sorted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// `f:`
    Field,
    /// `i:`
    Index,
    /// `k:`
    Key,
    /// `v:`
    Value,
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

    /// Reads a member name of FieldsV1 as this module writes it.
    pub(super) fn parse(text: impl Into<Cow<'a, str>>) -> Option<Element<'a>> {
        let text = text.into();
        let form = match text.split_at_checked(2)?.0 {
            "f:" => Form::Field,
            "k:" => Form::Key,
            "v:" => Form::Value,
            "i:" => Form::Index,
            _ => return None,
        };
        let text = match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[2..]),
            Cow::Owned(mut text) => {
                text.drain(..2);
                Cow::Owned(text)
            }
        };
        Some(Element { form, text })
    }

    /// Brings a step that somebody else wrote to the one text this module uses for it. `None` when it is damaged.
    pub(super) fn canonical(self) -> Option<Element<'a>> {
        match self.form {
            Form::Field => return Some(self),
            Form::Index => return self.text.parse::<i64>().is_ok().then_some(self),
            Form::Key | Form::Value => {}
        }
        let value: Value = serde_json::from_str(&self.text).ok()?;
        if self.form == Form::Key && !value.is_object() {
            return None;
        }
        let canonical = value.to_string();
        Some(if canonical == self.text { self } else { Element { text: Cow::Owned(canonical), ..self } })
    }

    /// What the member name in FieldsV1 begins with.
    pub(super) fn prefix(&self) -> &'static str {
        match self.form {
            Form::Field => "f:",
            Form::Key => "k:",
            Form::Value => "v:",
            Form::Index => "i:",
        }
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
    let mut text = String::new();
    write_json(&mut text, item);
    Element { form: Form::Value, text: Cow::Owned(text) }
}

/// Appends JSON. Short texts are most of it, and seldom need escapes.
fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_quoted(out, text),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

pub(super) fn write_quoted(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\' && b != 0x7f) {
        out.reserve(text.len() + 2);
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        let _ = write!(out, "{}", Value::from(text));
    }
}

/// Whether two items of a list with keys have the same name.
pub(super) fn same_key(types: &Types, shape: &Shape, keys: &[Box<str>], a: &Value, b: &Value) -> bool {
    let described = described(types, shape);
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return false };
    keys.iter().all(|key| {
        let default = || key_default(described, key);
        let (a, b) = (a.get(&**key).or_else(default), b.get(&**key).or_else(default));
        a.is_some() && a == b
    })
}

fn described<'t>(types: &'t Types, shape: &Shape) -> Option<&'t Type> {
    match shape {
        Shape::Object(id) => Some(types.get(*id)),
        _ => None,
    }
}

/// The step to an item of a list with keys; the error says why there is none, with what could be found.
pub(super) fn keyed_item(
    types: &Types,
    shape: &Shape,
    keys: &[Box<str>],
    item: &Value,
) -> Result<Element<'static>, (String, Element<'static>)> {
    let described = described(types, shape);
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
        if position > 0 {
            text.push(',');
        }
        write_quoted(&mut text, name);
        text.push(':');
        write_json(&mut text, value);
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
