use serde_json::{Value, json};
use shoal_objects::Path;
use shoal_objects::invalid::Errors;

use super::{CompiledRules, validate_rules};

fn compile(schema: &Value) -> Result<CompiledRules, Errors> {
    let root = Path::new("spec");
    CompiledRules::compile(schema, &root.child("validation").child("openAPIV3Schema"))
}

fn causes(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<(String, String, &'static str)> {
    let rules = compile(schema).expect("rules");
    let mut errors = Errors::new();
    validate_rules(&rules, new, old, &mut errors);
    errors.0.into_iter().map(|error| (error.field, error.message, error.reason.as_str())).collect()
}

fn refused(schema: &Value) -> Vec<(String, String)> {
    let errors = compile(schema).err().map(|errors| errors.0).unwrap_or_default();
    errors.into_iter().map(|error| (error.field, error.message)).collect()
}

/// The schema of the recorded scenario.
fn widget() -> Value {
    json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "message": "min must not exceed max"},
            {"rule": "!has(self.kind) || self.kind in ['x','y']", "messageExpression": "'kind was ' + self.kind",
             "fieldPath": ".kind", "reason": "FieldValueForbidden"},
        ],
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 100"}]},
            "kind": {"type": "string"},
            "immutable": {"type": "string",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
            "grow": {"type": "integer",
                "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "may only grow"}]},
            "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10},
                "x-kubernetes-validations": [{"rule": "self.all(n, n.startsWith(\"n-\"))", "message": "n- prefix"}]},
        },
    }}})
}

#[test]
fn the_recorded_complaints_are_made() {
    for (spec, field, message, reason) in [
        (json!({"min": 5, "max": 3}), "spec", "Invalid value: min must not exceed max", "FieldValueInvalid"),
        (
            json!({"min": 1, "max": 200}),
            "spec.max",
            "Invalid value: 200: failed rule: self < 100",
            "FieldValueInvalid",
        ),
        (
            json!({"min": 1, "max": 2, "kind": "z"}),
            "spec.kind",
            "Forbidden: kind was z",
            "FieldValueForbidden",
        ),
        (
            json!({"min": 1, "max": 2, "names": ["n-a", "b"]}),
            "spec.names",
            "Invalid value: n- prefix",
            "FieldValueInvalid",
        ),
    ] {
        let found = causes(&widget(), &json!({"spec": spec}), None);
        assert_eq!(found, [(field.to_owned(), message.to_owned(), reason)]);
    }
    let good = json!({"spec": {"min": 1, "max": 2, "immutable": "v", "grow": 5, "names": ["n-a"]}});
    assert_eq!(causes(&widget(), &good, None), []);
}

#[test]
fn transition_rules_compare_with_the_old_value_where_there_is_one() {
    let old = json!({"spec": {"min": 1, "max": 2, "immutable": "v", "grow": 5}});
    let change = |spec: Value| causes(&widget(), &json!({"spec": spec}), Some(&old));
    let immutable = change(json!({"min": 1, "max": 2, "immutable": "w", "grow": 5}));
    assert_eq!(
        immutable,
        [("spec.immutable".to_owned(), "Invalid value: \"w\": is immutable".to_owned(), "FieldValueInvalid")]
    );
    let grow = change(json!({"min": 1, "max": 2, "immutable": "v", "grow": 4}));
    assert_eq!(
        grow,
        [("spec.grow".to_owned(), "Invalid value: 4: may only grow".to_owned(), "FieldValueInvalid")]
    );
    assert_eq!(change(json!({"min": 1, "max": 2, "immutable": "v", "grow": 6})), []);
    assert_eq!(change(json!({"min": 1, "max": 2})), []);
}

#[test]
fn parts_that_did_not_change_are_not_complained_about() {
    let old = json!({"spec": {"min": 1, "max": 200}, "x": 1});
    let new = json!({"spec": {"min": 1, "max": 200}});
    assert_eq!(causes(&widget(), &new, Some(&old)), []);
    let new = json!({"spec": {"min": 1, "max": 201}});
    assert_eq!(causes(&widget(), &new, Some(&old)).len(), 1);
}

#[test]
fn errors_of_evaluation_are_complaints() {
    let found = causes(&widget(), &json!({"spec": {"min": 1}}), None);
    assert_eq!(found[0].1, "Invalid value: no such key: max evaluating rule: min must not exceed max");
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.port > 1"}],
        "properties": {"port": {"x-kubernetes-int-or-string": true}}});
    let found = causes(&schema, &json!({"port": "a"}), None);
    assert_eq!(found[0].0, "<nil>");
    assert!(found[0].1.contains("'no such overload': call arguments did not match"), "{}", found[0].1);
}

#[test]
fn an_exhausted_budget_ends_the_validation() {
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"},
    "x-kubernetes-validations": [
        {"rule": "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"},
        {"rule": "false"}
    ]}}});
    let list: Vec<i32> = (1..1000).collect();
    let found = causes(&schema, &json!({"l": list}), None);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("no further validation rules will be run"), "{}", found[0].1);
}

#[test]
fn items_of_keyed_lists_have_a_past_and_others_do_not() {
    let items = |kind: &str| {
        json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": kind,
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}]}}}})
    };
    let old = json!({"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]});
    let new = json!({"l": [{"k": "b", "v": 4}, {"k": "a", "v": 2}, {"k": "c", "v": 0}]});
    let found = causes(&items("map"), &new, Some(&old));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "l[0]");
    let refused = refused(&items("atomic"));
    assert!(refused[0].1.contains("oldSelf cannot be used on the uncorrelatable portion"), "{refused:?}");
}

#[test]
fn an_optional_old_value_lets_a_rule_run_on_creation() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "x-kubernetes-validations": [
        {"rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 0", "optionalOldSelf": true}]}}});
    assert_eq!(causes(&schema, &json!({"a": 1}), None).len(), 1);
    assert_eq!(causes(&schema, &json!({"a": 0}), None).len(), 0);
    assert_eq!(causes(&schema, &json!({"a": 3}), Some(&json!({"a": 2}))).len(), 0);
    assert_eq!(causes(&schema, &json!({"a": 1}), Some(&json!({"a": 2}))).len(), 1);
}

#[test]
fn maps_and_the_whole_object_have_rules_too() {
    let schema = json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('w')", "reason": "FieldValueDuplicate"}],
        "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "reason": "FieldValueRequired"}]}}}});
    let found = causes(&schema, &json!({"metadata": {"name": "x"}, "m": {"a": 1, "b": 0}}), None);
    assert_eq!(found[0], ("<nil>".to_owned(), "Duplicate value".to_owned(), "FieldValueDuplicate"));
    assert_eq!(found[1].0, "m[b]");
    assert_eq!(found[1].1, "Required value: failed rule: self > 0");
}

#[test]
fn bad_rules_are_refused_with_their_place() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
    "properties": {"a": {"type": "integer"}},
    "x-kubernetes-validations": [
        {"rule": "self.b > 1"},
        {"rule": "self.a"},
        {"rule": "self.a > 1", "messageExpression": "self.a"},
        {"rule": "self.a > 1", "messageExpression": "self.c"},
        {"rule": "self.a > 1", "reason": "Nope"},
        {"rule": "self.a > 1", "fieldPath": ".nope"},
        {"rule": "self.a >\n 1"},
        {"rule": "self.a > 1", "optionalOldSelf": true},
        {"rule": ""},
    ]}}});
    let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations";
    let found = refused(&schema);
    assert_eq!(found[0].0, format!("{place}[0].rule"));
    assert_eq!(
        found[0].1,
        "Invalid value: {\"Rule\":\"self.b > 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\
         \"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n \
         | self.b > 1\n | ....^"
    );
    let expected = [
        ("[1].rule", "cel expression must evaluate to a bool"),
        ("[2].messageExpression", "messageExpression must evaluate to a string"),
        ("[3].messageExpression", "messageExpression compilation failed: ERROR"),
        ("[4].reason", "Unsupported value: \"Nope\""),
        ("[5].fieldPath", "fieldPath must be a valid path: does not refer to a valid field"),
        ("[6].message", "message must be specified if rule contains line breaks"),
        ("[7].optionalOldSelf", "may not be set if oldSelf is not used in rule"),
    ];
    assert_eq!(found.len(), expected.len() + 1, "{found:?}");
    for ((field, message), (suffix, text)) in found[1..].iter().zip(expected) {
        assert_eq!(*field, format!("{place}{suffix}"));
        assert!(message.contains(text), "{message}");
    }
}
