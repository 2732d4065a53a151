use proptest::prelude::*;
use serde_json::json;

use super::*;

fn selected(selector: &str) -> String {
    let objects = [
        ("a", json!({"app": "x", "tier": "1"})),
        ("b", json!({"app": "y"})),
        ("c", json!({"app": "z", "tier": "2"})),
        ("d", json!({})),
    ];
    let selector = LabelSelector::parse(selector).unwrap();
    let matching = objects.iter().filter(|(_, labels)| selector.matches_labels(labels.as_object()));
    matching.map(|(name, _)| *name).collect()
}

#[test]
fn text_selectors_select_as_the_real_server_does() {
    for (selector, names) in [
        ("", "abcd"),
        ("app=x", "a"),
        ("app==x", "a"),
        ("app!=x", "bcd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app in (x,y)", "ab"),
        ("app notin (x)", "bcd"),
        ("app=x,tier=1", "a"),
        ("tier!=1,app", "bc"),
        ("app in ()", ""),
        ("app in (x, z),tier notin (2)", "a"),
        ("app=", ""),
        ("tier>1", "c"),
        ("tier<2", "a"),
        ("app in (in,notin)", ""),
        ("app in (,x)", "a"),
        (" \t app \n", "abc"),
    ] {
        assert_eq!(selected(selector), names, "{selector}");
    }
}

#[test]
fn errors_are_those_of_the_real_server() {
    for (selector, error) in [
        ("app in x", "unable to parse requirement: found 'x' expected: '('"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("app=bad value", "found 'value', expected: ',' or 'end of string'"),
        ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "tier>abc",
            "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        ),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap_err(), error, "{selector}");
    }
    let error = LabelSelector::parse("a/b/c=1").unwrap_err();
    assert!(
        error.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"
        )
    );
    let error = LabelSelector::parse("a=b%").unwrap_err();
    assert!(
        error.starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"b%\": a valid label must"
        )
    );
}

#[test]
fn selectors_are_written_sorted() {
    for (selector, written) in [
        ("b=1, a in (z,y,z) ,!c,d>5", "a in (y,z),b=1,!c,d>5"),
        ("a notin (x),b!=c,d==e,f<1,g", "a notin (x),b!=c,d==e,f<1,g"),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap().to_string(), written);
    }
}

#[test]
fn objects_select_and_none_selects_nothing() {
    let selector = |object: Value| LabelSelector::from_object(Some(&object));
    let matches = |object: Value, labels: Value| selector(object).unwrap().matches_labels(labels.as_object());
    assert!(!LabelSelector::from_object(None).unwrap().matches(|_| None));
    assert!(matches(json!({}), json!({})));
    assert!(!matches(json!(null), json!({})));
    let object = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
        {"key": "b", "operator": "In", "values": ["x", "y"]}, {"key": "c", "operator": "DoesNotExist"}]});
    assert!(matches(object.clone(), json!({"a": "1", "b": "y"})));
    assert!(!matches(object.clone(), json!({"a": "1", "b": "z"})));
    assert!(!matches(object.clone(), json!({"a": "1", "b": "y", "c": ""})));
    assert_eq!(selector(object).unwrap().to_string(), "a=1,b in (x,y),!c");
    let error = selector(json!({"matchExpressions": [{"key": "a", "operator": "Nope"}]})).unwrap_err();
    assert_eq!(error, "\"Nope\" is not a valid label selector operator");
}

#[test]
fn selector_objects_are_checked() {
    let mut errors = Errors::new();
    let object = json!({"matchLabels": {"ok": "no no"}, "matchExpressions": [
        {"key": "a", "operator": "Nope"}, {"key": "b", "operator": "In"}, {"key": "/", "operator": "Exists", "values": ["x"]},
        {"key": "c", "operator": "NotIn", "values": ["no no"]}]});
    validate_label_selector(&object, &Path::new("spec").child("selector"), &mut errors);
    let found: Vec<&str> = errors.0.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(
        found,
        [
            "spec.selector.matchLabels",
            "spec.selector.matchExpressions[0].operator",
            "spec.selector.matchExpressions[1].values",
            "spec.selector.matchExpressions[2].values",
            "spec.selector.matchExpressions[2].key",
            "spec.selector.matchExpressions[2].key",
            "spec.selector.matchExpressions[2].key",
            "spec.selector.matchExpressions[3].values[0]",
        ]
    );
    assert_eq!(errors.0[1].message, "Invalid value: \"Nope\": not a valid selector operator");
}

#[test]
fn field_selectors_know_escapes() {
    let selector = FieldSelector::parse("spec.b!=c,metadata.name==a\\,b\\=\\\\").unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a,b=\\"));
    assert_eq!(selector.to_string(), "metadata.name=a\\,b\\=\\\\,spec.b!=c");
    assert!(selector.matches(|field| if field == "metadata.name" { "a,b=\\" } else { "" }));
    assert!(!selector.matches(|_| "c"));
    assert!(FieldSelector::parse(",").unwrap().is_everything());
    for (text, error) in [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (
            "metadata.name in (a)",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        ),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a=b\\n", "invalid field selector: invalid escape sequence: \\n"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ] {
        assert_eq!(FieldSelector::parse(text).unwrap_err(), error);
    }
}

#[test]
fn a_megabyte_of_nonsense_is_refused_quickly() {
    for piece in
        ["(", ")", "a in (", "!", ",", "a=b,", "a in (b),", "=", "a", " ", "é", "\0", "\\", "a!=b\\,"]
    {
        let text = piece.repeat(1_000_000 / piece.len());
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
    let values = format!("a in ({})", "v,".repeat(500_000));
    assert!(LabelSelector::parse(&values).is_ok());
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(text in "[ab!=<>(),. 0-9]{0,30}|(a|b/c) (in|notin) \\([a-c,]{0,9}\\)(,!?x=?y?)?") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
