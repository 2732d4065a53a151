//! Expressions and what becomes of them.

mod errors;
mod hostile;
mod properties;
mod values;

use serde_json::{Value, json};

use super::{Bindings, Budget, CelValue, Env, EvalError, Program, Type, schema};

/// The environment of the tests: `self` with a schema, `object` without.
struct World {
    env: Env,
    own: Value,
    object: Value,
}

impl World {
    fn new() -> World {
        let spec = json!({"type": "object", "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "ratio": {"type": "number"},
            "name": {"type": "string"},
            "note": {"type": "string", "nullable": true},
            "namespace": {"type": "string"},
            "a.b-c/d__e": {"type": "string"},
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "data": {"type": "string", "format": "byte"},
            "port": {"x-kubernetes-int-or-string": true},
            "names": {"type": "array", "items": {"type": "string"}},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "items": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "size": {"type": "integer"}}}},
        }});
        let own = json!({
            "min": 1, "max": 5, "ratio": 3, "name": "héllo", "note": null, "namespace": "ns", "a.b-c/d__e": "odd",
            "when": "2024-02-29T12:30:45Z", "wait": "90s", "data": "aGk=", "port": "http",
            "names": ["a", "b", "c"], "tags": ["x", "y"], "labels": {"k": "v", "l": "w"},
            "items": [{"name": "one", "size": 3}, {"name": "two"}], "hidden": 1,
        });
        let object =
            json!({"metadata": {"name": "n", "namespace": "ns"}, "data": {"k": "v"}, "n": 3, "f": 1.5});
        let mut env = Env::new();
        env.declare("self", schema::type_of(&spec, false));
        env.declare("object", Type::Dyn);
        env.declare("nothing", Type::Dyn);
        World { env, own, object }
    }

    /// The value as JSON, or the error's text.
    fn eval(&self, source: &str) -> Result<Value, String> {
        let program = Program::compile(source, &self.env).map_err(|error| error.to_string())?;
        let mut budget = Budget::new(super::budget::PER_CALL);
        let result = self.run(&program, &mut budget, |value| value.to_json());
        result.map_err(|error| error.to_string())
    }

    fn run<T>(
        &self,
        program: &Program,
        budget: &mut Budget,
        read: impl Fn(CelValue<'_>) -> T,
    ) -> Result<T, EvalError> {
        let ty = self.env.type_at(0).unwrap();
        let mut bindings = Bindings::new();
        bindings.set_json(0, &self.own, ty);
        bindings.set_json(1, &self.object, &Type::Dyn);
        bindings.set(2, CelValue::Null);
        program.eval(&bindings, budget).map(read)
    }
}

/// Checks a table of expressions and results.
fn holds(table: &[(&str, Value)]) {
    let world = World::new();
    for (source, expected) in table {
        assert_eq!(world.eval(source).as_ref(), Ok(expected), "{source}");
    }
}

/// Checks a table of expressions that are true.
fn all_true(table: &[&str]) {
    let world = World::new();
    for source in table {
        assert_eq!(world.eval(source), Ok(Value::Bool(true)), "{source}");
    }
}

/// Checks a table of expressions and the texts of their errors.
fn fails(table: &[(&str, &str)]) {
    let world = World::new();
    for (source, expected) in table {
        let error = world.eval(source).expect_err(source);
        assert!(error.contains(expected), "{source}: {error}");
    }
}
