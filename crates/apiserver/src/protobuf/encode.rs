//! JSON to messages. Values that do not have the shape of their field are left out: objects are written after they
//! went through `decode::conform`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::schema::{Shape, TypeId};
use shoal_objects::{Map, Value};

use super::tags::{self, Slot, Tags};
use super::wire::{nested, put_bytes, put_double, put_number};
use crate::decode::scalars;

/// Writes the fields of an object of a built-in type.
pub fn message(id: TypeId, object: &Map, out: &mut Vec<u8>) {
    fields(tags::of(id), object, out);
}

fn fields(tags: &Tags, object: &Map, out: &mut Vec<u8>) {
    for (tag, slot) in tags.iter() {
        match slot {
            Slot::Unknown => {}
            Slot::Field(field, _) => {
                if let Some(value) = object.get(&*field.name) {
                    write(&field.shape, tag, value, out);
                }
            }
            Slot::Embedded(inner) => {
                let start = out.len();
                let mut written = false;
                nested(out, tag, |out| {
                    let before = out.len();
                    fields(inner, object, out);
                    written = out.len() > before;
                });
                if !written {
                    out.truncate(start);
                }
            }
        }
    }
}

/// Writes a value of a field: once, or once per item.
fn write(shape: &Shape, tag: u32, value: &Value, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::List(item), Value::Array(items)) => {
            items.iter().for_each(|value| write(item, tag, value, out));
        }
        (Shape::Map(item), Value::Object(entries)) => {
            for (key, value) in entries {
                nested(out, tag, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    match (&**item, value) {
                        (Shape::List(_), value) => nested(out, 2, |out| write(item, 1, value, out)),
                        (item, value) => write(item, 2, value, out),
                    }
                });
            }
        }
        (Shape::String, Value::String(text)) => put_bytes(out, tag, text.as_bytes()),
        (Shape::Boolean, Value::Bool(flag)) => put_number(out, tag, i64::from(*flag)),
        (Shape::Int32 | Shape::Int64, Value::Number(n)) => {
            put_number(out, tag, n.as_i64().unwrap_or_default());
        }
        (Shape::Double, Value::Number(n)) => put_double(out, tag, n.as_f64().unwrap_or_default()),
        (Shape::Bytes, Value::String(text)) => {
            put_bytes(out, tag, &STANDARD.decode(text).unwrap_or_default());
        }
        (Shape::Time | Shape::MicroTime, Value::String(text)) => {
            time(*shape == Shape::MicroTime, tag, text, out);
        }
        (Shape::Quantity, Value::String(text)) => nested(out, tag, |out| put_bytes(out, 1, text.as_bytes())),
        (Shape::IntOrString, Value::Number(n)) => nested(out, tag, |out| {
            put_number(out, 1, 0);
            put_number(out, 2, n.as_i64().unwrap_or_default());
            put_bytes(out, 3, b"");
        }),
        (Shape::IntOrString, Value::String(text)) => nested(out, tag, |out| {
            put_number(out, 1, 1);
            put_number(out, 2, 0);
            put_bytes(out, 3, text.as_bytes());
        }),
        (Shape::Any, value) if !value.is_null() => {
            nested(out, tag, |out| put_bytes(out, 1, value.to_string().as_bytes()));
        }
        (Shape::Object(id), Value::Object(object)) => nested(out, tag, |out| message(*id, object, out)),
        (Shape::ObjectOr(id, other), value) => nested(out, tag, |out| match (&**other, value) {
            (Shape::Boolean, Value::Object(object)) => {
                put_number(out, 1, 1);
                nested(out, 2, |out| message(*id, object, out));
            }
            (Shape::Boolean, value) => write(other, 1, value, out),
            (_, Value::Object(object)) => nested(out, 1, |out| message(*id, object, out)),
            (list, value) => write(list, 2, value, out),
        }),
        _ => {}
    }
}

fn time(micro: bool, tag: u32, text: &str, out: &mut Vec<u8>) {
    let Ok(time) = scalars::parse_time(text, micro) else { return };
    nested(out, tag, |out| {
        put_number(out, 1, time.seconds());
        put_number(out, 2, time.0.rem_euclid(1_000_000) * 1_000);
    });
}
