//! Mutating policies: expressions that say how an object is to be changed.

use serde_json::Value;
use shoal_objects::Path;
use shoal_objects::invalid::Errors;

use super::super::types::{JSON_PATCH, OBJECT};
use super::super::{Budget, CelValue, Env, Program, Type};
use super::{AdmissionInput, MatchConditions, Variables, admission_env, items, text};

/// A compiled MutatingAdmissionPolicy.
#[derive(Debug)]
pub struct MutatingPolicy {
    conditions: MatchConditions,
    variables: Variables,
    mutations: Vec<Mutation>,
}

#[derive(Debug)]
struct Mutation {
    source: String,
    program: Program,
    is_apply: bool,
}

/// What a mutation wants changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// These fields, laid over the object as server-side apply does.
    Apply(Value),
    /// These operations of a JSON patch.
    Json(Value),
}

impl MutatingPolicy {
    /// Compiles the `spec` of a policy that stands at `path`.
    pub fn compile(spec: &Value, path: &Path<'_>) -> Result<MutatingPolicy, Errors> {
        let mut errors = Errors::new();
        let mut env = admission_env(spec.get("paramKind").is_some_and(Value::is_object));
        let conditions = MatchConditions::compile(spec, &env, path, &mut errors);
        env.objects = true;
        let variables = Variables::compile(spec, &mut env, path, &mut errors);
        let list = path.child("mutations");
        let mut mutations = Vec::new();
        for (index, item) in items(spec, "mutations") {
            mutations.extend(compile_mutation(item, &env, &list.index(index), &mut errors));
        }
        if errors.is_empty() { Ok(MutatingPolicy { conditions, variables, mutations }) } else { Err(errors) }
    }

    /// Whether errors refuse the request.
    pub fn fails_closed(&self) -> bool {
        self.conditions.fails_closed
    }

    /// How many mutations there are.
    pub fn count(&self) -> usize {
        self.mutations.len()
    }

    /// Whether the policy's conditions hold for a request that its constraints match.
    pub fn is_about(&self, input: &AdmissionInput<'_>, budget: &mut Budget) -> Result<bool, String> {
        self.conditions.hold(&self.variables.bind(input), budget)
    }

    /// What the mutation with that index wants changed.
    pub fn patch(
        &self,
        index: usize,
        input: &AdmissionInput<'_>,
        budget: &mut Budget,
    ) -> Result<Patch, String> {
        let Some(Mutation { source, program, is_apply }) = self.mutations.get(index) else {
            return Err(format!("there is no mutation {index}"));
        };
        let bindings = self.variables.bind(input);
        let value = program
            .eval(&bindings, budget)
            .map_err(|error| format!("expression '{source}' resulted in error: {error}"))?;
        match value {
            CelValue::Map(_) if *is_apply => Ok(Patch::Apply(value.to_json())),
            CelValue::List(_) if !is_apply => Ok(Patch::Json(value.to_json())),
            other if *is_apply => {
                let found = other.type_name();
                Err(format!("unsupported return type from ApplyConfiguration expression: {found}"))
            }
            _ => Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned()),
        }
    }
}

fn compile_mutation(item: &Value, env: &Env, path: &Path<'_>, errors: &mut Errors) -> Option<Mutation> {
    let is_apply = text(item, "patchType") == "ApplyConfiguration";
    let field = if is_apply { "applyConfiguration" } else { "jsonPatch" };
    let expected = if is_apply { OBJECT } else { Type::list(JSON_PATCH) };
    let source = item.get(field).map(|patch| text(patch, "expression")).unwrap_or_default().trim();
    let why = match Program::compile(source, env) {
        Ok(program) if gives(&program, &expected) => {
            return Some(Mutation { source: source.to_owned(), program, is_apply });
        }
        Ok(_) => format!("must evaluate to {expected}"),
        Err(error) => format!("compilation failed: {error}"),
    };
    let place = path.child(field);
    errors.invalid_str(&place.child("expression"), source, &why);
    None
}

/// An empty list is one of patches too.
fn gives(program: &Program, expected: &Type) -> bool {
    let given = program.result_type();
    *given != Type::Null && expected.accepts(given, &mut Default::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::budget::PER_OBJECT;
    use super::*;

    fn spec(kind: &str, expression: &str) -> Value {
        let field = if kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
        json!({"mutations": [{"patchType": kind, field: {"expression": expression}}]})
    }

    fn patch(spec: &Value, object: &Value) -> Result<Patch, String> {
        let policy = MutatingPolicy::compile(spec, &Path::new("spec")).expect("policy");
        let nothing = Value::Null;
        let input = AdmissionInput {
            object,
            old_object: &nothing,
            request: &json!({"operation": "CREATE"}),
            namespace: &nothing,
            params: &nothing,
            authorize: None,
        };
        policy.patch(0, &input, &mut Budget::new(PER_OBJECT))
    }

    fn refusal(spec: &Value) -> String {
        MutatingPolicy::compile(spec, &Path::new("spec")).expect_err("refused").to_string()
    }

    #[test]
    fn an_object_becomes_a_configuration() {
        let spec = spec(
            "ApplyConfiguration",
            "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: object.metadata.name}, ?annotations: optional.none()}, \
             spec: Object.spec{containers: [Object.spec.containers{name: 'c'}]}}",
        );
        let made = patch(&spec, &json!({"metadata": {"name": "n"}}));
        let wanted = json!({"metadata": {"labels": {"a": "n"}}, "spec": {"containers": [{"name": "c"}]}});
        assert_eq!(made, Ok(Patch::Apply(wanted)));
    }

    #[test]
    fn operations_become_a_json_patch() {
        let text = "has(object.x) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), \
                    value: Object.metadata.labels{x: 'y'}}, JSONPatch{op: 'move', from: '/a', path: '/b'}]";
        let made = patch(&spec("JSONPatch", text), &json!({}));
        let wanted = json!([
            {"op": "add", "path": "/metadata/labels/a~1b", "value": {"x": "y"}},
            {"op": "move", "from": "/a", "path": "/b"},
        ]);
        assert_eq!(made, Ok(Patch::Json(wanted)));
        assert_eq!(patch(&spec("JSONPatch", text), &json!({"x": 1})), Ok(Patch::Json(json!([]))));
    }

    #[test]
    fn what_is_no_patch_does_not_compile() {
        for (kind, expression, told) in [
            ("ApplyConfiguration", "{'a': 1}", "must evaluate to Object"),
            ("ApplyConfiguration", "null", "must evaluate to Object"),
            ("ApplyConfiguration", "[Object{}]", "must evaluate to Object"),
            ("ApplyConfiguration", "Object{spec: Object.wrong{}}", "unexpected type name"),
            ("ApplyConfiguration", "Object{a: [Object.b{}]}", "unexpected type name"),
            ("ApplyConfiguration", "Other{}", "undeclared reference to 'Other'"),
            ("JSONPatch", "JSONPatch{op: 'add'}", "must evaluate to list(JSONPatch)"),
            ("JSONPatch", "['add']", "must evaluate to list(JSONPatch)"),
            ("JSONPatch", "[JSONPatch{operation: 'add'}]", "undefined field 'operation'"),
            ("JSONPatch", "[", "compilation failed"),
        ] {
            let told_us = refusal(&spec(kind, expression));
            assert!(told_us.contains(told), "{expression}: {told_us}");
        }
    }
}
