//! Types of built-in and custom kinds as data: what a field is called, what it holds, how patches and applies
//! merge it, and its protobuf tag.
//!
//! A [`Types`] table is a list of [`Type`]s that refer to each other by [`TypeId`]. Decoding, strategic merge,
//! server-side apply, protobuf and OpenAPI all walk the same table.

use std::collections::HashMap;

use serde_json::Value;

/// Names a type in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub u32);

/// A set of types that refer to each other.
#[derive(Debug, Default)]
pub struct Types {
    types: Vec<Type>,
    by_name: HashMap<Box<str>, TypeId>,
}

/// An object type: a Go struct, or an object schema of a custom resource.
#[derive(Debug, Clone)]
pub struct Type {
    /// `io.k8s.api.core.v1.PodSpec`
    pub name: Box<str>,
    /// In the order of the table; few enough to be searched by name.
    pub fields: Vec<Field>,
    /// The whole object is one value for apply (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Fields it does not name are kept and merged by the form of their values
    /// (`x-kubernetes-preserve-unknown-fields`).
    pub preserves_unknown: bool,
}

/// A field of an object type.
#[derive(Debug, Clone)]
pub struct Field {
    /// The JSON name.
    pub name: Box<str>,
    /// What it holds.
    pub shape: Shape,
    /// The schema calls it required.
    pub required: bool,
    /// What is written when it is empty or absent.
    pub empty: Empty,
    /// How lists merge under apply.
    pub list: ListType,
    /// The schema states the list type, be it only the default one (OpenAPI repeats it).
    pub list_declared: bool,
    /// A map or object replaced as a whole under apply.
    pub atomic: bool,
    /// How strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// The value apply takes for it when it is a list key that an item leaves out.
    pub default: Option<Box<Value>>,
    /// Protobuf field number, 0 when there is none.
    pub tag: u32,
    /// Tags of the messages around it, outermost first, that protobuf has and JSON inlines. Mostly none.
    pub embedded: Vec<u32>,
}

/// What becomes of a field that is empty (`false`, 0, `""`, no items) or absent: Go's `omitempty` and pointers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Empty {
    /// Written as given, left out when absent: a pointer.
    #[default]
    Kept,
    /// Left out when empty: a plain value with `omitempty`.
    Omitted,
    /// Always written: when absent, as the zero value of its shape. A plain struct, or a scalar without `omitempty`.
    Zero,
    /// Always written: when absent, as null. A list, pointer or time without `omitempty`.
    Null,
}

/// What a value is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    String,
    /// Whole number of 32 bits.
    Int32,
    /// Whole number of 64 bits.
    Int64,
    /// Floating point number.
    Double,
    /// true or false.
    Boolean,
    /// Base64 text for bytes.
    Bytes,
    /// RFC 3339 in seconds.
    Time,
    /// RFC 3339 in microseconds.
    MicroTime,
    /// Go duration text (`metav1.Duration`).
    Duration,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// Any JSON (RawExtension, JSON, FieldsV1): not looked into.
    Any,
    /// An object of the table.
    Object(TypeId),
    /// An object of the table or else the other shape (`JSONSchemaPropsOrBool` and its like).
    ObjectOr(TypeId, Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// A map with text keys.
    Map(Box<Shape>),
}

/// How lists merge under server-side apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Items are identified by their value.
    Set,
    /// Items are identified by these of their fields.
    Map(Vec<Box<str>>),
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists merge item by item instead of being replaced.
    pub merge: bool,
    /// The patch names the keys to be kept (`$retainKeys`).
    pub retain_keys: bool,
    /// For lists of objects that merge: the field that identifies an item.
    pub merge_key: Option<Box<str>>,
}

impl Types {
    /// A table of these types; their position is their [`TypeId`].
    pub fn new(types: Vec<Type>) -> Types {
        let by_name = types.iter().enumerate().map(|(i, t)| (t.name.clone(), TypeId(i as u32))).collect();
        Types { types, by_name }
    }

    /// The type of that id.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Finds a type by its full name.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// All types, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(i, t)| (TypeId(i as u32), t))
    }
}

impl Field {
    /// An optional field without any mark.
    pub fn new(name: &str, shape: Shape) -> Field {
        Field {
            name: name.into(),
            shape,
            required: false,
            empty: Empty::Kept,
            list: ListType::Atomic,
            list_declared: false,
            atomic: false,
            patch: PatchStrategy::default(),
            default: None,
            tag: 0,
            embedded: Vec::new(),
        }
    }
}

/// Whether a name sorts before another. The first letter mostly tells, without a call to compare all.
fn precedes(a: &str, b: &str) -> bool {
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(first), Some(other)) if first != other => first < other,
        _ => a < b,
    }
}

impl Type {
    /// Finds a field by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| &*f.name == name)
    }

    /// Finds a field when names are asked for in order: fields are mostly sorted too, so that little is searched.
    pub fn field_after(&self, cursor: &mut usize, name: &str) -> Option<&Field> {
        while self.fields.get(*cursor).is_some_and(|field| precedes(&field.name, name)) {
            *cursor += 1;
        }
        match self.fields.get(*cursor) {
            Some(field) if &*field.name == name => Some(field),
            // A table that is not sorted, or an unknown field.
            _ => self.field(name),
        }
    }
}
