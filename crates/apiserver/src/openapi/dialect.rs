//! The two versions of OpenAPI that are written, where they differ.

use serde_json::{Map, Value, json};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0: one document for everything.
    V2,
    /// OpenAPI 3.0: a document per group version.
    V3,
}

impl Dialect {
    /// A reference to the model of that name.
    pub fn reference(self, model: &str) -> Value {
        match self {
            Dialect::V2 => json!({"$ref": format!("#/definitions/{model}")}),
            Dialect::V3 => json!({"$ref": format!("#/components/schemas/{model}")}),
        }
    }

    /// The model, described further. OpenAPI 3 allows nothing beside a `$ref`.
    pub fn described_reference(self, model: &str, mut siblings: Map<String, Value>) -> Value {
        let reference = self.reference(model);
        if siblings.is_empty() {
            return reference;
        }
        match (self, reference) {
            (Dialect::V2, Value::Object(mut whole)) => {
                whole.append(&mut siblings);
                Value::Object(whole)
            }
            (_, reference) => {
                siblings.insert("allOf".into(), json!([reference]));
                Value::Object(siblings)
            }
        }
    }

    /// A parameter in the path or query.
    pub fn parameter(self, name: &str, place: &str, kind: &str, description: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place, "description": description});
        let shape = json!({"type": kind, "uniqueItems": true});
        match (self, &mut parameter, shape) {
            (Dialect::V2, Value::Object(whole), Value::Object(mut shape)) => whole.append(&mut shape),
            (_, whole, shape) => whole["schema"] = shape,
        }
        if place == "path" {
            parameter["required"] = true.into();
        }
        parameter
    }
}
