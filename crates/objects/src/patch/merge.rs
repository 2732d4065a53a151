//! JSON merge patch (RFC 7386).

use serde_json::Value;

use super::not_an_object;
use crate::Map;

/// Merges a patch into a document. The error says that the patch is not an object (400).
pub fn merge_patch(document: &mut Value, patch: &Value) -> Result<(), String> {
    if !patch.is_object() {
        return Err(not_an_object(patch));
    }
    json_patch::merge(document, patch);
    Ok(())
}

/// The patch that makes `to` of `from`. Nulls in `to` cannot be expressed and come out as absent.
pub fn merge_diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old @ Value::Object(_)) => {
                patch.insert(key.clone(), merge_diff(old, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        for (document, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = document;
            merge_patch(&mut merged, &patch).unwrap();
            assert_eq!(merged, result);
        }
        assert_eq!(
            merge_patch(&mut json!({}), &json!([])).unwrap_err(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..5).prop_map(Value::from),
            "[a-c]?".prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", value, 0..4).prop_map(|m| Value::Object(m.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn a_diff_applied_gives_the_other_document(a in document(), b in document()) {
            let mut patched = a.clone();
            merge_patch(&mut patched, &merge_diff(&a, &b)).unwrap();
            prop_assert_eq!(&patched, &b);
            merge_patch(&mut patched, &merge_diff(&a, &b)).unwrap();
            prop_assert_eq!(&patched, &b);
            prop_assert_eq!(merge_diff(&a, &a), json!({}));
        }

        #[test]
        fn an_empty_patch_changes_nothing(a in document()) {
            let mut patched = a.clone();
            merge_patch(&mut patched, &json!({})).unwrap();
            prop_assert_eq!(patched, a);
        }
    }
}
