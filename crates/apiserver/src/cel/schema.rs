//! The types of expressions about an object, from the object's structural schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::parser::RESERVED;
use super::types::{Field, ListKind, ObjectType, Type};

/// Literals and operators that are words.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Words that cannot be used as field names in an expression and are written `__word__` instead.
fn is_keyword(word: &str) -> bool {
    WORDS.contains(&word) || RESERVED.contains(&word)
}

/// Schemas nested deeper than this are not looked into.
const MAX_DEPTH: usize = 100;

/// The type of values that satisfy `schema`. `root` is set for the schema of a whole object, which has `metadata` even
/// when the schema does not say so.
pub fn type_of(schema: &Value, root: bool) -> Type {
    nested(schema, root, 0)
}

fn nested(schema: &Value, root: bool, depth: usize) -> Type {
    if depth > MAX_DEPTH {
        return Type::Dyn;
    }
    let plain = plain(schema, root, depth);
    let nullable = schema.get("nullable").and_then(Value::as_bool).unwrap_or(false);
    if nullable && plain != Type::Dyn { Type::Nullable(Arc::new(plain)) } else { plain }
}

fn plain(schema: &Value, root: bool, depth: usize) -> Type {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
    if flag("x-kubernetes-int-or-string") {
        return Type::Dyn;
    }
    let embedded = flag("x-kubernetes-embedded-resource");
    match text("type") {
        "boolean" => Type::Bool,
        "integer" => Type::Int,
        "number" => Type::Double,
        "string" => match text("format") {
            "byte" => Type::Bytes,
            "date" | "date-time" => Type::Timestamp,
            "duration" => Type::Duration,
            _ => Type::String,
        },
        "array" => {
            let element = schema.get("items").map_or(Type::Dyn, |items| nested(items, false, depth + 1));
            Type::List(Arc::new(element), list_kind(schema))
        }
        "object" => {
            let properties = schema.get("properties").and_then(Value::as_object);
            if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object())
                && properties.is_none_or(serde_json::Map::is_empty)
            {
                return Type::map(Type::String, nested(values, false, depth + 1));
            }
            let mut fields = BTreeMap::new();
            for (name, property) in properties.into_iter().flatten() {
                let whole_metadata = (root || embedded) && name == "metadata";
                let ty = if whole_metadata { metadata() } else { nested(property, false, depth + 1) };
                fields.insert(escape(name), Field { json: name.clone(), ty });
            }
            if root || embedded {
                for (name, ty) in
                    [("apiVersion", Type::String), ("kind", Type::String), ("metadata", metadata())]
                {
                    fields.entry(name.to_owned()).or_insert_with(|| Field { json: name.to_owned(), ty });
                }
            }
            Type::Object(Arc::new(ObjectType { name: "object".to_owned(), fields }))
        }
        _ => Type::Dyn,
    }
}

fn metadata() -> Type {
    Type::object("object", [("name", Type::String), ("generateName", Type::String)])
}

/// How lists of this schema are compared and which of their elements correspond.
pub fn list_kind(schema: &Value) -> ListKind {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            ListKind::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// The name of a property as an expression writes it.
pub fn escape(name: &str) -> String {
    if is_keyword(name) {
        return format!("__{name}__");
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (text, length) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            _ => ("", c.len_utf8()),
        };
        if text.is_empty() {
            out.push(c);
        } else {
            out.push_str(text);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}
