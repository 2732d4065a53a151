//! One operation on a path, and how it is written.

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use super::parameters::Parameter;

/// What an operation is about.
pub struct Operation<'a> {
    /// `get`, `list`, `patch`, …
    pub action: &'static str,
    /// `replaceAppsV1NamespacedDeployment`
    pub id: String,
    /// For people.
    pub description: String,
    /// What it takes in the query.
    pub query: Vec<Parameter>,
    /// Formats and model of the body.
    pub body: Option<(&'static [&'static str], String)>,
    /// Codes of success.
    pub codes: &'static [&'static str],
    /// The model of the answers; none means text.
    pub answer: Option<String>,
    /// Formats of the answers.
    pub produces: &'static [&'static str],
    /// Group, version and kind it is about.
    pub kind: Option<(&'a str, &'a str, &'a str)>,
}

/// A query parameter.
pub fn query(dialect: Dialect, (name, kind, description): &Parameter) -> Value {
    dialect.parameter(name, "query", kind, description)
}

/// The operation object.
pub fn render(dialect: Dialect, operation: Operation<'_>, tag: &str) -> Value {
    let Operation { action, id, description, query: own, body, codes, answer, produces, kind } = operation;
    let mut parameters: Vec<Value> = own.iter().map(|p| query(dialect, p)).collect();
    let schema = match &answer {
        Some(model) => dialect.reference(model),
        None => json!({"type": "string"}),
    };
    let mut responses = Map::new();
    for code in codes {
        let meaning = match *code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        let response = match dialect {
            Dialect::V2 => json!({"description": meaning, "schema": schema}),
            Dialect::V3 => json!({"description": meaning, "content": content(produces, &schema)}),
        };
        responses.insert((*code).into(), response);
    }
    responses.insert("401".into(), json!({"description": "Unauthorized"}));

    let mut whole = Map::new();
    if let Some((formats, model)) = body {
        let schema = dialect.reference(&model);
        let required = !action.starts_with("delete");
        match dialect {
            Dialect::V2 => {
                parameters
                    .push(json!({"in": "body", "name": "body", "schema": schema, "required": required}));
                whole.insert("consumes".into(), json!(formats));
            }
            Dialect::V3 => {
                let request = json!({"content": content(formats, &schema), "required": required});
                whole.insert("requestBody".into(), request);
            }
        }
    }
    if dialect == Dialect::V2 {
        whole.insert("produces".into(), json!(produces));
        whole.insert("schemes".into(), json!(["https"]));
    }
    if !parameters.is_empty() {
        whole.insert("parameters".into(), parameters.into());
    }
    whole.insert("description".into(), description.into());
    whole.insert("operationId".into(), id.into());
    whole.insert("responses".into(), responses.into());
    whole.insert("tags".into(), json!([tag]));
    if !action.is_empty() {
        whole.insert("x-kubernetes-action".into(), action.into());
    }
    if let Some((group, version, kind)) = kind {
        let kind = json!({"group": group, "version": version, "kind": kind});
        whole.insert("x-kubernetes-group-version-kind".into(), kind);
    }
    Value::Object(whole)
}

fn content(formats: &[&str], schema: &Value) -> Value {
    formats
        .iter()
        .map(|format| ((*format).to_owned(), json!({"schema": schema})))
        .collect::<Map<_, _>>()
        .into()
}
