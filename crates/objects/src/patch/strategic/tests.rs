use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::Field;

fn field(name: &str, shape: Shape, patch: PatchStrategy) -> Field {
    Field { patch, ..Field::new(name, shape) }
}

fn plain(name: &str, shape: Shape) -> Field {
    field(name, shape, PatchStrategy::default())
}

fn keyed(name: &str, item: u32, key: &str, retain_keys: bool) -> Field {
    let patch = PatchStrategy { merge: true, retain_keys, merge_key: Some(key.into()) };
    field(name, Shape::List(Box::new(Shape::Object(TypeId(item)))), patch)
}

/// A small world of pods and services in one type.
fn types() -> Types {
    let ty = |name: &str, fields: Vec<Field>| Type {
        name: name.into(),
        fields,
        atomic: false,
        preserves_unknown: false,
    };
    let text_map = || Shape::Map(Box::new(Shape::String));
    let set = PatchStrategy { merge: true, retain_keys: false, merge_key: None };
    Types::new(vec![
        ty(
            "test.Spec",
            vec![
                keyed("containers", 1, "name", false),
                keyed("volumes", 2, "name", true),
                keyed("ports", 3, "port", false),
                plain("tolerations", Shape::List(Box::new(Shape::Any))),
                plain("nodeSelector", text_map()),
                plain("labels", text_map()),
                field("finalizers", Shape::List(Box::new(Shape::String)), set.clone()),
                plain("strategy", Shape::Object(TypeId(4))),
                plain("raw", Shape::Any),
                field("broken", Shape::List(Box::new(Shape::Object(TypeId(2)))), set),
            ],
        ),
        ty(
            "test.Container",
            vec![
                plain("name", Shape::String),
                plain("image", Shape::String),
                keyed("env", 2, "name", false),
                plain("args", Shape::List(Box::new(Shape::String))),
            ],
        ),
        ty("test.Volume", vec![plain("name", Shape::String), plain("value", Shape::String)]),
        ty("test.Port", vec![plain("port", Shape::Int32)]),
        ty(
            "test.Strategy",
            vec![
                plain("type", Shape::String),
                plain("rollingUpdate", Shape::Map(Box::new(Shape::IntOrString))),
            ],
        ),
    ])
}

fn apply(current: &Value, patch: &Value) -> Result<Value, StrategicError> {
    let mut current = current.clone();
    strategic_merge(&types(), TypeId(0), &mut current, patch).map(|()| current)
}

/// Applies patches one after the other; each must give what stands beside it.
fn story(start: Value, steps: &[(Value, Value)]) {
    let mut current = start;
    for (patch, expected) in steps {
        current = apply(&current, patch).unwrap();
        assert_eq!(&current, expected, "{patch}");
    }
}

#[test]
fn containers_merge_by_name_and_new_ones_come_first() {
    let one = json!({"name": "one", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]});
    let with_env = |env: Value| json!({"name": "one", "image": "i:1", "env": env});
    let two = json!({"name": "two", "image": "i:22"});
    story(
        json!({"containers": [one, {"name": "two", "image": "i:2"}]}),
        &[
            (json!({"containers": [{"name": "two", "image": "i:22"}]}), json!({"containers": [one, two]})),
            (
                json!({"containers": [{"name": "three", "image": "i:3"}]}),
                json!({"containers": [{"name": "three", "image": "i:3"}, one, two]}),
            ),
            (
                json!({"containers": [{"name": "three", "$patch": "delete"}]}),
                json!({"containers": [one, two]}),
            ),
            (
                json!({"containers": [{"name": "one", "env": [{"name": "B", "value": "x"}, {"name": "C", "value": "3"}]}]}),
                json!({"containers": [with_env(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "x"},
                    {"name": "C", "value": "3"}])), two]}),
            ),
            (
                json!({"containers": [{"name": "one", "env": [{"name": "A", "$patch": "delete"}]}]}),
                json!({"containers": [with_env(json!([{"name": "B", "value": "x"}, {"name": "C", "value": "3"}])), two]}),
            ),
            (
                json!({"containers": [{"name": "one", "env": null}]}),
                json!({"containers": [{"name": "one", "image": "i:1"}, two]}),
            ),
        ],
    );
    let error =
        apply(&json!({"containers": [one]}), &json!({"containers": [{"image": "nokey"}]})).unwrap_err();
    let message = "map: map[image:nokey] does not contain declared merge key: name";
    assert_eq!(error, StrategicError::Internal(message.to_owned()));
}

#[test]
fn ports_merge_by_number() {
    story(
        json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}),
        &[
            (
                json!({"ports": [{"port": 81, "targetPort": 8081}]}),
                json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": 8081}]}),
            ),
            (
                json!({"ports": [{"port": 82, "name": "c"}]}),
                json!({"ports": [{"name": "c", "port": 82}, {"name": "a", "port": 80},
                    {"name": "b", "port": 81, "targetPort": 8081}]}),
            ),
            (
                json!({"ports": [{"port": 80, "$patch": "delete"}]}),
                json!({"ports": [{"name": "c", "port": 82}, {"name": "b", "port": 81, "targetPort": 8081}]}),
            ),
            (
                json!({"ports": [{"name": "only", "port": 99}, {"$patch": "replace"}]}),
                json!({"ports": [{"name": "only", "port": 99}]}),
            ),
        ],
    );
}

#[test]
fn directives_replace_delete_and_retain() {
    story(
        json!({"labels": {"a": "1", "b": "2"}, "nodeSelector": {"x": "1", "y": "2"}, "tolerations": [{"key": "a"}],
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "volumes": [{"name": "v", "emptyDir": {}}]}),
        &[
            (
                json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                "volumes": [{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}],
                "tolerations": [{"key": "b"}], "nodeSelector": {"x": null, "z": "3"}, "labels": {"$patch": "delete"}}),
                json!({"strategy": {"type": "Recreate"}, "volumes": [{"name": "v", "configMap": {"name": "c"}}],
                "tolerations": [{"key": "b"}], "nodeSelector": {"y": "2", "z": "3"}, "labels": {}}),
            ),
            (
                json!({"volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}}],
                "nodeSelector": {"$patch": "replace", "only": "me"},
                "strategy": {"$retainKeys": ["type", "rollingUpdate"], "rollingUpdate": {"maxSurge": 3}}}),
                json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 3}},
                "volumes": [{"name": "w", "emptyDir": {}}], "tolerations": [{"key": "b"}],
                "nodeSelector": {"only": "me"}, "labels": {}}),
            ),
        ],
    );
    // A directive for what is not there is forgotten, even a nonsensical one.
    assert_eq!(apply(&json!({}), &json!({"labels": {"$patch": "nonsense"}})), Ok(json!({})));
    let error =
        apply(&json!({"labels": {"a": "b"}}), &json!({"labels": {"$patch": "nonsense"}})).unwrap_err();
    assert_eq!(error.to_string(), "unknown patch type: nonsense in map: map[$patch:nonsense]");
    let patch = json!({"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}});
    let error = apply(&json!({"strategy": {}}), &patch).unwrap_err();
    assert_eq!(error, StrategicError::BadRequest("invalid patch format of retainKeys".to_owned()));
}

#[test]
fn the_given_order_wins() {
    let names = |value: &Value| -> Vec<String> {
        value["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let current = json!({"containers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:2"}]});
    let current = apply(
        &current,
        &json!({"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}],
            "containers": [{"name": "two", "image": "z:1"}]}),
    )
    .unwrap();
    assert_eq!(
        current,
        json!({"containers": [{"name": "two", "image": "z:1"}, {"name": "one", "image": "i:1"}]})
    );
    let current = apply(
        &current,
        &json!({"$setElementOrder/containers": [{"name": "one"}, {"name": "new"}, {"name": "two"}],
            "containers": [{"name": "new", "image": "z:2"}]}),
    )
    .unwrap();
    assert_eq!(names(&current), ["one", "new", "two"]);
    let error = apply(
        &current,
        &json!({"$setElementOrder/containers": [{"name": "two"}], "containers": [{"name": "one", "image": "q:1"}]}),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "The order in patch list:\n[map[image:q:1 name:one]]\n doesn't match $setElementOrder list:\n[map[name:two]]\n"
    );
    let inner = json!({"containers": [{"name": "one", "env": [{"name": "A"}, {"name": "B"}]}]});
    let patch =
        json!({"containers": [{"name": "one", "$setElementOrder/env": [{"name": "B"}, {"name": "A"}]}]});
    assert_eq!(
        apply(&inner, &patch),
        Ok(json!({"containers": [{"name": "one", "env": [{"name": "B"}, {"name": "A"}]}]}))
    );
    // Items the order does not name keep their place among the others.
    let patch = json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]});
    let current = json!({"containers": [{"name": "x"}, {"name": "a"}, {"name": "y"}, {"name": "c"}]});
    assert_eq!(names(&apply(&current, &patch).unwrap()), ["x", "y", "c", "a"]);
}

#[test]
fn scalars_with_merge_strategy_are_sets() {
    story(
        json!({"finalizers": ["a/x", "b/x"]}),
        &[
            (json!({"finalizers": ["c/x", "b/x"]}), json!({"finalizers": ["c/x", "a/x", "b/x"]})),
            (json!({"$deleteFromPrimitiveList/finalizers": ["b/x"]}), json!({"finalizers": ["c/x", "a/x"]})),
            (
                json!({"$setElementOrder/finalizers": ["a/x", "d/x"], "finalizers": ["d/x"]}),
                json!({"finalizers": ["c/x", "a/x", "d/x"]}),
            ),
            (json!({"finalizers": []}), json!({"finalizers": ["c/x", "a/x", "d/x"]})),
            (json!({"finalizers": null}), json!({})),
            (json!({"$deleteFromPrimitiveList/finalizers": ["b/x"]}), json!({})),
        ],
    );
}

#[test]
fn what_is_new_arrives_without_nulls_and_directives() {
    let patch = json!({"containers": [{"name": "a", "image": null, "$setElementOrder/env": [], "env": [
        {"name": "X", "value": null}, {"name": "Y", "$patch": "delete"}]}], "unheard": {"of": null, "me": 1}});
    let result = json!({"containers": [{"name": "a", "env": [{"name": "X"}]}], "unheard": {"me": 1}});
    assert_eq!(apply(&json!({}), &patch), Ok(result.clone()));
    assert_eq!(apply(&json!({"containers": []}), &patch), Ok(result));
}

#[test]
fn unreasonable_patches_are_refused_by_class() {
    let current = json!({"finalizers": ["a"], "containers": [{"name": "a"}], "unheard": {}, "broken": [{}], "raw": {"a": {"b": [1]}}});
    for (patch, class) in [
        (json!({"$deleteFromPrimitiveList": ["a"]}), 400),
        (json!({"$setElementOrder": []}), 400),
        (json!([]), 400),
        (json!({"finalizers": [["a"]]}), 422),
        (json!({"finalizers": [1]}), 500),
        (json!({"containers": ["a"]}), 500),
        (json!({"unheard": {}}), 500),
        (json!({"broken": [{}]}), 500),
        (json!({"$setElementOrder/finalizers": 1}), 500),
        (json!({"$setElementOrder/finalizers": [], "finalizers": 1}), 500),
        (json!({"containers": [{"name": "a", "$patch": "merge"}]}), 500),
        (json!({"containers": [{"$patch": "delete"}]}), 500),
    ] {
        let found = match apply(&current, &patch) {
            Ok(_) => 200,
            Err(StrategicError::BadRequest(_)) => 400,
            Err(StrategicError::Unprocessable(_)) => 422,
            Err(StrategicError::Internal(_)) => 500,
        };
        assert_eq!(found, class, "{patch}");
    }
    // Where nothing is known, maps merge and lists are replaced.
    let merged = apply(&current, &json!({"raw": {"a": {"b": [2], "c": 1}}})).unwrap();
    assert_eq!(merged["raw"], json!({"a": {"b": [2], "c": 1}}));
}

#[test]
fn long_lists_merge_in_linear_time() {
    let items: Vec<Value> = (0..50_000).map(|i| json!({"name": format!("c{i}")})).collect();
    let order: Vec<Value> = items.iter().rev().cloned().collect();
    let patch = json!({"$setElementOrder/containers": order, "containers": order});
    let merged = apply(&json!({"containers": items}), &patch).unwrap();
    assert_eq!(merged["containers"], Value::Array(order));
}

fn object() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-D]", "[0-3]", 0..4)
        .prop_map(|m| m.iter().map(|(k, v)| json!({"name": k, "value": v})).collect::<Vec<Value>>());
    let container = (env, prop::option::of("[0-3]")).prop_map(|(env, image)| {
        let mut container = json!({ "env": env });
        if let Some(image) = image {
            container["image"] = image.into();
        }
        container
    });
    let containers = prop::collection::hash_map("[a-e]", container, 0..5).prop_map(|m| {
        let named = m.into_iter().map(|(name, mut container)| {
            container["name"] = name.into();
            container
        });
        named.collect::<Vec<Value>>()
    });
    let set = prop::collection::hash_set("[a-e]", 0..5).prop_map(|s| s.into_iter().collect::<Vec<String>>());
    let labels = prop::collection::btree_map("[a-d]", "[0-3]", 0..4);
    (containers, set, labels).prop_map(|(containers, finalizers, labels)| {
        json!({"containers": containers, "finalizers": finalizers, "labels": labels, "tolerations": finalizers})
    })
}

proptest! {
    #[test]
    fn an_empty_patch_changes_nothing(current in object()) {
        prop_assert_eq!(apply(&current, &json!({})), Ok(current));
    }

    #[test]
    fn an_object_patched_with_itself_stays(current in object()) {
        prop_assert_eq!(apply(&current, &current), Ok(current));
    }

    #[test]
    fn twice_is_once(current in object(), patch in object()) {
        let once = apply(&current, &patch).unwrap();
        prop_assert_eq!(apply(&once, &patch), Ok(once));
    }

    #[test]
    fn a_replaced_object_is_the_patch(current in object(), patch in object()) {
        let mut replacing = patch.clone();
        replacing["$patch"] = "replace".into();
        prop_assert_eq!(apply(&current, &replacing), Ok(patch));
    }
}
