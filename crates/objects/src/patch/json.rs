//! JSON patch (RFC 6902), with the leniencies of the real server: `replace` makes a missing key, a `test` for null
//! holds for a missing key, and indices below zero count from the end.

use json_patch::jsonptr::PointerBuf;
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    TestOperation,
};
use serde_json::Value;

use super::json_type;

/// More operations are refused.
pub const MAX_OPERATIONS: usize = 10_000;
/// `copy` may add this much, or a few doublings would fill the memory.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// No document that was read is deeper, and none that is to be read again may be.
const MAX_DEPTH: usize = 128;

/// Why a JSON patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPatchError {
    /// It is not a JSON patch at all (400).
    #[error("{0}")]
    Malformed(String),
    /// It is too long (413).
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// A test does not hold (422).
    #[error("{0}")]
    TestFailed(String),
    /// An operation cannot be done: a path leads nowhere, there is no such operation (422).
    #[error("{0}")]
    Failed(String),
}

/// Applies a JSON patch to a document.
pub fn json_patch(document: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => return Err(malformed(other, "Go value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        check_form(operation)?;
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    let mut limits = Limits { copied: 0, depth: MAX_DEPTH };
    for operation in operations {
        let is_test = operation.get("op").is_some_and(|op| op == "test");
        let failed = if is_test { JsonPatchError::TestFailed } else { JsonPatchError::Failed };
        apply(document, operation, &mut limits).map_err(failed)?;
    }
    if is_deeper(document, MAX_DEPTH) { Err(JsonPatchError::Failed(too_deep())) } else { Ok(()) }
}

fn malformed(found: &Value, expected: &str) -> JsonPatchError {
    let found = json_type(found);
    JsonPatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {found} into {expected}"))
}

fn check_form(operation: &Value) -> Result<(), JsonPatchError> {
    let fields = match operation {
        Value::Object(fields) => fields,
        Value::Null => return Ok(()),
        other => return Err(malformed(other, "Go value of type handlers.jsonPatchOp")),
    };
    for field in ["op", "path", "from"] {
        match fields.get(field) {
            None | Some(Value::String(_) | Value::Null) => {}
            Some(other) => {
                return Err(malformed(other, &format!("Go struct field jsonPatchOp.{field} of type string")));
            }
        }
    }
    Ok(())
}

struct Limits {
    copied: usize,
    /// The document is at most this deep.
    depth: usize,
}

fn apply(document: &mut Value, operation: &Value, limits: &mut Limits) -> Result<(), String> {
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let path = pointer(document, operation, "path", kind == "add" || kind == "move" || kind == "copy")?;
    if path.is_root() && kind != "replace" && kind != "test" {
        return Err(format!("{kind} operation does not apply: doc is missing path: \"\""));
    }
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let operation = match kind {
        "add" => PatchOperation::Add(AddOperation { path, value: value() }),
        "remove" => PatchOperation::Remove(RemoveOperation { path }),
        "replace" if path.is_root() && !value().is_object() => {
            return Err("replace operation value must be an object".to_owned());
        }
        "replace" if is_missing_key(document, &path) => {
            PatchOperation::Add(AddOperation { path, value: value() })
        }
        "replace" => PatchOperation::Replace(ReplaceOperation { path, value: value() }),
        "test" if value().is_null() && is_missing_key(document, &path) => return Ok(()),
        "test" => PatchOperation::Test(TestOperation { path, value: value() }),
        "move" | "copy" => {
            let from = pointer(document, operation, "from", false)?;
            if from.is_root() {
                return Err(format!("{kind} operation does not apply: doc is missing from path: \"\""));
            }
            limits.depth += path.count();
            if kind == "copy" {
                limits.copied += document.pointer(from.as_str()).map_or(0, |v| v.to_string().len());
                if limits.copied > MAX_COPIED_BYTES {
                    return Err(format!("copying more than {MAX_COPIED_BYTES} bytes is not allowed"));
                }
                PatchOperation::Copy(CopyOperation { from, path })
            } else {
                PatchOperation::Move(MoveOperation { from, path })
            }
        }
        other => return Err(format!("Unexpected kind: {other}")),
    };
    limits.depth += if kind == "add" || kind == "replace" { operation.path().count() } else { 0 };
    json_patch::patch_unsafe(document, std::slice::from_ref(&operation)).map_err(|e| e.to_string())?;
    // Measuring is slow, so it is done only once in a while.
    if limits.depth > 4 * MAX_DEPTH {
        if is_deeper(document, MAX_DEPTH) {
            return Err(too_deep());
        }
        limits.depth = MAX_DEPTH;
    }
    Ok(())
}

/// The pointer in `field`, an index below zero at its end resolved. `inserts`: it may point behind the last item.
fn pointer(document: &Value, operation: &Value, field: &str, inserts: bool) -> Result<PointerBuf, String> {
    let text = operation
        .get(field)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("operation missing {field} field"))?;
    let resolved = text.rsplit_once('/').and_then(|(parent, last)| {
        let back: usize = last.strip_prefix('-')?.parse().ok()?;
        let items = document.pointer(parent)?.as_array()?.len() + usize::from(inserts);
        Some(format!("{parent}/{}", items.checked_sub(back)?))
    });
    let text = resolved.as_deref().unwrap_or(text);
    PointerBuf::parse(text).map_err(|_| format!("doc is missing path: {text:?}"))
}

/// Whether the path leads into an object that has no such key.
fn is_missing_key(document: &Value, path: &PointerBuf) -> bool {
    let parent = path.split_back().and_then(|(parent, _)| document.pointer(parent.as_str()));
    parent.is_some_and(Value::is_object) && document.pointer(path.as_str()).is_none()
}

fn too_deep() -> String {
    format!("the result is nested more than {MAX_DEPTH} levels deep")
}

fn is_deeper(value: &Value, limit: usize) -> bool {
    match value {
        Value::Array(items) => limit == 0 || items.iter().any(|v| is_deeper(v, limit - 1)),
        Value::Object(fields) => limit == 0 || fields.values().any(|v| is_deeper(v, limit - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: &Value) -> Result<Value, JsonPatchError> {
        let mut document = document;
        json_patch(&mut document, patch).map(|()| document)
    }

    #[test]
    fn operations_do_what_they_do_on_the_real_server() {
        for (document, patch, result) in [
            (
                json!({"a": "1", "b": "2"}),
                json!([{"op": "add", "path": "/c", "value": "3"}, {"op": "remove", "path": "/a"},
                    {"op": "replace", "path": "/b", "value": "two"}]),
                json!({"b": "two", "c": "3"}),
            ),
            (
                json!({"b": "two", "c": "3"}),
                json!([{"op": "copy", "from": "/b", "path": "/d"}, {"op": "move", "from": "/c", "path": "/e"},
                    {"op": "test", "path": "/d", "value": "two"}]),
                json!({"b": "two", "d": "two", "e": "3"}),
            ),
            (
                json!({"x.test/y": "z"}),
                json!([{"op": "replace", "path": "/x.test~1y", "value": "escaped"}]),
                json!({"x.test/y": "escaped"}),
            ),
            (
                json!({"data": {}}),
                json!([{"op": "replace", "path": "/data/absent", "value": "x"}]),
                json!({"data": {"absent": "x"}}),
            ),
            (json!({}), json!([{"op": "test", "path": "/absent", "value": null}]), json!({})),
            (
                json!({"l": [1, 2, 3]}),
                json!([{"op": "remove", "path": "/l/-1"}, {"op": "add", "path": "/l/-1", "value": 4},
                    {"op": "replace", "path": "/l/-3", "value": 0}]),
                json!({"l": [0, 2, 4]}),
            ),
            (json!({"a": 1}), json!([]), json!({"a": 1})),
        ] {
            assert_eq!(patched(document, &patch), Ok(result), "{patch}");
        }
    }

    #[test]
    fn what_is_no_patch_is_told_from_what_fails() {
        let error = patched(json!({}), &json!({"op": "add"})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        for patch in [json!("x"), json!([7]), json!([{"op": 1}]), json!([{"op": "add", "path": {}}])] {
            assert!(matches!(patched(json!({}), &patch).unwrap_err(), JsonPatchError::Malformed(_)));
        }
        for operation in [
            json!({"op": "test", "path": "/d", "value": "no"}),
            json!({"op": "remove", "path": "/absent"}),
            json!({"op": "frobnicate", "path": "/d"}),
            json!({"op": "replace", "path": "/no/absent", "value": 1}),
            json!({"op": "replace", "path": "", "value": 1}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "add", "path": "/l/2", "value": 1}),
            json!({"op": "remove", "path": "/l/-2"}),
            json!({"op": "remove", "path": "/l/-"}),
            json!({"op": "add", "path": "d", "value": 1}),
            json!({"op": "move", "from": "/m", "path": "/m/inner"}),
            json!({"op": "copy", "path": "/x"}),
            json!({"op": "add"}),
            json!(null),
        ] {
            let failed = patched(json!({"d": "two", "l": [1], "m": {}}), &json!([operation])).unwrap_err();
            let is_test = operation.get("op").is_some_and(|op| op == "test");
            assert_eq!(matches!(failed, JsonPatchError::TestFailed(_)), is_test, "{operation}");
            assert!(is_test || matches!(failed, JsonPatchError::Failed(_)), "{operation}");
        }
    }

    #[test]
    fn patches_cannot_blow_up() {
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); MAX_OPERATIONS + 1];
        let error = patched(json!({"a": 1}), &Value::from(many)).unwrap_err();
        assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");

        let doubling = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 100];
        assert!(matches!(patched(json!({"a": [1]}), &Value::from(doubling)), Err(JsonPatchError::Failed(_))));

        let deeper = [
            json!({"op": "add", "path": "/t", "value": {}}),
            json!({"op": "move", "from": "/x", "path": "/t/x"}),
            json!({"op": "move", "from": "/t", "path": "/x"}),
        ];
        let deeper: Vec<Value> = deeper.iter().cycle().take(9_999).cloned().collect();
        assert!(matches!(patched(json!({"x": {}}), &Value::from(deeper)), Err(JsonPatchError::Failed(_))));
    }
}
