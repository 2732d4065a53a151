//! The three ways to patch an object: JSON patch, merge patch, strategic merge patch.
//!
//! All of them work in place; when one fails, the document is left half-changed and must be thrown away.

use serde_json::Value;

mod json;
mod merge;
mod strategic;

pub use json::{JsonPatchError, MAX_OPERATIONS, json_patch};
pub use merge::{merge_diff, merge_patch};
pub use strategic::{StrategicError, strategic_merge};

/// What a JSON value is called in complaints about bodies.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The complaint about a merge or strategic merge patch that is not an object.
fn not_an_object(patch: &Value) -> String {
    let found = json_type(patch);
    format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )
}
