//! The ConversionReview that a webhook is sent, and the one it answers with.

use serde_json::{Value, json};
use shoal_objects::{Errors, Path, meta};

use crate::kinds::access::{part, str_at};

/// What is wrong with an object that came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is another object.
    Object(String),
    /// Its metadata is not what metadata must be.
    Metadata(String),
}

impl Wrong {
    /// The text, for the object at a place of the answer.
    pub fn at(&self, index: usize) -> String {
        match self {
            Wrong::Object(why) => format!("converted object at index {index}: {why}"),
            Wrong::Metadata(why) => format!("metadata in object at index {index}: {why}"),
        }
    }
}

/// `GROUP/VERSION, Kind=KIND` of an object.
pub fn kind_of(object: &Value) -> String {
    format!("{}, Kind={}", str_at(object, "apiVersion"), str_at(object, "kind"))
}

/// The question.
pub fn question(uid: &str, version: &str, api_version: &str, objects: &[Value]) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
    })
}

/// Reads the answer. What does not answer this question, or says that it failed, is an error.
pub fn answer(body: &[u8], uid: &str, version: &str) -> Result<Vec<Value>, String> {
    let mut review: Value =
        serde_json::from_slice(body).map_err(|e| format!("the answer is not JSON: {e}"))?;
    let strict = version == "v1";
    let (kind, api_version) = (str_at(&review, "kind"), str_at(&review, "apiVersion"));
    if strict && (kind != "ConversionReview" || api_version != "apiextensions.k8s.io/v1") {
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {api_version}, Kind={kind}"
        ));
    }
    let response = part(&review, "response");
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let given = str_at(response, "uid");
    if strict && given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let result = part(response, "result");
    match (str_at(result, "status"), str_at(result, "message")) {
        ("Success", _) => {}
        (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => return Err(message.to_owned()),
    }
    match review["response"]["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        Value::Null => Ok(Vec::new()),
        _ => Err("response.convertedObjects is not a list".to_owned()),
    }
}

/// An object that came back, with the metadata of the original one but for labels and annotations.
pub fn checked(original: &Value, mut converted: Value, api_version: &str) -> Result<Value, Wrong> {
    let given = str_at(&converted, "apiVersion");
    if given != api_version {
        let why = format!("invalid groupVersion (expected {api_version}, received {given})");
        return Err(Wrong::Object(why));
    }
    let (expected, kind) = (str_at(original, "kind"), str_at(&converted, "kind"));
    if kind != expected {
        return Err(Wrong::Object(format!("invalid kind (expected {expected}, received {kind})")));
    }
    type Read = fn(&Value) -> &str;
    let same: [(&str, Read); 3] = [("name", meta::name), ("namespace", meta::namespace), ("UID", meta::uid)];
    for (name, read) in same {
        let (was, is) = (read(original), read(&converted));
        if was != is {
            return Err(Wrong::Object(format!("must have the same {name}: {was} != {is}")));
        }
    }
    let given = match converted.get_mut("metadata").map(Value::take) {
        Some(Value::Object(members)) => members,
        Some(_) => return Err(Wrong::Metadata("invalid metadata in converted object".to_owned())),
        None => return Err(Wrong::Metadata("missing metadata in converted object".to_owned())),
    };
    let mut metadata = part(original, "metadata").clone();
    for field in ["labels", "annotations"] {
        let Some(members) = metadata.as_object_mut() else { continue };
        match given.get(field) {
            None | Some(Value::Null) => {
                members.remove(field);
            }
            Some(texts) => {
                check_texts(field, texts)?;
                members.insert(field.to_owned(), texts.clone());
            }
        }
    }
    let changed = metadata != *part(original, "metadata");
    converted["metadata"] = metadata;
    if changed {
        let mut errors = Errors::new();
        let path = Path::new("metadata");
        let namespaced = !meta::namespace(original).is_empty();
        meta::validate_custom_metadata(&converted, &path, namespaced, |_| Vec::new(), &mut errors);
        errors.0.retain(|e| {
            e.field.starts_with("metadata.labels") || e.field.starts_with("metadata.annotations")
        });
        if !errors.is_empty() {
            return Err(Wrong::Metadata(errors.to_string()));
        }
    }
    Ok(converted)
}

fn check_texts(field: &str, texts: &Value) -> Result<(), Wrong> {
    let Some(members) = texts.as_object() else {
        return Err(Wrong::Metadata(format!("invalid metadata.{field} in converted object")));
    };
    match members.iter().find(|(_, value)| !value.is_string()) {
        Some((key, _)) => {
            Err(Wrong::Metadata(format!("metadata.{field}[{key}] must be a string in converted object")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"},
        }})
    }

    fn back(pointer: &str, value: Value) -> Result<Value, Wrong> {
        let mut converted = original();
        converted["apiVersion"] = "g/v2".into();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        converted.pointer_mut(parent).unwrap()[field] = value;
        checked(&original(), converted, "g/v2")
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_can_change() {
        let back_again = back("/metadata/resourceVersion", json!("99")).unwrap();
        assert_eq!(back_again["metadata"], original()["metadata"]);
        let relabelled = back("/metadata/labels", json!({"x": "y"})).unwrap();
        assert_eq!(relabelled["metadata"]["labels"], json!({"x": "y"}));
        assert_eq!(back("/metadata/labels", Value::Null).unwrap()["metadata"].get("labels"), None);
        for (pointer, value) in [
            ("/metadata/name", json!("b")),
            ("/metadata/namespace", json!("m")),
            ("/metadata/uid", json!("v")),
            ("/kind", json!("Other")),
            ("/apiVersion", json!("g/v3")),
        ] {
            assert!(matches!(back(pointer, value), Err(Wrong::Object(_))), "{pointer}");
        }
        for (pointer, value) in [
            ("/metadata/labels", json!({"x": 1})),
            ("/metadata/labels", json!("x")),
            ("/metadata/labels", json!({"not a label": "y"})),
        ] {
            assert!(matches!(back(pointer, value.clone()), Err(Wrong::Metadata(_))), "{value}");
        }
    }

    #[test]
    fn answers_to_other_questions_and_failures_are_errors() {
        let read = |review: Value| answer(review.to_string().as_bytes(), "u", "v1");
        let review = |response: Value| {
            read(
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}),
            )
        };
        let good = json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]});
        assert_eq!(review(good.clone()), Ok(vec![json!({})]));
        assert!(answer(b"<html>", "u", "v1").is_err());
        assert!(read(json!({"response": good})).is_err());
        assert_eq!(review(Value::Null), Err("no response provided".to_owned()));
        assert!(review(json!({"uid": "x", "result": {"status": "Success"}})).is_err());
        assert_eq!(
            review(json!({"uid": "u", "result": {"status": "Failed", "message": "no way"}})),
            Err("no way".to_owned())
        );
        assert!(review(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": 1})).is_err());
    }
}
