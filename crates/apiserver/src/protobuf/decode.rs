//! Messages to JSON.
//!
//! Fields come in the order of their tags, objects are sorted by names. So fields wait at their place in the type until
//! the message is at its end, and then go into the object from the last one to the first, which a sorted map likes best:
//! each is compared with one other. A field that comes twice is found at its place without a search.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::schema::{Empty, Field, Shape, TypeId};
use shoal_objects::{Map, Timestamp, Value};

use super::tags::{self, Slot, Tags};
use super::wire::{Key, Reader, string};
use super::{MAX_DEPTH, ProtoError};
use crate::builtin;
use crate::decode::conform::is_empty;

/// Reads a message of a built-in type.
pub fn message(id: TypeId, bytes: &[u8]) -> Result<Map, ProtoError> {
    // Enough for most objects: the types of a pod and of what is in it have some 150 fields.
    let mut decoder = Decoder { places: Vec::with_capacity(256), used: 0 };
    decoder.object(id, Map::new(), bytes, 0)
}

/// The places of all messages that are being read, each message's after those of the one around it.
struct Decoder {
    /// Null where nothing waits, in all that are not in use too.
    places: Vec<Value>,
    used: usize,
}

/// One message that is being read.
struct Frame {
    /// Its first place.
    base: usize,
    /// One bit for each place where something may wait.
    filled: u64,
    /// What earlier parts of the message said, mostly nothing.
    earlier: Map,
}

impl Frame {
    /// Whether something may wait at the place; from now on it may.
    fn fill(&mut self, position: usize) -> bool {
        let bit = 1 << position;
        let filled = self.filled & bit != 0;
        self.filled |= bit;
        filled
    }

    /// Takes the last place that may be filled.
    fn pop(&mut self) -> Option<usize> {
        let last = self.filled.checked_ilog2()?;
        self.filled &= !(1 << last);
        Some(last as usize)
    }
}

impl Decoder {
    /// Reads a message. Where it comes in parts, those before this one are given.
    fn object(&mut self, id: TypeId, earlier: Map, bytes: &[u8], depth: usize) -> Result<Map, ProtoError> {
        let fields = builtin::types().get(id).fields.as_slice();
        let mut frame = Frame { base: self.used, filled: 0, earlier };
        self.used += fields.len();
        if self.places.len() < self.used {
            self.places.resize(self.used, Value::Null);
        }
        self.fields(tags::of(id), bytes, &mut frame, depth)?;

        let is_part = !frame.earlier.is_empty();
        let mut object = std::mem::take(&mut frame.earlier);
        while let Some(position) = frame.pop() {
            let (name, value) = (&*fields[position].name, self.places[frame.base + position].take());
            if !value.is_null() {
                object.insert(name.to_owned(), value);
            } else if is_part {
                object.remove(name);
            }
        }
        self.used = frame.base;
        Ok(object)
    }

    fn fields(
        &mut self,
        tags: &'static Tags,
        bytes: &[u8],
        frame: &mut Frame,
        depth: usize,
    ) -> Result<(), ProtoError> {
        if depth > MAX_DEPTH {
            return Err(ProtoError::Depth);
        }
        let mut reader = Reader::new(bytes);
        while let Some(key) = reader.key()? {
            match tags.get(key.tag) {
                Slot::Unknown => reader.skip(key)?,
                Slot::Embedded(inner) => self.fields(inner, reader.bytes(key, "")?, frame, depth + 1)?,
                Slot::Field(field, position) => {
                    let place = frame.base + position;
                    let earlier = if frame.fill(*position) {
                        self.places[place].take()
                    } else if frame.earlier.is_empty() {
                        Value::Null
                    } else {
                        frame.earlier.get_mut(&*field.name).map(Value::take).unwrap_or_default()
                    };
                    self.field(field, place, earlier, &mut reader, key, depth)?;
                }
            }
        }
        Ok(())
    }

    /// One field, or all that follow each other where it has many parts. Values are made where they wait, because
    /// copies of what was just written are slow.
    fn field(
        &mut self,
        field: &'static Field,
        place: usize,
        earlier: Value,
        reader: &mut Reader<'_>,
        key: Key,
        depth: usize,
    ) -> Result<(), ProtoError> {
        let name = &*field.name;
        // Plain values are on the wire even when empty or zero; Go would not write them as JSON.
        let omitted = field.empty == Empty::Omitted;
        match &field.shape {
            Shape::String => {
                let text = reader.text(key, name)?;
                if !text.is_empty() || !omitted {
                    self.places[place] = Value::String(text);
                }
            }
            shape @ (Shape::Int32 | Shape::Int64 | Shape::Boolean) => {
                let raw = reader.number(key, name)?;
                if raw != 0 || !omitted {
                    self.places[place] = number(shape, raw);
                }
            }
            Shape::List(item) => {
                let mut items = if let Value::Array(items) = earlier { items } else { Vec::new() };
                self.list_items(item, name, reader, key, &mut items, depth)?;
                while reader.repeats(key) {
                    self.list_items(item, name, reader, key, &mut items, depth)?;
                }
                self.places[place] = Value::Array(items);
            }
            Shape::Map(item) => {
                let mut entries = if let Value::Object(entries) = earlier { entries } else { Map::new() };
                self.map_entry(item, name, reader.bytes(key, name)?, &mut entries, depth)?;
                while reader.repeats(key) {
                    self.map_entry(item, name, reader.bytes(key, name)?, &mut entries, depth)?;
                }
                self.places[place] = Value::Object(entries);
            }
            Shape::Object(id) => {
                let earlier = if let Value::Object(earlier) = earlier { earlier } else { Map::new() };
                let object = self.object(*id, earlier, reader.bytes(key, name)?, depth + 1)?;
                self.places[place] = Value::Object(object);
            }
            shape => {
                let value = self.single(shape, name, reader, key, depth)?;
                if !(omitted && is_empty(&value)) {
                    self.places[place] = value;
                }
            }
        }
        Ok(())
    }

    /// One item, or many numbers packed into one field.
    fn list_items(
        &mut self,
        shape: &'static Shape,
        name: &str,
        reader: &mut Reader<'_>,
        key: Key,
        items: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), ProtoError> {
        match shape {
            Shape::Object(id) => {
                items.push(Value::Object(self.object(
                    *id,
                    Map::new(),
                    reader.bytes(key, name)?,
                    depth + 1,
                )?));
            }
            Shape::Int32 | Shape::Int64 | Shape::Boolean if key.is_packed() => {
                let mut packed = Reader::new(reader.bytes(key, name)?);
                while !packed.is_at_end() {
                    items.push(number(shape, packed.varint()?));
                }
            }
            shape => items.push(self.single(shape, name, reader, key, depth)?),
        }
        Ok(())
    }

    fn map_entry(
        &mut self,
        shape: &'static Shape,
        name: &str,
        entry: &[u8],
        entries: &mut Map,
        depth: usize,
    ) -> Result<(), ProtoError> {
        let mut reader = Reader::new(entry);
        let mut entry_key = String::new();
        // Null stands for the zero value of the shape; `conform` knows it.
        let mut value = Value::Null;
        while let Some(key) = reader.key()? {
            match (key.tag, shape) {
                (1, _) => entry_key = reader.text(key, name)?,
                // Protobuf has no maps of lists: the list stands in a message of its own.
                (2, Shape::List(item)) => {
                    let mut wrapper = Reader::new(reader.bytes(key, name)?);
                    let mut items = Vec::new();
                    while let Some(key) = wrapper.key()? {
                        match key.tag {
                            1 => self.list_items(item, name, &mut wrapper, key, &mut items, depth + 1)?,
                            _ => wrapper.skip(key)?,
                        }
                    }
                    value = Value::Array(items);
                }
                (2, shape) => value = self.single(shape, name, &mut reader, key, depth)?,
                _ => reader.skip(key)?,
            }
        }
        entries.insert(entry_key, value);
        Ok(())
    }

    /// One value. Null when it stands for nothing.
    fn single(
        &mut self,
        shape: &'static Shape,
        name: &str,
        reader: &mut Reader<'_>,
        key: Key,
        depth: usize,
    ) -> Result<Value, ProtoError> {
        Ok(match shape {
            Shape::String => Value::String(reader.text(key, name)?),
            Shape::Int32 | Shape::Int64 | Shape::Boolean => number(shape, reader.number(key, name)?),
            Shape::Double => reader.double(key, name)?.into(),
            Shape::Bytes => STANDARD.encode(reader.bytes(key, name)?).into(),
            Shape::Time => time(reader.bytes(key, name)?, false)?,
            Shape::MicroTime => time(reader.bytes(key, name)?, true)?,
            Shape::Quantity => match inner_bytes(reader.bytes(key, name)?, name)? {
                [] => "0".into(),
                text => Value::String(string(text)),
            },
            Shape::IntOrString => int_or_string(reader.bytes(key, name)?, name)?,
            Shape::Any => match inner_bytes(reader.bytes(key, name)?, name)? {
                [] => Value::Null,
                raw => crate::decode::parse_json(raw).map_err(ProtoError::Json)?.0,
            },
            Shape::Object(id) => {
                Value::Object(self.object(*id, Map::new(), reader.bytes(key, name)?, depth + 1)?)
            }
            Shape::ObjectOr(id, other) => {
                self.object_or(*id, other, name, reader.bytes(key, name)?, depth + 1)?
            }
            // No built-in field has these.
            Shape::Duration | Shape::List(_) | Shape::Map(_) => {
                reader.skip(key)?;
                Value::Null
            }
        })
    }

    /// `JSONSchemaPropsOrBool` has the flag first and the schema second; the others the schema first and a list second.
    fn object_or(
        &mut self,
        id: TypeId,
        other: &'static Shape,
        name: &str,
        message: &[u8],
        depth: usize,
    ) -> Result<Value, ProtoError> {
        let schema_tag = if *other == Shape::Boolean { 2 } else { 1 };
        let mut reader = Reader::new(message);
        let (mut object, mut items, mut allows) = (None, Vec::new(), false);
        while let Some(key) = reader.key()? {
            match (key.tag, other) {
                (tag, _) if tag == schema_tag => {
                    let earlier = object.take().unwrap_or_default();
                    object = Some(self.object(id, earlier, reader.bytes(key, name)?, depth + 1)?);
                }
                (1, Shape::Boolean) => allows = reader.number(key, name)? != 0,
                (2, Shape::List(item)) => {
                    self.list_items(item, name, &mut reader, key, &mut items, depth)?;
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(match (object, other) {
            _ if !items.is_empty() => Value::Array(items),
            (Some(object), _) => Value::Object(object),
            (None, Shape::Boolean) => allows.into(),
            (None, _) => Value::Null,
        })
    }
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
    while let Some(key) = reader.key()? {
        match key.tag {
            1 => found = reader.bytes(key, name)?,
            _ => reader.skip(key)?,
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
    while let Some(key) = reader.key()? {
        match key.tag {
            1 => seconds = reader.number(key, "seconds")? as i64,
            2 => nanos = reader.number(key, "nanos")? as i32,
            _ => reader.skip(key)?,
        }
    }
    let micros = if micro { i64::from(nanos) / 1_000 } else { 0 };
    let time = seconds.checked_mul(1_000_000).and_then(|s| s.checked_add(micros)).map(Timestamp);
    let time = time.ok_or_else(|| ProtoError::Json("year is not in the range [0,9999]".to_owned()))?;
    Ok(if micro { time.to_micro_string() } else { time.to_string() }.into())
}

fn int_or_string(message: &[u8], name: &str) -> Result<Value, ProtoError> {
    let mut reader = Reader::new(message);
    let (mut is_text, mut whole, mut text) = (false, 0, String::new());
    while let Some(key) = reader.key()? {
        match key.tag {
            1 => is_text = reader.number(key, name)? == 1,
            2 => whole = reader.number(key, name)? as i32,
            3 => text = reader.text(key, name)?,
            _ => reader.skip(key)?,
        }
    }
    Ok(if is_text { text.into() } else { whole.into() })
}
