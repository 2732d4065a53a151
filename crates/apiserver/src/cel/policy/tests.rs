use std::sync::Arc;

use serde_json::{Value, json};
use shoal_objects::Path;

use super::super::authorizer::Decision;
use super::super::budget::PER_OBJECT;
use super::{AdmissionInput, Budget, Evaluation, Policy, enforce};

fn compile(spec: &Value) -> Policy {
    Policy::compile(spec, &Path::new("spec")).expect("policy")
}

fn evaluate(spec: &Value, object: &Value, old_object: &Value, params: &Value) -> Evaluation {
    let request = json!({"operation": "CREATE", "name": "a", "namespace": "ns", "userInfo": {"username": "u"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}});
    let namespace = json!({"metadata": {"name": "ns", "labels": {"team": "t"}}});
    let input = AdmissionInput {
        object,
        old_object,
        request: &request,
        namespace: &namespace,
        params,
        authorize: Some(Arc::new(|question| Decision {
            allowed: question.verb == "get" && question.resource == "configmaps",
            ..Decision::default()
        })),
    };
    compile(spec).evaluate(&input, &mut Budget::new(PER_OBJECT))
}

fn messages(spec: &Value, object: &Value) -> Vec<String> {
    let evaluation = evaluate(spec, object, &Value::Null, &json!({"limit": 3}));
    evaluation.failures.into_iter().map(|failure| failure.message).collect()
}

/// The policy of the recorded scenario.
fn recorded() -> Value {
    json!({"failurePolicy": "Fail", "validations": [
        {"expression": "!has(object.data) || !('forbidden' in object.data)", "message": "forbidden key",
         "reason": "Forbidden"},
        {"expression": "oldObject == null || object.data.?k == oldObject.data.?k",
         "messageExpression": "'k changed to ' + object.data.k"},
    ]})
}

#[test]
fn the_recorded_policy_denies_as_recorded() {
    let object = json!({"data": {"forbidden": "1"}});
    let evaluation = evaluate(&recorded(), &object, &Value::Null, &Value::Null);
    let denial = enforce("p", "b", &["Deny"], &evaluation).denial.expect("denied");
    assert_eq!(
        (denial.message.as_str(), denial.reason.as_str(), denial.code),
        ("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: forbidden key", "Forbidden", 403)
    );
    let (new, old) = (json!({"data": {"k": "2"}}), json!({"data": {"k": "1"}}));
    let denial = enforce("p", "b", &["Deny"], &evaluate(&recorded(), &new, &old, &Value::Null)).denial;
    let denial = denial.expect("denied");
    assert_eq!(
        (denial.message.as_str(), denial.reason.as_str(), denial.code),
        ("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: k changed to 2", "Invalid", 422)
    );
    let other = json!({"data": {"k": "1", "other": "2"}});
    assert_eq!(evaluate(&recorded(), &other, &old, &Value::Null), Evaluation::default());
}

#[test]
fn a_bad_expression_is_refused_at_its_place() {
    let spec = json!({"validations": [{"expression": "object."}]});
    let errors = Policy::compile(&spec, &Path::new("spec")).expect_err("refused");
    assert_eq!(errors.0[0].field, "spec.validations[0].expression");
    assert_eq!(errors.0[0].reason.as_str(), "FieldValueInvalid");
    let spec = json!({
        "variables": [{"name": "v", "expression": "1 +"}],
        "matchConditions": [{"name": "m", "expression": "1"}],
        "validations": [{"expression": "params.x == 1"}, {"expression": "variables.nope"},
            {"expression": "true", "messageExpression": "1"}, {"expression": "request.foo == ''"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "1"}],
    });
    let errors = Policy::compile(&spec, &Path::new("spec")).expect_err("refused");
    let found: Vec<(&str, &str)> =
        errors.0.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
    for (field, text) in [
        ("spec.matchConditions[0].expression", "must evaluate to bool"),
        ("spec.variables[0].expression", "Syntax error"),
        ("spec.validations[0].expression", "undeclared reference to 'params'"),
        ("spec.validations[1].expression", "undefined field 'nope'"),
        ("spec.validations[2].messageExpression", "must evaluate to string"),
        ("spec.validations[3].expression", "undefined field 'foo'"),
        ("spec.auditAnnotations[0].valueExpression", "must evaluate to one of [string null]"),
    ] {
        assert!(found.iter().any(|(f, m)| *f == field && m.contains(text)), "{field}: {found:?}");
    }
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn variables_are_computed_when_needed_and_see_earlier_ones() {
    let spec = json!({"paramKind": {"kind": "P"},
    "variables": [
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "twice", "expression": "variables.replicas * 2"},
        {"name": "broken", "expression": "1 / 0"},
    ],
    "validations": [
        {"expression": "variables.twice <= params.limit", "messageExpression": "'twice is ' + string(variables.twice)"},
        {"expression": "true || variables.broken == 1"},
    ]});
    assert_eq!(messages(&spec, &json!({"spec": {"replicas": 1}})), Vec::<String>::new());
    assert_eq!(messages(&spec, &json!({"spec": {"replicas": 2}})), ["twice is 4"]);
}

#[test]
fn conditions_leave_requests_alone_and_errors_follow_the_failure_policy() {
    let spec = |condition: &str, failure: &str| {
        json!({"failurePolicy": failure, "matchConditions": [{"name": "c", "expression": condition}],
            "validations": [{"expression": "object.missing == 1"}]})
    };
    let object = json!({});
    assert_eq!(messages(&spec("false", "Fail"), &object), Vec::<String>::new());
    assert_eq!(
        messages(&spec("true", "Fail"), &object),
        ["expression 'object.missing == 1' resulted in error: no such key: missing"]
    );
    assert_eq!(messages(&spec("true", "Ignore"), &object), Vec::<String>::new());
    assert_eq!(messages(&spec("object.x", "Ignore"), &object), Vec::<String>::new());
    assert!(messages(&spec("object.x", "Fail"), &object)[0].contains("matchCondition 'c'"));
}

#[test]
fn the_request_the_namespace_and_the_authorizer_are_known() {
    let spec = json!({"validations": [
        {"expression": "request.operation == 'CREATE' && request.userInfo.username == 'u'"},
        {"expression": "request.namespace == 'ns' && request.resource.resource == 'configmaps'"},
        {"expression": "namespaceObject.metadata.labels['team'] == 't'"},
        {"expression": "authorizer.group('').resource('configmaps').namespace('ns').check('get').allowed()"},
        {"expression": "authorizer.requestResource.check('get').allowed()"},
        {"expression": "authorizer.path('/healthz').check('get').allowed()", "message": "no path"},
    ]});
    assert_eq!(messages(&spec, &json!({})), ["no path"]);
}

#[test]
fn bindings_warn_and_audit_without_denying() {
    let spec = json!({"validations": [{"expression": "false"}, {"expression": "false", "message": "m"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}, {"key": "n", "valueExpression": "null"}]});
    let evaluation = evaluate(&spec, &json!({}), &Value::Null, &Value::Null);
    let verdict = enforce("p", "b", &["Warn", "Audit"], &evaluation);
    assert_eq!(verdict.denial, None);
    assert_eq!(
        verdict.warnings,
        [
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false",
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': m",
        ]
    );
    assert_eq!(verdict.audit_annotations[0], ("p/k".to_owned(), "v".to_owned()));
    assert_eq!(verdict.audit_annotations[1].0, "validation.policy.admission.k8s.io/validation_failure");
    assert_eq!(verdict.audit_annotations.len(), 2);
    let entries: Value = serde_json::from_str(&verdict.audit_annotations[1].1).expect("json");
    assert_eq!(entries[1]["expressionIndex"], 1);
}
