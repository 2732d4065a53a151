//! The types of the checker, and how they fit each other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What is known about a value before it exists.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Nothing.
    Dyn,
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// 64 bits with sign
    Int,
    /// 64 bits without sign
    Uint,
    /// floating point
    Double,
    /// text
    String,
    /// bytes
    Bytes,
    /// a point in time
    Timestamp,
    /// a length of time
    Duration,
    /// A list and how its equality is decided.
    List(Arc<Type>, ListKind),
    /// A map of keys and values.
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// The type of a type's name.
    Type(Arc<Type>),
    /// A type of one of Kubernetes' libraries.
    Opaque(&'static str),
    /// A value that may be null as well.
    Nullable(Arc<Type>),
    /// A parameter of a function's signature.
    Param(usize),
}

/// What `Object{…}` builds.
pub const OBJECT: Type = Type::Opaque("Object");
/// What `JSONPatch{…}` builds.
pub const JSON_PATCH: Type = Type::Opaque("JSONPatch");

/// How two lists of this type are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Element by element.
    Atomic,
    /// As sets.
    Set,
    /// As maps with these keys.
    Map(Arc<[String]>),
}

/// The declared fields of an object.
#[derive(Debug, PartialEq)]
pub struct ObjectType {
    /// How errors call it.
    pub name: String,
    /// By the name used in expressions, which is escaped where the real one is no identifier.
    pub fields: BTreeMap<String, Field>,
}

/// A declared field.
#[derive(Debug, PartialEq)]
pub struct Field {
    /// The name in JSON.
    pub json: String,
    /// Its type.
    pub ty: Type,
}

/// The most parameters a signature has.
pub const MAX_PARAMS: usize = 3;

/// A type to point to where nothing is known.
pub static DYN: Type = Type::Dyn;

impl Type {
    /// A list compared element by element.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element), ListKind::Atomic)
    }

    /// A map.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional value.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    /// An object whose fields are called the same in JSON.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Type {
        let fields =
            fields.into_iter().map(|(name, ty)| (name.to_owned(), Field { json: name.to_owned(), ty }));
        Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() }))
    }

    /// The type without the possibility of null.
    pub fn plain(&self) -> &Type {
        match self {
            Type::Nullable(inner) => inner.plain(),
            other => other,
        }
    }

    /// Whether a value of type `actual` fits here. Parameters are bound on the way.
    pub fn accepts(&self, actual: &Type, bound: &mut [Option<Type>; MAX_PARAMS]) -> bool {
        match (self, actual) {
            (Type::Param(index), _) => bind(*index, actual, bound),
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, Type::Nullable(_)) => true,
            (
                Type::Nullable(_) | Type::Object(_) | Type::Timestamp | Type::Duration | Type::Opaque(_),
                Type::Null,
            ) => true,
            (Type::Null, Type::Object(_) | Type::Timestamp | Type::Duration | Type::Opaque(_)) => true,
            (Type::Nullable(inner), _) => inner.accepts(actual, bound),
            (_, Type::Nullable(inner)) => self.accepts(inner, bound),
            (Type::List(a, _), Type::List(b, _)) => a.accepts(b, bound),
            (Type::Map(ak, av), Type::Map(bk, bv)) => ak.accepts(bk, bound) && av.accepts(bv, bound),
            (Type::Optional(a), Type::Optional(b)) => a.accepts(b, bound),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    /// The type with parameters replaced by what they were bound to.
    pub fn bound(&self, bound: &[Option<Type>; MAX_PARAMS]) -> Type {
        match self {
            Type::Param(index) => bound.get(*index).cloned().flatten().unwrap_or(Type::Dyn),
            Type::List(element, kind) => Type::List(Arc::new(element.bound(bound)), kind.clone()),
            Type::Map(key, value) => Type::map(key.bound(bound), value.bound(bound)),
            Type::Optional(inner) => Type::optional(inner.bound(bound)),
            Type::Type(inner) => Type::Type(Arc::new(inner.bound(bound))),
            other => other.clone(),
        }
    }

    /// What both are: the one that says less when they fit, nothing when they do not.
    pub fn join(&self, other: &Type) -> Option<Type> {
        match (self, other) {
            (a, b) if a == b => Some(a.clone()),
            (Type::Dyn, _) | (_, Type::Dyn) => Some(Type::Dyn),
            (Type::Null, b) if b.accepts(&Type::Null, &mut Default::default()) => Some(b.clone()),
            (a, Type::Null) if a.accepts(&Type::Null, &mut Default::default()) => Some(a.clone()),
            (Type::List(a, _), Type::List(b, _)) => Some(Type::list(a.join(b)?)),
            (Type::Map(ak, av), Type::Map(bk, bv)) => Some(Type::map(ak.join(bk)?, av.join(bv)?)),
            (Type::Optional(a), Type::Optional(b)) => Some(Type::optional(a.join(b)?)),
            (Type::Type(_), Type::Type(_)) => Some(Type::Type(Arc::new(Type::Dyn))),
            (Type::Nullable(a), b) | (b, Type::Nullable(a)) => Some(Type::Nullable(Arc::new(a.join(b)?))),
            _ => None,
        }
    }
}

fn bind(index: usize, actual: &Type, bound: &mut [Option<Type>; MAX_PARAMS]) -> bool {
    let Some(slot) = bound.get(index) else { return false };
    let joined = match slot {
        None => Some(actual.clone()),
        Some(before) => before.join(actual),
    };
    match (joined, bound.get_mut(index)) {
        (Some(joined), Some(slot)) => {
            *slot = Some(joined);
            true
        }
        _ => false,
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(element, _) => write!(f, "list({element})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Object(object) => f.write_str(&object.name),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Type(inner) => write!(f, "type({inner})"),
            Type::Opaque(name) => f.write_str(name),
            Type::Nullable(inner) => write!(f, "wrapper({inner})"),
            Type::Param(index) => write!(f, "<{}>", ["A", "B", "C"].get(*index).unwrap_or(&"T")),
        }
    }
}
