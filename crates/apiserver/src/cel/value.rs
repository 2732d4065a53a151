//! The values expressions work on. Parts of JSON documents are looked at in place, not copied.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::opaque::Opaque;
use super::time;
use super::types::{DYN, ListKind, Type};

/// A value.
#[derive(Clone, Debug)]
pub enum CelValue<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// `1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`
    Double(f64),
    /// text
    String(Str<'a>),
    /// bytes
    Bytes(Arc<[u8]>),
    /// a point in time
    Timestamp(Timestamp),
    /// a length of time in nanoseconds
    Duration(i64),
    /// a list
    List(List<'a>),
    /// a map or object
    Map(Map<'a>),
    /// a value that may be absent
    Optional(Option<Arc<CelValue<'a>>>),
    /// the name of a type
    Type(&'static str),
    /// a value of one of Kubernetes' libraries
    Opaque(Arc<Opaque>),
}

/// A text, borrowed from the document or the program where possible.
#[derive(Clone)]
pub enum Str<'a> {
    /// Somebody else's.
    Borrowed(&'a str),
    /// Computed.
    Shared(Arc<str>),
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Of a document; the type is that of the list.
    Json(&'a Vec<Value>, &'a Type),
    /// Computed.
    Owned(Arc<Vec<CelValue<'a>>>),
}

/// A map or object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Of a document; the type is that of the map or object.
    Json(&'a serde_json::Map<String, Value>, &'a Type),
    /// Computed.
    Owned(Arc<BTreeMap<Key<'a>, CelValue<'a>>>),
}

/// The key of a computed map. Whole numbers are equal whatever their sign bit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Number(i128),
    /// A text.
    String(Str<'a>),
}

impl Str<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Str::Borrowed(text) => text,
            Str::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for Str<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Str<'_> {}

impl PartialOrd for Str<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl<'a> CelValue<'a> {
    /// A JSON value seen as a value of that type.
    pub fn from_json(value: &'a Value, ty: &'a Type) -> CelValue<'a> {
        let ty = ty.plain();
        match value {
            Value::Null => CelValue::Null,
            Value::Bool(value) => CelValue::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_f64().unwrap_or(f64::NAN), ty) {
                (_, float, Type::Double) => CelValue::Double(float),
                (Some(value), _, _) => CelValue::Int(value),
                (None, float, Type::Int) if float.fract() == 0.0 && float.abs() < 9e15 => {
                    CelValue::Int(float as i64)
                }
                (None, float, _) => CelValue::Double(float),
            },
            Value::String(text) => match ty {
                Type::Bytes => STANDARD.decode(text).map_or(CelValue::borrowed(text), CelValue::bytes),
                Type::Timestamp => {
                    time::parse_date(text).map_or(CelValue::borrowed(text), CelValue::Timestamp)
                }
                Type::Duration => {
                    time::parse_duration(text).map_or(CelValue::borrowed(text), CelValue::Duration)
                }
                _ => CelValue::borrowed(text),
            },
            Value::Array(items) => CelValue::List(List::Json(items, ty)),
            Value::Object(map) => CelValue::Map(Map::Json(map, ty)),
        }
    }

    /// A text that lives elsewhere.
    pub fn borrowed(text: &'a str) -> CelValue<'a> {
        CelValue::String(Str::Borrowed(text))
    }

    /// A computed text.
    pub fn text(text: impl Into<Arc<str>>) -> CelValue<'a> {
        CelValue::String(Str::Shared(text.into()))
    }

    /// Bytes.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> CelValue<'a> {
        CelValue::Bytes(bytes.into())
    }

    /// A computed list.
    pub fn list(items: Vec<CelValue<'a>>) -> CelValue<'a> {
        CelValue::List(List::Owned(Arc::new(items)))
    }

    /// A computed map.
    pub fn map(entries: BTreeMap<Key<'a>, CelValue<'a>>) -> CelValue<'a> {
        CelValue::Map(Map::Owned(Arc::new(entries)))
    }

    /// An optional that holds this.
    pub fn some(self) -> CelValue<'a> {
        CelValue::Optional(Some(Arc::new(self)))
    }

    /// A value of a library.
    pub fn opaque(value: Opaque) -> CelValue<'a> {
        CelValue::Opaque(Arc::new(value))
    }

    /// The same value, borrowing instead of sharing where that is cheaper.
    pub fn reborrow(&'a self) -> CelValue<'a> {
        match self {
            CelValue::String(text) => CelValue::borrowed(text.as_str()),
            other => other.clone(),
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            CelValue::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            CelValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null_type",
            CelValue::Bool(_) => "bool",
            CelValue::Int(_) => "int",
            CelValue::Uint(_) => "uint",
            CelValue::Double(_) => "double",
            CelValue::String(_) => "string",
            CelValue::Bytes(_) => "bytes",
            CelValue::Timestamp(_) => "google.protobuf.Timestamp",
            CelValue::Duration(_) => "google.protobuf.Duration",
            CelValue::List(_) => "list",
            CelValue::Map(_) => "map",
            CelValue::Optional(_) => "optional_type",
            CelValue::Type(_) => "type",
            CelValue::Opaque(value) => value.type_name(),
        }
    }

    /// The value as JSON; values JSON does not know become texts.
    pub fn to_json(&self) -> Value {
        match self {
            CelValue::Null | CelValue::Optional(None) => Value::Null,
            CelValue::Bool(value) => Value::Bool(*value),
            CelValue::Int(value) => Value::from(*value),
            CelValue::Uint(value) => Value::from(*value),
            CelValue::Double(value) => Value::from(*value),
            CelValue::String(text) => Value::from(text.as_str()),
            CelValue::Bytes(bytes) => Value::from(STANDARD.encode(bytes)),
            CelValue::Timestamp(at) => Value::from(time::format_timestamp(*at)),
            CelValue::Duration(nanos) => Value::from(time::format_duration(*nanos)),
            CelValue::List(List::Json(items, _)) => Value::Array((*items).clone()),
            CelValue::List(list) => Value::Array(list.iter().map(|item| item.to_json()).collect()),
            CelValue::Map(Map::Json(map, _)) => Value::Object((*map).clone()),
            CelValue::Map(Map::Owned(map)) => {
                Value::Object(map.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect())
            }
            CelValue::Optional(Some(value)) => value.to_json(),
            CelValue::Type(name) => Value::from(*name),
            CelValue::Opaque(value) => Value::from(value.to_string()),
        }
    }
}

impl<'a> List<'a> {
    /// How many elements.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Owned(items) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<CelValue<'a>> {
        match self {
            List::Json(items, ty) => Some(CelValue::from_json(items.get(index)?, element_type(ty))),
            List::Owned(items) => items.get(index).cloned(),
        }
    }

    /// The elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CelValue<'a>> + ExactSizeIterator + '_ {
        // `len` bounds the index.
        (0..self.len()).map(|index| self.get(index).unwrap_or(CelValue::Null))
    }

    /// How equality of this list is decided.
    pub fn kind(&self) -> &ListKind {
        match self {
            List::Json(_, Type::List(_, kind)) => kind,
            _ => &ListKind::Atomic,
        }
    }
}

fn element_type(list: &Type) -> &Type {
    match list {
        Type::List(element, _) => element,
        _ => &DYN,
    }
}

impl<'a> Map<'a> {
    /// How many entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map, _) => map.len(),
            Map::Owned(map) => map.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field or text key. In objects with a schema only declared fields are visible.
    pub fn field(&self, name: &str) -> Option<CelValue<'a>> {
        match self {
            Map::Json(map, ty) => match ty {
                Type::Object(object) => {
                    let field = object.fields.get(name)?;
                    Some(CelValue::from_json(map.get(&field.json)?, &field.ty))
                }
                Type::Map(_, value) => Some(CelValue::from_json(map.get(name)?, value)),
                _ => Some(CelValue::from_json(map.get(name)?, &DYN)),
            },
            Map::Owned(map) => {
                let map: &BTreeMap<Key<'_>, CelValue<'a>> = map;
                map.get(&Key::String(Str::Borrowed(name))).cloned()
            }
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &CelValue<'_>) -> Option<CelValue<'a>> {
        match (self, key) {
            (_, CelValue::String(name)) => self.field(name.as_str()),
            (Map::Json(..), _) => None,
            (Map::Owned(map), key) => {
                let map: &BTreeMap<Key<'_>, CelValue<'a>> = map;
                map.get(&Key::from_value(key)?).cloned()
            }
        }
    }

    /// The keys, in order. Fields without a declaration are not visible.
    pub fn keys(&self) -> Vec<CelValue<'a>> {
        match self {
            Map::Json(map, Type::Object(object)) => {
                let set = object.fields.iter().filter(|(_, field)| map.contains_key(&field.json));
                set.map(|(name, _)| CelValue::borrowed(name)).collect()
            }
            Map::Json(map, _) => map.keys().map(|key| CelValue::borrowed(key)).collect(),
            Map::Owned(map) => map.keys().map(Key::to_value).collect(),
        }
    }
}

impl<'a> Key<'a> {
    /// The key a value makes, if it may be one.
    pub fn from_value(value: &CelValue<'a>) -> Option<Key<'a>> {
        Some(match value {
            CelValue::Bool(value) => Key::Bool(*value),
            CelValue::Int(value) => Key::Number(i128::from(*value)),
            CelValue::Uint(value) => Key::Number(i128::from(*value)),
            CelValue::Double(value) if value.fract() == 0.0 && value.abs() < 1e19 => {
                Key::Number(*value as i128)
            }
            CelValue::String(text) => Key::String(text.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn to_value(&self) -> CelValue<'a> {
        match self {
            Key::Bool(value) => CelValue::Bool(*value),
            Key::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(int), _) => CelValue::Int(int),
                (_, Ok(uint)) => CelValue::Uint(uint),
                _ => CelValue::Null,
            },
            Key::String(text) => CelValue::String(text.clone()),
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Bool(value) => write!(f, "{value}"),
            Key::Number(number) => write!(f, "{number}"),
            Key::String(text) => f.write_str(text.as_str()),
        }
    }
}

/// A text that is borrowed when it can be.
impl<'a> From<Cow<'a, str>> for Str<'a> {
    fn from(text: Cow<'a, str>) -> Str<'a> {
        match text {
            Cow::Borrowed(text) => Str::Borrowed(text),
            Cow::Owned(text) => Str::Shared(text.into()),
        }
    }
}
