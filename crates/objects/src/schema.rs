//! Types of built-in and custom kinds as data: what a field is called, what it holds, how patches and applies
//! merge it, and its protobuf tag.
//!
//! A [`Types`] table is a list of [`Type`]s that refer to each other by [`TypeId`]. Decoding, strategic merge,
//! server-side apply, protobuf and OpenAPI all walk the same table.

use std::collections::HashMap;

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
}

/// A field of an object type.
#[derive(Debug, Clone)]
pub struct Field {
    /// The JSON name.
    pub name: Box<str>,
    /// What it holds.
    pub shape: Shape,
    /// Written even when empty (no `omitempty`).
    pub required: bool,
    /// How lists merge under apply.
    pub list: ListType,
    /// A map or object replaced as a whole under apply.
    pub atomic: bool,
    /// How strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// Protobuf field number, 0 when there is none.
    pub tag: u32,
    /// In protobuf this field stands inside an embedded message with this tag on the parent (JSON inlines it).
    /// 0 when it stands in the parent itself.
    pub embedded_tag: u32,
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

impl Type {
    /// Finds a field by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| &*f.name == name)
    }
}
