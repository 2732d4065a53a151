//! Entries as text: read without JSON values in between, written the same way.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::element::{Element, write_quoted};
use super::entries::{Entries, Entry, Operation, take_managed_fields};
use super::set::{FieldSet, Node, Parts};
use crate::Map;

/// Reads a stored object, its entries apart. Entries that this module has not written are none.
pub fn read_object(text: &[u8]) -> serde_json::Result<(Value, Entries<'_>)> {
    let mut entries = Entries::default();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = Whole(&mut entries).deserialize(&mut deserializer);
    if let Ok(object) = read.and_then(|object| deserializer.end().map(|()| object)) {
        return Ok((object, entries));
    }
    let mut object: Value = serde_json::from_slice(text)?;
    take_managed_fields(&mut object);
    Ok((object, Entries::default()))
}

/// An object whose metadata has entries.
struct Whole<'e, 'a>(&'e mut Entries<'a>);

/// Metadata with entries.
struct Metadata<'e, 'a>(&'e mut Entries<'a>);

impl<'de> DeserializeSeed<'de> for Whole<'_, 'de> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_, 'de> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = match name.as_str() {
                "metadata" => members.next_value_seed(Metadata(self.0))?,
                _ => members.next_value()?,
            };
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

impl<'de> DeserializeSeed<'de> for Metadata<'_, 'de> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_, 'de> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == "managedFields" {
                let entries: Vec<EntryText<'de>> = members.next_value()?;
                self.0.0 = entries.into_iter().map(Entry::from).collect();
            } else {
                metadata.insert(name, members.next_value()?);
            }
        }
        Ok(Value::Object(metadata))
    }
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct EntryText<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(rename = "fieldsV1")]
    fields: FieldSet<'a>,
    #[serde(borrow)]
    manager: Cow<'a, str>,
    operation: Operation,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(default, deserialize_with = "optional_text")]
    time: Option<Cow<'a, str>>,
}

fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    deserializer.deserialize_str(Text).map(Some)
}

impl<'a> From<EntryText<'a>> for Entry<'a> {
    fn from(read: EntryText<'a>) -> Entry<'a> {
        let EntryText { api_version, fields, manager, operation, subresource, time } = read;
        Entry { manager, operation, api_version, subresource, time, fields }
    }
}

/// Text that is borrowed unless it has escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for FieldSet<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldSet<'a>, D::Error> {
        deserializer.deserialize_map(Fields).map(|parts| parts.children)
    }
}

/// FieldsV1.
struct Fields;

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Parts<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parts<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Parts<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parts<'de>, A::Error> {
        let mut parts = Parts::default();
        while let Some(name) = members.next_key_seed(Text)? {
            if name == "." {
                parts.member = true;
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let element = Element::parse(name).ok_or_else(|| A::Error::custom("not a step of a path"))?;
            let inner = members.next_value_seed(Fields)?;
            // A step without anything below it is a path of the set.
            let member = inner.member || inner.children.is_empty();
            parts.children.nodes.push(Node { element, member, children: inner.children });
        }
        Ok(parts)
    }
}

/// Writes `metadata.managedFields`; empty when nobody owns anything.
pub(super) fn write(entries: &[Entry<'_>]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut out = String::with_capacity(1024);
    for (position, entry) in entries.iter().enumerate() {
        out.push_str(if position == 0 { "[{\"apiVersion\":" } else { ",{\"apiVersion\":" });
        write_quoted(&mut out, &entry.api_version);
        out.push_str(",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
        write_fields(&mut out, false, &entry.fields);
        out.push_str(",\"manager\":");
        write_quoted(&mut out, &entry.manager);
        out.push_str(match entry.operation {
            Operation::Apply => ",\"operation\":\"Apply\"",
            Operation::Update => ",\"operation\":\"Update\"",
        });
        if !entry.subresource.is_empty() {
            out.push_str(",\"subresource\":");
            write_quoted(&mut out, &entry.subresource);
        }
        if let Some(time) = &entry.time {
            out.push_str(",\"time\":");
            write_quoted(&mut out, time);
        }
        out.push('}');
    }
    out.push(']');
    out
}

/// Writes FieldsV1 of the set below a step that may be a member itself.
pub(super) fn write_fields(out: &mut String, member: bool, fields: &FieldSet<'_>) {
    out.push('{');
    let mut first = true;
    if member && !fields.is_empty() {
        out.push_str("\".\":{}");
        first = false;
    }
    for node in &fields.nodes {
        if !first {
            out.push(',');
        }
        first = false;
        out.push('"');
        out.push_str(node.element.prefix());
        write_escaped(out, &node.element.text);
        out.push_str("\":");
        write_fields(out, node.member, &node.children);
    }
    out.push('}');
}

/// Appends the inside of a JSON text.
fn write_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| b < b' ' || b == b'"' || b == b'\\') {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        match special.as_bytes().first() {
            Some(control @ 0..b' ') => {
                let _ = write!(out, "\\u{control:04x}");
            }
            _ => {
                out.push('\\');
                out.push_str(&special[..1]);
            }
        }
        rest = &special[1..];
    }
    out.push_str(rest);
}
