//! How apply treats a place in an object: as one value, or by its parts.

use serde_json::Value;

use super::element::{Element, keyed_item, same_key, set_item};
use crate::schema::{Empty, Field, ListType, Shape, Type, TypeId, Types};

/// The types that describe an object.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'t> {
    /// The table.
    pub types: &'t Types,
    /// The type of the whole object. Without one, the values tell how they merge: maps by entry, all else as a whole.
    pub root: Option<TypeId>,
}

/// What a place is.
#[derive(Clone, Copy)]
pub(super) enum Place<'t> {
    /// One value: a scalar, or something that is replaced as a whole.
    Leaf,
    /// An object with named fields.
    Struct(&'t Type),
    /// A map whose entries are owned one by one.
    Map(&'t Shape),
    /// A list whose items are their own names.
    Set,
    /// A list of objects named by some of their fields.
    ListMap(&'t Shape, &'t [Box<str>]),
    /// Told by the value.
    Deduced,
}

impl<'t> Schema<'t> {
    /// What the whole object is.
    pub(super) fn place(&self) -> Place<'t> {
        match self.root {
            Some(id) => Place::Struct(self.types.get(id)),
            None => Place::Deduced,
        }
    }

    /// What a field is.
    pub(super) fn field_place(&self, field: &'t Field) -> Place<'t> {
        match (&field.shape, &field.list) {
            (Shape::List(_), ListType::Atomic) => Place::Leaf,
            (Shape::List(_), ListType::Set) => Place::Set,
            (Shape::List(item), ListType::Map(keys)) => Place::ListMap(item, keys),
            _ if field.atomic => Place::Leaf,
            (shape, _) => self.item_place(shape),
        }
    }

    /// What an item of a list or an entry of a map is.
    pub(super) fn item_place(&self, shape: &'t Shape) -> Place<'t> {
        match shape {
            Shape::Object(id) => {
                let described = self.types.get(*id);
                if described.atomic { Place::Leaf } else { Place::Struct(described) }
            }
            Shape::Map(value) => Place::Map(value),
            Shape::Any => Place::Deduced,
            _ => Place::Leaf,
        }
    }

    /// The member of an object or map, and whether its type names it. Members are asked for in order.
    pub(super) fn member(
        &self,
        place: Place<'t>,
        cursor: &mut usize,
        name: &str,
    ) -> (Place<'t>, Option<&'t Field>) {
        match place {
            Place::Struct(described) => match described.field_after(cursor, name) {
                Some(field) => (self.field_place(field), Some(field)),
                None => (Place::Deduced, None),
            },
            Place::Map(value) => (self.item_place(value), None),
            _ => (Place::Deduced, None),
        }
    }

    /// Whether two items of a list with own names have the same one.
    pub(super) fn same_item(&self, place: Place<'t>, a: &Value, b: &Value) -> bool {
        match place {
            Place::ListMap(shape, keys) => same_key(self.types, shape, keys, a, b),
            _ => a == b,
        }
    }

    /// What items of a list are.
    pub(super) fn items_place(&self, place: Place<'t>) -> Place<'t> {
        match place {
            Place::ListMap(shape, _) => self.item_place(shape),
            _ => Place::Leaf,
        }
    }

    /// What the items of a list with own names are, and the name of one of them.
    pub(super) fn item(&self, place: Place<'t>, item: &Value) -> (Place<'t>, Element<'static>) {
        match place {
            Place::ListMap(shape, keys) => {
                let named = keyed_item(self.types, shape, keys, item);
                (self.item_place(shape), named.unwrap_or_else(|(_, partial)| partial))
            }
            _ => (Place::Leaf, set_item(item)),
        }
    }
}

impl<'t> Place<'t> {
    /// The place once values are known: deduced places become maps or leaves.
    pub(super) fn settle(self, value: &Value) -> Place<'t> {
        match self {
            Place::Deduced if value.is_object() => Place::Map(&Shape::Any),
            Place::Deduced => Place::Leaf,
            other => other,
        }
    }

    /// Whether objects here have parts with owners of their own.
    pub(super) fn is_map(self) -> bool {
        matches!(self, Place::Struct(_) | Place::Map(_))
    }
}

/// Null, or without any member.
pub(super) fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null => true,
        _ => false,
    }
}

static NULL: Value = Value::Null;
static NO: Value = Value::Bool(false);

/// What real servers write for an absent field of a present object: nothing, a zero or null.
pub(super) fn implied(field: &Field) -> Implied {
    match field.empty {
        Empty::Kept | Empty::Omitted => Implied::Nothing,
        Empty::Null => Implied::Value(&NULL),
        Empty::Zero => match &field.shape {
            Shape::Object(_) => Implied::Object,
            Shape::Boolean => Implied::Value(&NO),
            Shape::String | Shape::Duration | Shape::Quantity => Implied::Text,
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => Implied::Number,
            _ => Implied::Value(&NULL),
        },
    }
}

/// See [`implied`].
pub(super) enum Implied {
    /// The field is absent.
    Nothing,
    /// An object without members.
    Object,
    /// Empty text, or a quantity or duration of nothing.
    Text,
    /// 0
    Number,
    /// This value.
    Value(&'static Value),
}

impl Implied {
    /// Whether a value says the same.
    pub(super) fn equals(&self, value: &Value) -> bool {
        match self {
            Implied::Nothing => false,
            Implied::Object => value.as_object().is_some_and(|m| m.is_empty()),
            Implied::Text => matches!(value.as_str(), Some("" | "0" | "0s")),
            Implied::Number => value.as_f64() == Some(0.0),
            Implied::Value(same) => value == *same,
        }
    }
}
