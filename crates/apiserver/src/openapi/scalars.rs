//! Models that are no structs: what the table of types calls time, quantity, any, …

use serde_json::{Value, json};
use shoal_objects::schema::Shape;

use super::dialect::Dialect;

/// What every patch is.
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const DURATION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration";
const ANY_JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const OR_ARRAY: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const OR_STRINGS: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

/// The model of a shape that is neither a struct of the table nor a plain JSON type.
pub fn model_of(shape: &Shape, owner: &str) -> Option<&'static str> {
    Some(match shape {
        Shape::Time => TIME,
        Shape::MicroTime => MICRO_TIME,
        Shape::Duration => DURATION,
        Shape::Quantity => QUANTITY,
        Shape::IntOrString => INT_OR_STRING,
        Shape::ObjectOr(_, other) => match **other {
            Shape::Boolean => OR_BOOL,
            Shape::List(ref item) if **item == Shape::String => OR_STRINGS,
            _ => OR_ARRAY,
        },
        // The table does not tell the three kinds of free JSON apart; their owners do.
        Shape::Any if owner.ends_with(".ManagedFieldsEntry") => FIELDS_V1,
        Shape::Any if owner.starts_with("io.k8s.apiextensions-apiserver.") => ANY_JSON,
        Shape::Any => RAW_EXTENSION,
        _ => return None,
    })
}

/// The schema of such a model.
pub fn schema(model: &str, dialect: Dialect) -> Option<Value> {
    let v3 = dialect == Dialect::V3;
    Some(match model {
        TIME => json!({
            "description": "A moment in UTC, to the second, as RFC 3339 text.",
            "type": "string", "format": "date-time",
        }),
        MICRO_TIME => json!({
            "description": "A moment in UTC, to the microsecond, as RFC 3339 text.",
            "type": "string", "format": "date-time",
        }),
        DURATION => json!({"description": "A length of time such as 1h30m.", "type": "string"}),
        QUANTITY => {
            let description = "A fixed-point number with an optional suffix: binary (Ki Mi Gi Ti Pi Ei), decimal \
                 (n u m k M G T P E) or a decimal exponent (e3, E3).";
            match v3 {
                true => {
                    json!({"description": description, "oneOf": [{"type": "string"}, {"type": "number"}]})
                }
                false => json!({"description": description, "type": "string"}),
            }
        }
        INT_OR_STRING => {
            let description = "IntOrString is a type that can hold an int32 or a string.  When used in JSON or YAML \
                 marshalling and unmarshalling, it produces or consumes the inner type.  This allows you to have, for \
                 example, a JSON field that can accept a name or number.";
            let format = "int-or-string";
            match v3 {
                true => json!({
                    "description": description, "format": format, "oneOf": [{"type": "integer"}, {"type": "string"}],
                }),
                false => json!({"description": description, "format": format, "type": "string"}),
            }
        }
        RAW_EXTENSION => json!({"description": "An object of any kind.", "type": "object"}),
        FIELDS_V1 => json!({
            "description": "A set of fields: a tree whose keys are 'f:' and a field, 'k:' and the keys of a list item, \
                 'v:' and a value of a set, or '.' for the parent itself.",
            "type": "object",
        }),
        PATCH => json!({"description": "A patch in the format of its Content-Type.", "type": "object"}),
        ANY_JSON => json!({"description": "Any JSON value."}),
        OR_ARRAY => json!({"description": "A JSONSchemaProps or a list of them."}),
        OR_BOOL => json!({"description": "A JSONSchemaProps or a boolean."}),
        OR_STRINGS => json!({"description": "A JSONSchemaProps or a list of strings."}),
        _ => return None,
    })
}
