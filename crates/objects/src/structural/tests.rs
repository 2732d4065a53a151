//! Claims about whole schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::invalid::{Errors, Path, Reason};

fn complaints(schema: &Value) -> Vec<(String, &'static str)> {
    let mut errors = Errors::new();
    let path = Path::new("s");
    check(schema, &path, &mut errors);
    if errors.is_empty() {
        check_defaults(&Schema::parse(schema), &path, &mut errors);
    }
    errors.0.into_iter().map(|e| (e.field, e.reason.as_str())).collect()
}

fn faults(schema: &Value, object: &Value) -> Vec<(String, Reason)> {
    let schema = Schema::parse(schema);
    let mut errors = Errors::new();
    validate(&schema, object, None, &mut errors);
    validate_list_types(&schema, object, &mut errors);
    errors.0.into_iter().map(|e| (e.field, e.reason)).collect()
}

#[test]
fn schemas_that_are_not_structural_are_refused_where_they_are_not() {
    let spec = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
    for (schema, field, reason) in [
        (json!({}), "s.type", "FieldValueRequired"),
        (json!({"type": "string"}), "s.type", "FieldValueInvalid"),
        (spec(json!({})), "s.properties[spec].type", "FieldValueRequired"),
        (spec(json!({"type": "array"})), "s.properties[spec].items", "FieldValueRequired"),
        (
            spec(json!({"type": "object", "allOf": [{"properties": {"a": {"minimum": 1}}}]})),
            "s.properties[spec].properties[a]",
            "FieldValueRequired",
        ),
        (
            spec(json!({"type": "object", "oneOf": [{"description": "x"}]})),
            "s.properties[spec].oneOf[0].description",
            "FieldValueForbidden",
        ),
        (spec(json!({"type": "string", "pattern": "("})), "s.properties[spec].pattern", "FieldValueInvalid"),
        (spec(json!({"type": "object", "$ref": "#"})), "s.properties[spec].$ref", "FieldValueForbidden"),
        (
            spec(json!({"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}})),
            "s.properties[spec].default",
            "FieldValueInvalid",
        ),
        (
            spec(json!({"type": "integer", "default": "x"})),
            "s.properties[spec].default",
            "FieldValueTypeInvalid",
        ),
    ] {
        assert_eq!(complaints(&schema), [(field.to_owned(), reason)], "{schema}");
    }
}

#[test]
fn int_or_string_may_be_written_out() {
    let any = json!([{"type": "integer"}, {"type": "string"}]);
    for field in [
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": any}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": any}, {"pattern": "x"}]}),
    ] {
        let schema = json!({"type": "object", "properties": {"f": field}});
        assert_eq!(complaints(&schema), [], "{schema}");
    }
}

#[test]
fn deep_schemas_are_refused_and_not_walked() {
    let mut schema = json!({"type": "string"});
    for _ in 0..500 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    assert!(!complaints(&schema).is_empty());
    let parsed = Schema::parse(&schema);
    let mut value = json!("x");
    for _ in 0..500 {
        value = json!({"a": value});
    }
    prune(&parsed, &mut value);
    default(&parsed, &mut value);
    drop_nulls(&parsed, &mut value);
    validate(&parsed, &value, None, &mut Errors::new());
    to_types(&parsed, |_| None);
}

#[test]
fn unknown_fields_go_unless_they_are_preserved() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object"}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}}},
        }},
    }}));
    let mut object = json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "n"}, "extra": 1,
        "spec": {"free": {"x": {"y": 1}, "known": {"a": "1", "b": 2}}, "map": {"k": {"x": 1}},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "what": 1}, "spec": {"z": 1}, "no": 1}}});
    let mut unknown = Vec::new();
    prune_noting(&schema, &mut object, &mut unknown);
    assert_eq!(
        object,
        json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "n"},
        "spec": {"free": {"x": {"y": 1}, "known": {"a": "1"}}, "map": {"k": {}},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}}})
    );
    let wanted = [
        "extra",
        "spec.free.known.b",
        "spec.map.k.x",
        "spec.pod.metadata.what",
        "spec.pod.no",
        "spec.pod.spec.z",
    ];
    assert_eq!(unknown, wanted);
}

#[test]
fn defaults_replace_what_is_absent_or_null() {
    let schema = Schema::parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {},
        "properties": {"a": {"type": "integer", "default": 3}, "n": {"type": "string", "nullable": true, "default": "d"},
            "gone": {"type": "string"}, "l": {"type": "array", "items": {"type": "object",
                "properties": {"v": {"type": "integer", "default": 1}}}}}}}}),
    );
    let run = |mut object: Value| {
        default(&schema, &mut object);
        drop_nulls(&schema, &mut object);
        object
    };
    assert_eq!(run(json!({})), json!({"spec": {"a": 3, "n": "d"}}));
    assert_eq!(
        run(json!({"spec": {"a": null, "n": null, "gone": null, "l": [{}, {"v": 2}]}})),
        json!({"spec": {"a": 3, "n": null, "l": [{"v": 1}, {"v": 2}]}})
    );
}

#[test]
fn values_are_refused_with_place_and_reason() {
    let schema = json!({"type": "object", "required": ["r"], "properties": {
        "n": {"type": "integer", "minimum": 1, "exclusiveMinimum": true},
        "s": {"type": "string", "maxLength": 2},
        "u": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        "i": {"x-kubernetes-int-or-string": true},
        "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "r": {"type": "number"},
    }});
    for (object, field, reason) in [
        (json!({}), "r", Reason::Required),
        (json!({"r": "x"}), "r", Reason::TypeInvalid),
        (json!({"r": 1, "n": 1}), "n", Reason::Invalid),
        (json!({"r": 1, "n": 1.5}), "n", Reason::TypeInvalid),
        (json!({"r": 1, "s": "äöü"}), "s", Reason::TooLong),
        (json!({"r": 1, "u": ["a", "a"]}), "u[1]", Reason::Duplicate),
        (json!({"r": 1, "m": [{"k": "1"}, {"k": "1"}]}), "m[1]", Reason::Duplicate),
        (json!({"r": 1, "i": true}), "i", Reason::TypeInvalid),
        (json!({"r": 1, "one": {"a": 1, "b": 1}}), "<nil>", Reason::Invalid),
        (json!({"r": null}), "r", Reason::TypeInvalid),
    ] {
        assert_eq!(faults(&schema, &object), [(field.to_owned(), reason)], "{object}");
    }
    for good in [json!({"r": 1.5, "n": 2, "s": "äö"}), json!({"r": 1, "i": "50%", "one": {"a": 1}, "n": 3.0})]
    {
        assert_eq!(faults(&schema, &good), [], "{good}");
    }
}

#[test]
fn what_was_wrong_before_is_not_held_against_a_change() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1}}}));
    let mut errors = Errors::new();
    validate(&schema, &json!({"a": "old", "b": "new"}), Some(&json!({"a": "old", "b": "x"})), &mut errors);
    assert_eq!(errors.0.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["b"]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("(type|properties|items|default|allOf|enum|a|b)", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics_and_pruning_and_defaulting_are_done_once(schema in any_json(), object in any_json()) {
        check(&schema, &Path::new("s"), &mut Errors::new());
        let schema = Schema::parse(&schema);
        check_defaults(&schema, &Path::new("s"), &mut Errors::new());
        let mut once = object;
        prune(&schema, &mut once);
        let mut twice = once.clone();
        prune(&schema, &mut twice);
        prop_assert_eq!(&once, &twice);
        default(&schema, &mut once);
        let mut twice = once.clone();
        default(&schema, &mut twice);
        prop_assert_eq!(&once, &twice);
        validate(&schema, &once, None, &mut Errors::new());
        validate_list_types(&schema, &once, &mut Errors::new());
        validate_embedded(&schema, &once, &mut Errors::new());
        to_types(&schema, |_| None);
    }
}
