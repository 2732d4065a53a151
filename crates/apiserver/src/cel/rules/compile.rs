//! What is wrong with the rules of a schema.

use serde_json::{Value, json};
use shoal_objects::Path;
use shoal_objects::invalid::{Errors, Reason};

use super::super::schema::{escape, list_kind, type_of};
use super::super::types::{ListKind, Type};
use super::super::{Env, Program};
use super::{CompiledRules, OLD_SELF, Place, Rule, field_path};

/// The deepest schema that is looked into.
const MAX_DEPTH: usize = 100;
/// The most rules of one schema.
const MAX_RULES: usize = 1_000;
const REASONS: [&str; 4] =
    ["FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate"];

impl CompiledRules {
    /// Compiles the rules of an `openAPIV3Schema` that stands at `path` of its definition.
    pub fn compile(schema: &Value, path: &Path<'_>) -> Result<CompiledRules, Errors> {
        let mut compiler = Compiler { errors: Errors::new(), rules: 0 };
        let root = compiler.place(schema, type_of(schema, true), path, None, 0);
        if compiler.errors.is_empty() { Ok(CompiledRules { root }) } else { Err(compiler.errors) }
    }
}

struct Compiler {
    errors: Errors,
    rules: usize,
}

impl Compiler {
    /// `uncorrelated` is the list whose items have no counterpart in the old object.
    fn place(
        &mut self,
        schema: &Value,
        ty: Type,
        path: &Path<'_>,
        uncorrelated: Option<&str>,
        depth: usize,
    ) -> Option<Place> {
        if depth > MAX_DEPTH {
            return None;
        }
        let rules = self.rules(schema, &ty, path, uncorrelated);
        let mut place = Place {
            rules,
            properties: Default::default(),
            additional: None,
            items: None,
            list: list_kind(schema),
            ty,
        };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let ty = match place.ty.plain() {
                Type::Object(object) => object.fields.get(&escape(name)).map(|field| field.ty.clone()),
                _ => None,
            };
            let (properties, ty) = (path.child("properties"), ty.unwrap_or(Type::Dyn));
            if let Some(inner) = self.place(property, ty, &properties.key(name), uncorrelated, depth + 1) {
                place.properties.insert(name.clone(), inner);
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            let ty = match place.ty.plain() {
                Type::Map(_, value) => value.as_ref().clone(),
                _ => Type::Dyn,
            };
            let inner = self.place(values, ty, &path.child("additionalProperties"), uncorrelated, depth + 1);
            place.additional = inner.map(Box::new);
        }
        if let Some(items) = schema.get("items") {
            let ty = match place.ty.plain() {
                Type::List(element, _) => element.as_ref().clone(),
                _ => Type::Dyn,
            };
            let here = path.to_string();
            let uncorrelated = match place.list {
                ListKind::Map(_) => uncorrelated,
                _ => uncorrelated.or(Some(&here)),
            };
            place.items = self.place(items, ty, &path.child("items"), uncorrelated, depth + 1).map(Box::new);
        }
        let empty = place.rules.is_empty()
            && place.properties.is_empty()
            && place.additional.is_none()
            && place.items.is_none();
        (!empty).then_some(place)
    }

    fn rules(&mut self, schema: &Value, ty: &Type, path: &Path<'_>, uncorrelated: Option<&str>) -> Vec<Rule> {
        let list = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let place = path.child("x-kubernetes-validations");
        let mut rules = Vec::new();
        for (index, rule) in list.into_iter().flatten().enumerate() {
            self.rules += 1;
            if self.rules > MAX_RULES {
                let why = format!("must have at most {MAX_RULES} rules in one schema");
                self.errors.forbidden(&place.index(index), &why);
                return rules;
            }
            rules.extend(self.rule(schema, rule, ty, &place.index(index), uncorrelated));
        }
        rules
    }

    /// A rule without a text is somebody else's complaint: the schema check has it already.
    fn rule(
        &mut self,
        schema: &Value,
        rule: &Value,
        ty: &Type,
        path: &Path<'_>,
        uncorrelated: Option<&str>,
    ) -> Option<Rule> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let source = text("rule");
        if source.trim().is_empty() {
            return None;
        }
        let before = self.errors.0.len();
        let optional_old = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let old = if optional_old == Some(true) { Type::optional(ty.clone()) } else { ty.clone() };
        let mut env = Env::new();
        // In the order of SELF and OLD_SELF.
        env.declare("self", ty.clone());
        env.declare("oldSelf", old);
        let program = self.program(source, &env, "rule", path, rule);
        let transition = program.as_ref().is_some_and(|program| program.uses(OLD_SELF));
        if let Some(list) = uncorrelated.filter(|_| transition) {
            let why =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.errors.invalid_str(&path.child("rule"), source, &why);
        }
        if optional_old.is_some() && !transition && program.is_some() {
            let why = "may not be set if oldSelf is not used in rule";
            self.errors.invalid(&path.child("optionalOldSelf"), &json!(optional_old), why);
        }
        let message_expression = self.message_expression(rule, &env, path);
        self.message(rule, path);
        let reason = self.reason(text("reason"), path);
        let field_path = self.field_path(schema, text("fieldPath"), path);
        let program = program.filter(|_| self.errors.0.len() == before)?;
        Some(Rule {
            source: source.trim().to_owned(),
            program,
            message: Some(text("message").trim()).filter(|message| !message.is_empty()).map(str::to_owned),
            message_expression,
            reason,
            field_path,
            transition,
            optional_old: optional_old == Some(true),
        })
    }

    /// Compiles the expression in one of the rule's fields.
    fn program(
        &mut self,
        source: &str,
        env: &Env,
        field: &str,
        path: &Path<'_>,
        rule: &Value,
    ) -> Option<Program> {
        let (expected, what, prefix) = match field {
            "rule" => (Type::Bool, "cel expression", ""),
            _ => (Type::String, "messageExpression", "messageExpression "),
        };
        let why = match Program::compile(source, env) {
            Ok(program) if program.gives(&expected) => return Some(program),
            Ok(_) => format!("{what} must evaluate to a {expected}"),
            Err(error) => format!("{prefix}compilation failed: {error}"),
        };
        self.refuse(&path.child(field), rule, &why);
        None
    }

    /// The complaint shows the whole rule.
    fn refuse(&mut self, path: &Path<'_>, rule: &Value, why: &str) {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let quoted = |key: &str| json!(text(key));
        let given = |key: &str| rule.get(key).cloned().unwrap_or(Value::Null);
        // The field names of the server's own type, in its order.
        let shown = format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
            quoted("rule"),
            quoted("message"),
            quoted("messageExpression"),
            given("reason"),
            quoted("fieldPath"),
            given("optionalOldSelf"),
        );
        self.errors.push(path, Reason::Invalid, format!("Invalid value: {shown}: {why}"));
    }

    fn message_expression(&mut self, rule: &Value, env: &Env, path: &Path<'_>) -> Option<Program> {
        let source =
            rule.get("messageExpression").and_then(Value::as_str).filter(|source| !source.is_empty())?;
        if source.trim().is_empty() {
            self.errors.required(&path.child("messageExpression"), "must be non-empty if specified");
            return None;
        }
        self.program(source, env, "messageExpression", path, rule)
    }

    fn message(&mut self, rule: &Value, path: &Path<'_>) {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = text("message");
        let breaks = |text: &str| text.contains(['\n', '\r']);
        let place = path.child("message");
        if !message.is_empty() && message.trim().is_empty() {
            self.errors.invalid_str(&place, message, "message must be non-empty if specified");
        } else if breaks(message.trim()) {
            self.errors.invalid_str(&place, message, "message must not contain line breaks");
        } else if breaks(text("rule").trim()) && message.is_empty() {
            self.errors.required(&place, "message must be specified if rule contains line breaks");
        }
    }

    fn reason(&mut self, reason: &str, path: &Path<'_>) -> Option<String> {
        if reason.is_empty() {
            return None;
        }
        if !REASONS.contains(&reason) {
            self.errors.not_supported(&path.child("reason"), reason, &REASONS);
        }
        Some(reason.to_owned())
    }

    fn field_path(&mut self, schema: &Value, text: &str, path: &Path<'_>) -> String {
        if text.is_empty() {
            return String::new();
        }
        match field_path::resolve(text, schema) {
            Ok(resolved) => resolved,
            Err(why) => {
                let why = format!("fieldPath must be a valid path: {why}");
                self.errors.invalid_str(&path.child("fieldPath"), text, &why);
                String::new()
            }
        }
    }
}
