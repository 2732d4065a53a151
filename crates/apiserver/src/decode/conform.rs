//! Gives an object the shape of its type, as decoding into Go structs and writing them again would.

use shoal_objects::schema::{Empty, Shape, TypeId, Types};
use shoal_objects::{Map, Value};

use super::complete::{add_plain_structs, empty_struct, scalar_zero};
use super::{MAX_REPORTED, prefix, scalars};

/// Nothing that was parsed is nested this deep.
const MAX_DEPTH: usize = 250;

/// Drops nulls, unknown fields and empty values that Go would not write, checks and normalises all values, and adds
/// plain structs that are absent. Returns the paths of unknown fields; the error is in the words of Go's decoder.
pub fn conform(types: &Types, id: TypeId, object: &mut Value) -> Result<Vec<String>, String> {
    let mut walk = Walk { types, unknown: Vec::new(), depth: 0 };
    match walk.object(id, object) {
        Ok(()) => Ok(walk.unknown),
        Err(fault) => Err(fault.into_text()),
    }
}

struct Walk<'a> {
    types: &'a Types,
    /// Completed on the way out, like the paths of duplicates.
    unknown: Vec<String>,
    depth: usize,
}

/// What is wrong, and where: the path grows on the way out.
#[derive(Debug)]
enum Fault {
    /// A JSON value of the wrong type. Go names the innermost struct and the path of fields without indexes.
    Type { found: String, wanted: String, owner: Option<String>, path: Vec<String> },
    /// Said by a type that decodes itself: no place.
    Text(String),
}

impl Fault {
    fn wrong(value: &Value, wanted: impl Into<String>) -> Fault {
        Fault::Type {
            found: scalars::go_kind(value).into(),
            wanted: wanted.into(),
            owner: None,
            path: Vec::new(),
        }
    }

    fn inside(mut self, owner_name: &str, field: &str) -> Fault {
        if let Fault::Type { owner, path, .. } = &mut self {
            owner.get_or_insert_with(|| short_name(owner_name).to_owned());
            path.push(field.to_owned());
        }
        self
    }

    fn into_text(self) -> String {
        match self {
            Fault::Text(text) => text,
            Fault::Type { found, wanted, owner: None, .. } => {
                format!("json: cannot unmarshal {found} into Go value of type {wanted}")
            }
            Fault::Type { found, wanted, owner: Some(owner), mut path } => {
                path.reverse();
                let path = path.join(".");
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
            }
        }
    }
}

impl Walk<'_> {
    fn object(&mut self, id: TypeId, value: &mut Value) -> Result<(), Fault> {
        let types = self.types;
        let Value::Object(map) = value else {
            return Err(Fault::wrong(value, go_type(types, &Shape::Object(id))));
        };
        let described = types.get(id);
        let mut cursor = 0;
        // Mostly all members stay.
        let mut gone: Vec<String> = Vec::new();
        for (key, value) in map.iter_mut() {
            let kept = match described.field_after(&mut cursor, key) {
                None => {
                    if self.unknown.len() < MAX_REPORTED {
                        self.unknown.push(key.clone());
                    }
                    false
                }
                Some(_) if value.is_null() => false,
                Some(field) => {
                    let noted = self.unknown.len();
                    let kept = self
                        .value(&field.shape, value)
                        .map_err(|wrong| wrong.inside(&described.name, key))?;
                    prefix(&mut self.unknown[noted..], key);
                    kept && !(field.empty == Empty::Omitted && is_empty(value))
                }
            };
            if !kept {
                gone.push(key.clone());
            }
        }
        for key in &gone {
            map.remove(key);
        }
        add_plain_structs(types, id, map);
        Ok(())
    }

    /// False when the value is one that Go writes as absent.
    fn value(&mut self, shape: &Shape, value: &mut Value) -> Result<bool, Fault> {
        match (shape, &mut *value) {
            (Shape::String | Shape::Duration, Value::String(_))
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::Double, Value::Number(_))
            | (Shape::Any, _) => {}
            (Shape::Int32, Value::Number(n)) if scalars::in_int32(n) => {}
            (Shape::Int64, Value::Number(n)) if n.is_i64() => {}
            (Shape::Int32 | Shape::Int64, Value::Number(n)) => {
                let found = format!("number {n}");
                let wanted = go_type(self.types, shape);
                return Err(Fault::Type { found, wanted, owner: None, path: Vec::new() });
            }
            (Shape::Bytes, Value::String(text)) => scalars::bytes(text).map_err(Fault::Text)?,
            (Shape::Time | Shape::MicroTime, _) => {
                let micro = *shape == Shape::MicroTime;
                return scalars::time(value, micro).map(|kept| kept.is_some()).map_err(Fault::Text);
            }
            (Shape::Quantity, _) => scalars::quantity(value).map_err(Fault::Text)?,
            (Shape::IntOrString, _) => scalars::int_or_string(value).map_err(Fault::Text)?,
            (Shape::Object(id), _) => self.deeper(|walk| walk.object(*id, value))?,
            (Shape::ObjectOr(id, other), _) => {
                // These types decode themselves, and not strictly.
                let noted = self.unknown.len();
                let outcome = match value {
                    Value::Object(_) => self.deeper(|walk| walk.object(*id, value)),
                    _ => self.value(other, value).map(|_| ()),
                };
                self.unknown.truncate(noted);
                outcome.map_err(|fault| Fault::Text(fault.into_text()))?;
            }
            (Shape::List(item), Value::Array(items)) => self.deeper(|walk| walk.items(item, items))?,
            (Shape::Map(item), Value::Object(entries)) => self.deeper(|walk| walk.entries(item, entries))?,
            _ => return Err(Fault::wrong(value, go_type(self.types, shape))),
        }
        Ok(true)
    }

    fn items(&mut self, shape: &Shape, items: &mut [Value]) -> Result<(), Fault> {
        for (index, item) in items.iter_mut().enumerate() {
            let noted = self.unknown.len();
            self.element(shape, item)?;
            if self.unknown.len() > noted {
                prefix(&mut self.unknown[noted..], &format!("[{index}]"));
            }
        }
        Ok(())
    }

    fn entries(&mut self, shape: &Shape, entries: &mut Map) -> Result<(), Fault> {
        for (key, value) in entries.iter_mut() {
            let noted = self.unknown.len();
            self.element(shape, value)?;
            prefix(&mut self.unknown[noted..], key);
        }
        Ok(())
    }

    /// An item of a list or map: null is Go's zero value.
    fn element(&mut self, shape: &Shape, value: &mut Value) -> Result<(), Fault> {
        if value.is_null() {
            *value = match shape {
                Shape::Object(id) => empty_struct(self.types, *id),
                other => scalar_zero(other),
            };
            return Ok(());
        }
        self.value(shape, value).map(|_| ())
    }

    fn deeper(&mut self, step: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        if self.depth >= MAX_DEPTH {
            return Err(Fault::Text("exceeded max depth".to_owned()));
        }
        self.depth += 1;
        let outcome = step(self);
        self.depth -= 1;
        outcome
    }
}

/// What `omitempty` calls empty, for values that are not structs.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

fn short_name(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

/// The name Go would give the type of a shape.
fn go_type(types: &Types, shape: &Shape) -> String {
    match shape {
        Shape::String => "string".into(),
        Shape::Int32 => "int32".into(),
        Shape::Int64 => "int64".into(),
        Shape::Double => "float64".into(),
        Shape::Boolean => "bool".into(),
        Shape::Bytes => "[]uint8".into(),
        Shape::Time => "v1.Time".into(),
        Shape::MicroTime => "v1.MicroTime".into(),
        Shape::Duration => "v1.Duration".into(),
        Shape::Quantity => "resource.Quantity".into(),
        Shape::IntOrString => "intstr.IntOrString".into(),
        Shape::Any => "interface {}".into(),
        Shape::Object(id) | Shape::ObjectOr(id, _) => {
            let mut parts = types.get(*id).name.rsplit('.');
            let kind = parts.next().unwrap_or_default();
            format!("{}.{kind}", parts.next().unwrap_or_default())
        }
        Shape::List(item) => format!("[]{}", go_type(types, item)),
        Shape::Map(item) => format!("map[string]{}", go_type(types, item)),
    }
}
