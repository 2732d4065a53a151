//! Webhooks and admission policies.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME, UNSET, count, text};
use crate::kinds::access::{at, entries_at, field, list_at, str_at};

const PARAM_KIND: Column = Column::text("ParamKind", "The kind of the policy's parameters.", |o, _| {
    at(o, &["spec", "paramKind"]).map_or(UNSET.into(), |kind| {
        format!("{}/{}", str_at(kind, "apiVersion"), str_at(kind, "kind")).into()
    })
});

/// Columns of webhook configurations.
pub static WEBHOOKS: &[Column] = &[
    NAME,
    Column::number("Webhooks", "How many webhooks there are.", |o, _| count(o, &["webhooks"]).into()),
    AGE,
];

/// Columns of validating admission policies.
pub static VALIDATING_POLICY: &[Column] = &[
    NAME,
    Column::number("Validations", "How many validations there are.", |o, _| {
        count(o, &["spec", "validations"]).into()
    }),
    PARAM_KIND,
    AGE,
];

/// Columns of mutating admission policies.
pub static MUTATING_POLICY: &[Column] = &[
    NAME,
    Column::number("Mutations", "How many mutations there are.", |o, _| {
        count(o, &["spec", "mutations"]).into()
    }),
    PARAM_KIND,
    AGE,
];

/// Columns of bindings of admission policies.
pub static POLICY_BINDING: &[Column] = &[
    NAME,
    Column::text("PolicyName", "The policy that is put to use.", |o, _| text(o, &["spec", "policyName"])),
    Column::text("ParamRef", "The parameters it is used with.", |o, _| param_ref(o).into()),
    AGE,
];

/// Without a namespace it is not known here whether the parameters live in one.
fn param_ref(binding: &Value) -> String {
    let reference = at(binding, &["spec", "paramRef"]).unwrap_or(&Value::Null);
    match (str_at(reference, "name"), str_at(reference, "namespace")) {
        ("", _) => field(reference, "selector").map_or(UNSET.to_owned(), go_selector),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    }
}

/// A selector the way Go prints the generated type, for that is what people see.
fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<String> = entries_at(selector, "matchLabels")
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort_unstable();
    let expressions = list_at(selector, "matchExpressions").iter().map(|expression| {
        let values: Vec<&str> = list_at(expression, "values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (str_at(expression, "key"), str_at(expression, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.collect::<String>()
    )
}
