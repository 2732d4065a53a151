//! A schema as a type table, so that what walks built-in types walks custom ones too.

use super::{Additional, MAX_DEPTH, Schema};
use crate::schema::{Field, ListType, Shape, Type, TypeId, Types};

/// The type table of a schema and the type of its objects. apiVersion and kind are text, metadata is what `metadata`
/// makes of the table (usually a copy of the built-in type); without one it is not looked into.
pub fn to_types(schema: &Schema, metadata: impl FnOnce(&mut Vec<Type>) -> Option<TypeId>) -> (Types, TypeId) {
    let mut types = Vec::new();
    let metadata = metadata(&mut types).map_or(Shape::Any, Shape::Object);
    let mut build = Build { types, metadata };
    let root = build.object(schema, true, "", 0);
    (Types::new(build.types), root)
}

struct Build {
    types: Vec<Type>,
    metadata: Shape,
}

impl Build {
    fn object(&mut self, schema: &Schema, resource: bool, name: &str, depth: usize) -> TypeId {
        let mut fields: Vec<Field> = Vec::with_capacity(schema.properties.len());
        for (key, property) in &schema.properties {
            if resource && matches!(&**key, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let mut field = Field::new(key, self.shape(property, &format!("{name}.{key}"), depth + 1));
            field.required = schema.required.contains(key);
            field.list = list_type(property);
            field.list_declared = !property.list_type.is_empty();
            field.atomic = property.atomic_map;
            field.default = property.default.clone().map(Box::new);
            fields.push(field);
        }
        if resource {
            fields.push(Field::new("apiVersion", Shape::String));
            fields.push(Field::new("kind", Shape::String));
            fields.push(Field::new("metadata", self.metadata.clone()));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let id = TypeId(self.types.len() as u32);
        let preserves_unknown = schema.preserve_unknown || matches!(schema.additional, Additional::Any);
        self.types.push(Type { name: name.into(), fields, atomic: schema.atomic_map, preserves_unknown });
        id
    }

    fn shape(&mut self, schema: &Schema, name: &str, depth: usize) -> Shape {
        if schema.int_or_string {
            return Shape::IntOrString;
        }
        if depth > MAX_DEPTH {
            return Shape::Any;
        }
        match &*schema.kind {
            "string" => Shape::String,
            "integer" => Shape::Int64,
            "number" => Shape::Double,
            "boolean" => Shape::Boolean,
            "array" => match &schema.items {
                Some(items) => Shape::List(Box::new(self.shape(items, &format!("{name}[]"), depth + 1))),
                None => Shape::Any,
            },
            "object" => match &schema.additional {
                // What may hold anything is merged by the form of its values.
                _ if schema.preserve_unknown && schema.properties.is_empty() && !schema.embedded => {
                    Shape::Any
                }
                Additional::Values(values) => {
                    Shape::Map(Box::new(self.shape(values, &format!("{name}{{}}"), depth + 1)))
                }
                Additional::Any if schema.properties.is_empty() => Shape::Any,
                _ => Shape::Object(self.object(schema, schema.embedded, name, depth)),
            },
            _ => Shape::Any,
        }
    }
}

fn list_type(schema: &Schema) -> ListType {
    match &*schema.list_type {
        "set" => ListType::Set,
        "map" => ListType::Map(schema.list_map_keys.clone()),
        _ => ListType::Atomic,
    }
}
