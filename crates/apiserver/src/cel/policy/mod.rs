//! Admission policies as pure functions: [`Policy::compile`] when a policy is created, [`Policy::evaluate`] for a request
//! that it matches, and [`enforce`] for what a binding makes of the result.

mod decide;
mod environment;
mod mutation;

use serde_json::Value;
use shoal_objects::Path;
use shoal_objects::invalid::Errors;

use super::rules::computed;
use super::{Bindings, Budget, Env, Program, Type};

pub use decide::{Denial, Verdict, enforce};
pub use environment::{AdmissionInput, admission_env, bind};
pub use mutation::{MutatingPolicy, Patch};

/// A compiled ValidatingAdmissionPolicy.
#[derive(Debug)]
pub struct Policy {
    conditions: MatchConditions,
    variables: Variables,
    validations: Vec<Validation>,
    audit_annotations: Vec<(String, String, Program)>,
}

/// Compiled `variables`: where each is bound, and what computes it.
#[derive(Debug, Default)]
struct Variables(Vec<(usize, Program)>);

/// Compiled `matchConditions`, of policies and of webhooks.
#[derive(Debug, Default)]
pub struct MatchConditions {
    conditions: Vec<(String, Program)>,
    fails_closed: bool,
}

#[derive(Debug)]
struct Validation {
    source: String,
    program: Program,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: Option<String>,
}

/// What a validation says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// The reason for the Status.
    pub reason: Option<String>,
    /// Which validation, if it was one.
    pub index: usize,
}

/// What a policy says about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The validations that failed, in order; nothing when the request is fine or the conditions do not match.
    pub failures: Vec<Failure>,
    /// Keys and values to be put into the audit log.
    pub audit_annotations: Vec<(String, String)>,
}

/// Reads one field that must be an expression of some type.
fn compile_at(
    item: &Value,
    field: &str,
    types: &[Type],
    env: &Env,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Program> {
    let source = text(item, field);
    if source.trim().is_empty() {
        return None;
    }
    let why = match Program::compile(source, env) {
        Ok(program) if types.iter().any(|expected| program.gives(expected)) => return Some(program),
        Ok(_) => match types {
            [one] => format!("must evaluate to {one}"),
            several => {
                let names: Vec<String> = several.iter().map(Type::to_string).collect();
                format!("must evaluate to one of [{}]", names.join(" "))
            }
        },
        Err(error) => format!("compilation failed: {error}"),
    };
    errors.invalid_str(&path.child(field), source, &why);
    None
}

fn text<'v>(item: &'v Value, field: &str) -> &'v str {
    item.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn owned(item: &Value, field: &str) -> Option<String> {
    Some(text(item, field).trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn items<'v>(spec: &'v Value, field: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    spec.get(field).and_then(Value::as_array).into_iter().flatten().enumerate()
}

impl MatchConditions {
    /// Compiles the `matchConditions` of a webhook or policy at `path`; its `failurePolicy` says what errors mean.
    pub fn compile(owner: &Value, env: &Env, path: &Path<'_>, errors: &mut Errors) -> MatchConditions {
        let list = path.child("matchConditions");
        let mut conditions = Vec::new();
        for (index, item) in items(owner, "matchConditions") {
            let program = compile_at(item, "expression", &[Type::Bool], env, &list.index(index), errors);
            conditions.extend(program.map(|program| (text(item, "name").to_owned(), program)));
        }
        MatchConditions { conditions, fails_closed: text(owner, "failurePolicy") != "Ignore" }
    }

    /// Whether all conditions hold. One that does not decides even when others cannot be evaluated; after such an error a
    /// fail-closed owner refuses the request (`Err`), another one does not care about it.
    pub fn hold<'a>(&'a self, bindings: &Bindings<'a>, budget: &mut Budget) -> Result<bool, String> {
        let mut failed = None;
        for (name, program) in &self.conditions {
            match program.eval(bindings, budget) {
                Ok(value) if value.as_bool() == Some(true) => {}
                Ok(value) if value.as_bool() == Some(false) => return Ok(false),
                Ok(_) => failed = failed.or_else(|| Some(format!("matchCondition '{name}' gave no bool"))),
                Err(error) => {
                    let text = || format!("expression of matchCondition '{name}' resulted in error: {error}");
                    failed = failed.or_else(|| Some(text()));
                }
            }
        }
        match failed {
            None => Ok(true),
            Some(error) if self.fails_closed => Err(error),
            Some(_) => Ok(false),
        }
    }
}

impl Variables {
    /// Compiles the `variables` of a policy at `path`, and declares each for those that follow.
    fn compile(spec: &Value, env: &mut Env, path: &Path<'_>, errors: &mut Errors) -> Variables {
        let mut variables = Vec::new();
        let list = path.child("variables");
        for (index, item) in items(spec, "variables") {
            match Program::compile(text(item, "expression"), env) {
                Ok(program) => {
                    let name = format!("variables.{}", text(item, "name"));
                    let place = env.declare(&name, program.result_type().clone());
                    variables.push((place, program));
                }
                Err(error) => {
                    let place = list.index(index);
                    let why = format!("compilation failed: {error}");
                    errors.invalid_str(&place.child("expression"), text(item, "expression"), &why);
                }
            }
        }
        Variables(variables)
    }

    /// What expressions can refer to.
    fn bind<'a>(&'a self, input: &AdmissionInput<'a>) -> Bindings<'a> {
        let mut bindings = bind(input);
        for (place, program) in &self.0 {
            bindings.set_lazy(*place, program);
        }
        bindings
    }
}

impl Policy {
    /// Whether errors refuse the request.
    pub fn fails_closed(&self) -> bool {
        self.conditions.fails_closed
    }

    /// Compiles the `spec` of a policy that stands at `path`.
    pub fn compile(spec: &Value, path: &Path<'_>) -> Result<Policy, Errors> {
        let mut errors = Errors::new();
        let mut env = admission_env(spec.get("paramKind").is_some_and(Value::is_object));
        let conditions = MatchConditions::compile(spec, &env, path, &mut errors);
        let variables = Variables::compile(spec, &mut env, path, &mut errors);
        let mut validations = Vec::new();
        let list = path.child("validations");
        for (index, item) in items(spec, "validations") {
            let place = list.index(index);
            let program = compile_at(item, "expression", &[Type::Bool], &env, &place, &mut errors);
            let message_expression =
                compile_at(item, "messageExpression", &[Type::String], &env, &place, &mut errors);
            validations.extend(program.map(|program| Validation {
                source: text(item, "expression").trim().to_owned(),
                program,
                message: owned(item, "message"),
                message_expression,
                reason: owned(item, "reason"),
            }));
        }
        let mut audit_annotations = Vec::new();
        let list = path.child("auditAnnotations");
        for (index, item) in items(spec, "auditAnnotations") {
            let (place, types) = (list.index(index), [Type::String, Type::Null]);
            let program = compile_at(item, "valueExpression", &types, &env, &place, &mut errors);
            let source = text(item, "valueExpression").to_owned();
            audit_annotations.extend(program.map(|program| (text(item, "key").to_owned(), source, program)));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Policy { conditions, variables, validations, audit_annotations })
    }

    /// What the policy says about a request that its constraints match.
    pub fn evaluate(&self, input: &AdmissionInput<'_>, budget: &mut Budget) -> Evaluation {
        let bindings = self.variables.bind(input);
        let mut evaluation = Evaluation::default();
        match self.conditions.hold(&bindings, budget) {
            Ok(true) => {}
            Ok(false) => return evaluation,
            Err(message) => {
                evaluation.failures.push(Failure { message, reason: None, index: 0 });
                return evaluation;
            }
        }
        for (index, validation) in self.validations.iter().enumerate() {
            evaluation.failures.extend(self.validate(validation, index, &bindings, budget));
        }
        for (key, source, program) in &self.audit_annotations {
            match program.eval(&bindings, budget) {
                Ok(value) => {
                    let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
                    evaluation.audit_annotations.extend(text.map(|text| (key.clone(), text.to_owned())));
                }
                Err(error) if self.conditions.fails_closed => {
                    let message = format!("expression '{source}' resulted in error: {error}");
                    evaluation.failures.push(Failure { message, reason: None, index: 0 });
                }
                Err(_) => {}
            }
        }
        evaluation
    }

    fn validate<'a>(
        &'a self,
        validation: &'a Validation,
        index: usize,
        bindings: &Bindings<'a>,
        budget: &mut Budget,
    ) -> Option<Failure> {
        let message = match validation.program.eval(bindings, budget) {
            Ok(value) if value.as_bool() == Some(true) => return None,
            Ok(_) => {
                let expression = validation.message_expression.as_ref();
                let computed = expression.and_then(|program| computed(program, bindings, budget));
                let fixed = || validation.message.clone();
                computed.or_else(fixed).unwrap_or_else(|| format!("failed expression: {}", validation.source))
            }
            Err(error) if self.conditions.fails_closed => {
                format!("expression '{}' resulted in error: {error}", validation.source)
            }
            Err(_) => return None,
        };
        Some(Failure { message, reason: validation.reason.clone(), index })
    }
}

#[cfg(test)]
mod tests;
