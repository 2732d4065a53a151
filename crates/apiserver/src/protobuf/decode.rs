//! Messages to JSON.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::schema::{Empty, Field, Shape, TypeId};
use shoal_objects::{Map, Timestamp, Value};

use super::tags::{self, Slot, Tags};
use super::wire::{Reader, lossy};
use super::{MAX_DEPTH, ProtoError};
use crate::decode::conform::is_empty;

/// Reads a message of a built-in type.
pub fn message(id: TypeId, bytes: &[u8]) -> Result<Map, ProtoError> {
    message_at(id, bytes, 0)
}

fn message_at(id: TypeId, bytes: &[u8], depth: usize) -> Result<Map, ProtoError> {
    let mut object = Map::new();
    fields(tags::of(id), bytes, &mut object, &mut Seen(0), depth)?;
    Ok(object)
}

/// Which fields of a type may be in its object already, one bit for each. Almost every field comes once, and nothing
/// has to be looked for then.
struct Seen(u64);

impl Seen {
    /// Any field may be there.
    const ALL: Seen = Seen(u64::MAX);

    /// Whether the field may be there; from now on it may.
    fn note(&mut self, position: usize) -> bool {
        // Types of more fields than bits share the last one.
        let bit = 1 << position.min(63);
        let seen = self.0 & bit != 0;
        self.0 |= bit;
        seen
    }
}

fn fields(
    tags: &'static Tags,
    bytes: &[u8],
    object: &mut Map,
    seen: &mut Seen,
    depth: usize,
) -> Result<(), ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::Depth);
    }
    let mut reader = Reader::new(bytes);
    while let Some(key) = reader.key()? {
        match tags.get(key.0) {
            Slot::Unknown => reader.skip(key.1)?,
            Slot::Embedded(inner) => fields(inner, reader.bytes(key.1, "")?, object, seen, depth + 1)?,
            Slot::Field(field, position) => {
                let seen = seen.note(*position);
                read_field(field, &mut reader, key, object, seen, depth)?;
            }
        }
    }
    Ok(())
}

fn read_field(
    field: &'static Field,
    reader: &mut Reader<'_>,
    (tag, wire_type): (u32, u8),
    object: &mut Map,
    seen: bool,
    depth: usize,
) -> Result<(), ProtoError> {
    let name = &*field.name;
    let earlier = if seen { object.get_mut(name).map(Value::take) } else { None };
    let value = match &field.shape {
        Shape::List(item) => {
            let mut items = match earlier {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            list_items(item, name, reader, wire_type, &mut items, depth)?;
            while reader.repeats(tag, wire_type) {
                list_items(item, name, reader, wire_type, &mut items, depth)?;
            }
            Value::Array(items)
        }
        Shape::Map(item) => {
            let mut entries = match earlier {
                Some(Value::Object(entries)) => entries,
                _ => Map::new(),
            };
            map_entry(item, name, reader.bytes(wire_type, name)?, &mut entries, depth)?;
            while reader.repeats(tag, wire_type) {
                map_entry(item, name, reader.bytes(wire_type, name)?, &mut entries, depth)?;
            }
            Value::Object(entries)
        }
        // A message that comes in two parts is merged.
        Shape::Object(id) => match earlier {
            Some(Value::Object(mut inner)) => {
                let bytes = reader.bytes(wire_type, name)?;
                fields(tags::of(*id), bytes, &mut inner, &mut Seen::ALL, depth + 1)?;
                Value::Object(inner)
            }
            _ => Value::Object(message_at(*id, reader.bytes(wire_type, name)?, depth + 1)?),
        },
        shape => {
            let value = single(shape, name, reader, wire_type, depth)?;
            // Plain values are on the wire even when zero; Go would not write them as JSON.
            if value.is_null() || (field.empty == Empty::Omitted && is_empty(&value)) {
                if seen {
                    object.remove(name);
                }
                return Ok(());
            }
            value
        }
    };
    object.insert(name.to_owned(), value);
    Ok(())
}

/// One item, or many numbers packed into one field.
fn list_items(
    shape: &'static Shape,
    name: &str,
    reader: &mut Reader<'_>,
    wire_type: u8,
    items: &mut Vec<Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    let numeric = matches!(shape, Shape::Int32 | Shape::Int64 | Shape::Boolean);
    if numeric && Reader::is_packed(wire_type) {
        let mut packed = Reader::new(reader.bytes(wire_type, name)?);
        while !packed.is_at_end() {
            items.push(number(shape, packed.varint()?));
        }
    } else {
        items.push(single(shape, name, reader, wire_type, depth)?);
    }
    Ok(())
}

fn map_entry(
    shape: &'static Shape,
    name: &str,
    entry: &[u8],
    entries: &mut Map,
    depth: usize,
) -> Result<(), ProtoError> {
    let mut reader = Reader::new(entry);
    let mut key = Cow::Borrowed("");
    let mut value = None;
    while let Some((tag, wire_type)) = reader.key()? {
        match (tag, shape) {
            (1, _) => key = reader.text(wire_type, name)?,
            // Protobuf has no maps of lists: the list stands in a message of its own.
            (2, Shape::List(item)) => {
                let mut wrapper = Reader::new(reader.bytes(wire_type, name)?);
                let mut items = Vec::new();
                while let Some((tag, wire_type)) = wrapper.key()? {
                    match tag {
                        1 => list_items(item, name, &mut wrapper, wire_type, &mut items, depth + 1)?,
                        _ => wrapper.skip(wire_type)?,
                    }
                }
                value = Some(Value::Array(items));
            }
            (2, shape) => value = Some(single(shape, name, &mut reader, wire_type, depth)?),
            _ => reader.skip(wire_type)?,
        }
    }
    // Null stands for the zero value of the shape; `conform` knows it.
    entries.insert(key.into_owned(), value.unwrap_or_default());
    Ok(())
}

/// One value. Null when it stands for nothing.
fn single(
    shape: &'static Shape,
    name: &str,
    reader: &mut Reader<'_>,
    wire_type: u8,
    depth: usize,
) -> Result<Value, ProtoError> {
    Ok(match shape {
        Shape::String => reader.text(wire_type, name)?.into(),
        Shape::Int32 | Shape::Int64 | Shape::Boolean => number(shape, reader.number(wire_type, name)?),
        Shape::Double => reader.double(wire_type, name)?.into(),
        Shape::Bytes => STANDARD.encode(reader.bytes(wire_type, name)?).into(),
        Shape::Time => time(reader.bytes(wire_type, name)?, false)?,
        Shape::MicroTime => time(reader.bytes(wire_type, name)?, true)?,
        Shape::Quantity => match inner_bytes(reader.bytes(wire_type, name)?, name)? {
            [] => "0".into(),
            text => lossy(text).into(),
        },
        Shape::IntOrString => int_or_string(reader.bytes(wire_type, name)?, name)?,
        Shape::Any => match inner_bytes(reader.bytes(wire_type, name)?, name)? {
            [] => Value::Null,
            raw => crate::decode::parse_json(raw).map_err(ProtoError::Json)?.0,
        },
        Shape::Object(id) => Value::Object(message_at(*id, reader.bytes(wire_type, name)?, depth + 1)?),
        Shape::ObjectOr(id, other) => object_or(*id, other, name, reader.bytes(wire_type, name)?, depth + 1)?,
        // No built-in field has these.
        Shape::Duration | Shape::List(_) | Shape::Map(_) => {
            reader.skip(wire_type)?;
            Value::Null
        }
    })
}

fn number(shape: &Shape, raw: u64) -> Value {
    match shape {
        Shape::Boolean => (raw != 0).into(),
        Shape::Int32 => (raw as i32).into(),
        _ => (raw as i64).into(),
    }
}

/// The first field of a message that wraps bytes or text (`Quantity`, `RawExtension`, `FieldsV1`, `JSON`).
fn inner_bytes<'a>(message: &'a [u8], name: &str) -> Result<&'a [u8], ProtoError> {
    let mut reader = Reader::new(message);
    let mut found = [].as_slice();
    while let Some((tag, wire_type)) = reader.key()? {
        match tag {
            1 => found = reader.bytes(wire_type, name)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

/// Seconds and nanoseconds. No bytes at all are the zero time.
fn time(message: &[u8], micro: bool) -> Result<Value, ProtoError> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let mut reader = Reader::new(message);
    let (mut seconds, mut nanos) = (0i64, 0i32);
    while let Some((tag, wire_type)) = reader.key()? {
        match tag {
            1 => seconds = reader.number(wire_type, "seconds")? as i64,
            2 => nanos = reader.number(wire_type, "nanos")? as i32,
            _ => reader.skip(wire_type)?,
        }
    }
    let micros = if micro { i64::from(nanos) / 1_000 } else { 0 };
    let time = seconds.checked_mul(1_000_000).and_then(|s| s.checked_add(micros)).map(Timestamp);
    let time = time.ok_or_else(|| ProtoError::Json("year is not in the range [0,9999]".to_owned()))?;
    Ok(if micro { time.to_micro_string() } else { time.to_string() }.into())
}

fn int_or_string(message: &[u8], name: &str) -> Result<Value, ProtoError> {
    let mut reader = Reader::new(message);
    let (mut is_text, mut whole, mut text) = (false, 0, Cow::Borrowed(""));
    while let Some((tag, wire_type)) = reader.key()? {
        match tag {
            1 => is_text = reader.number(wire_type, name)? == 1,
            2 => whole = reader.number(wire_type, name)? as i32,
            3 => text = reader.text(wire_type, name)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(if is_text { text.into() } else { whole.into() })
}

/// `JSONSchemaPropsOrBool` has the flag first and the schema second; the others the schema first and a list second.
fn object_or(
    id: TypeId,
    other: &'static Shape,
    name: &str,
    message: &[u8],
    depth: usize,
) -> Result<Value, ProtoError> {
    let schema_tag = if *other == Shape::Boolean { 2 } else { 1 };
    let mut reader = Reader::new(message);
    let (mut object, mut items, mut allows) = (None, Vec::new(), false);
    while let Some((tag, wire_type)) = reader.key()? {
        match (tag, other) {
            (tag, _) if tag == schema_tag => {
                let bytes = reader.bytes(wire_type, name)?;
                let inner = object.get_or_insert_with(Map::new);
                fields(tags::of(id), bytes, inner, &mut Seen::ALL, depth + 1)?;
            }
            (1, Shape::Boolean) => allows = reader.number(wire_type, name)? != 0,
            (2, Shape::List(item)) => list_items(item, name, &mut reader, wire_type, &mut items, depth)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(match (object, other) {
        _ if !items.is_empty() => Value::Array(items),
        (Some(object), _) => Value::Object(object),
        (None, Shape::Boolean) => allows.into(),
        (None, _) => Value::Null,
    })
}
