//! Adds what Go writes although nobody gave it.

use shoal_objects::schema::{Empty, Shape, TypeId, Types};
use shoal_objects::{Map, Value};

/// Fills absent fields that the real server always writes: plain structs, scalars and lists without `omitempty`
/// (`replicas: 0` in the status of a StatefulSet, `rules: null` in a Role). For objects that are about to be stored,
/// after defaulting and validation.
pub fn complete(types: &Types, id: TypeId, object: &mut Value) {
    let Value::Object(map) = object else { return };
    let described = types.get(id);
    let mut cursor = 0;
    for (name, value) in map.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
        if let Some(field) = described.field_after(&mut cursor, name) {
            complete_shape(types, &field.shape, value);
        }
    }
    for field in described.fields.iter().filter(|field| matches!(field.empty, Empty::Zero | Empty::Null)) {
        if !map.contains_key(&*field.name) {
            let value = if field.empty == Empty::Zero { zero(types, &field.shape) } else { Value::Null };
            map.insert(field.name.to_string(), value);
        }
    }
}

fn complete_shape(types: &Types, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id) | Shape::ObjectOr(id, _), value @ Value::Object(_)) => complete(types, *id, value),
        (Shape::ObjectOr(_, other), value) => complete_shape(types, other, value),
        (Shape::List(item), Value::Array(items)) if holds_objects(item) => {
            items.iter_mut().for_each(|value| complete_shape(types, item, value));
        }
        (Shape::Map(item), Value::Object(entries)) if holds_objects(item) => {
            entries.values_mut().for_each(|value| complete_shape(types, item, value));
        }
        _ => {}
    }
}

fn holds_objects(shape: &Shape) -> bool {
    match shape {
        Shape::Object(_) | Shape::ObjectOr(..) => true,
        Shape::List(item) | Shape::Map(item) => holds_objects(item),
        _ => false,
    }
}

/// Go's zero value as it is written.
fn zero(types: &Types, shape: &Shape) -> Value {
    match shape {
        Shape::Object(id) => {
            let mut object = Value::Object(Map::new());
            complete(types, *id, &mut object);
            object
        }
        other => scalar_zero(other),
    }
}

/// Go's zero value of anything but a struct.
pub(super) fn scalar_zero(shape: &Shape) -> Value {
    match shape {
        Shape::String => "".into(),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => 0.into(),
        Shape::Boolean => false.into(),
        Shape::Quantity => "0".into(),
        Shape::Duration => "0s".into(),
        Shape::Object(_) => Value::Object(Map::new()),
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any => Value::Null,
        Shape::ObjectOr(..) | Shape::List(_) | Shape::Map(_) => Value::Null,
    }
}

/// An absent struct as decoding sees it: only the plain structs inside it.
pub(super) fn empty_struct(types: &Types, id: TypeId) -> Value {
    let mut map = Map::new();
    add_plain_structs(types, id, &mut map);
    Value::Object(map)
}

/// Adds the plain structs that are absent.
pub(super) fn add_plain_structs(types: &Types, id: TypeId, map: &mut Map) {
    for field in &types.get(id).fields {
        if let (Empty::Zero, Shape::Object(inner)) = (field.empty, &field.shape)
            && !map.contains_key(&*field.name)
        {
            map.insert(field.name.to_string(), empty_struct(types, *inner));
        }
    }
}
