//! Runs the rules of a schema over an object.

use serde_json::Value;
use shoal_objects::Path;
use shoal_objects::invalid::{Errors, Reason};

use super::super::budget::PER_OBJECT;
use super::super::types::ListKind;
use super::super::{Bindings, Budget, CelValue, EvalError, Program};
use super::{CompiledRules, OLD_SELF, Place, Rule, SELF};

/// The longest computed message, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// What the field of the whole object is called.
const ROOT: &str = "<nil>";

/// Checks an object, and the change from `old` to it. Rules about parts that did not change are not complained about,
/// unless they compare old and new.
pub fn validate_rules(rules: &CompiledRules, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(root) = &rules.root {
        let mut run = Run { budget: Budget::new(PER_OBJECT), errors };
        // `Err` only means that nothing further is checked.
        let _ = run.place(root, new, old, None, false);
    }
}

struct Run<'e> {
    budget: Budget,
    errors: &'e mut Errors,
}

/// The budget is spent.
struct Spent;

impl Run<'_> {
    fn place(
        &mut self,
        place: &Place,
        new: &Value,
        old: Option<&Value>,
        path: Option<&Path<'_>>,
        unchanged: bool,
    ) -> Result<(), Spent> {
        let unchanged = unchanged || old.is_some_and(|old| old == new);
        for rule in &place.rules {
            if unchanged && !rule.transition {
                continue;
            }
            self.rule(place, rule, new, old, path)?;
        }
        match new {
            Value::Object(fields) => {
                let old = old.and_then(Value::as_object);
                for (name, inner) in &place.properties {
                    if let Some(value) = fields.get(name) {
                        let path = path.map_or(Path::new(name), |path| path.child(name));
                        self.place(inner, value, old.and_then(|old| old.get(name)), Some(&path), unchanged)?;
                    }
                }
                if let Some(inner) = &place.additional {
                    for (name, value) in
                        fields.iter().filter(|(name, _)| !place.properties.contains_key(*name))
                    {
                        let path = path.map_or(Path::new(name), |path| path.key(name));
                        self.place(inner, value, old.and_then(|old| old.get(name)), Some(&path), unchanged)?;
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = &place.items else { return Ok(()) };
                let old = old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let before = old.and_then(|old| counterpart(&place.list, old, item));
                    // A list always stands in a field.
                    let whole = Path::new("");
                    let path = path.unwrap_or(&whole).index(index);
                    self.place(inner, item, before, Some(&path), unchanged)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rule(
        &mut self,
        place: &Place,
        rule: &Rule,
        new: &Value,
        old: Option<&Value>,
        path: Option<&Path<'_>>,
    ) -> Result<(), Spent> {
        if rule.transition && old.is_none() && !rule.optional_old {
            return Ok(());
        }
        let mut bindings = Bindings::new();
        bindings.set_json(SELF, new, &place.ty);
        if rule.transition || rule.message_expression.is_some() {
            let old = old.map(|old| CelValue::from_json(old, &place.ty));
            match old {
                Some(old) if rule.optional_old => bindings.set(OLD_SELF, old.some()),
                Some(old) => bindings.set(OLD_SELF, old),
                None if rule.optional_old => bindings.set(OLD_SELF, CelValue::Optional(None)),
                None => {}
            }
        }
        let what = rule.message.as_deref().unwrap_or(&rule.source);
        let detail = match rule.program.eval(&bindings, &mut self.budget) {
            Ok(CelValue::Bool(true)) => return Ok(()),
            Ok(CelValue::Bool(false)) => {
                let detail = self.message(rule, &bindings);
                let field = match path {
                    None if !rule.field_path.is_empty() => rule.field_path.trim_start_matches('.').to_owned(),
                    path => format!("{}{}", place_text(path), rule.field_path),
                };
                let (reason, message) = complaint(rule.reason.as_deref(), new, &detail);
                self.errors.push_at(field, reason, message);
                return Ok(());
            }
            Ok(_) | Err(EvalError::NoSuchOverload) => format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature \
                 for rule: {what}"
            ),
            Err(error @ EvalError::BudgetExceeded) => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {what}"
                );
                self.invalid(path, new, &detail);
                return Err(Spent);
            }
            Err(error) => format!("{error} evaluating rule: {what}"),
        };
        self.invalid(path, new, &detail);
        Ok(())
    }

    fn invalid(&mut self, path: Option<&Path<'_>>, value: &Value, detail: &str) {
        let (reason, message) = complaint(None, value, detail);
        self.errors.push_at(place_text(path), reason, message);
    }

    /// The computed message if there is a good one, or the fixed one.
    fn message<'a>(&mut self, rule: &'a Rule, bindings: &Bindings<'a>) -> String {
        let computed = rule
            .message_expression
            .as_ref()
            .and_then(|program| computed(program, bindings, &mut self.budget));
        computed.or_else(|| rule.message.clone()).unwrap_or_else(|| format!("failed rule: {}", rule.source))
    }
}

/// A message worth showing: one line, not empty, not too long.
pub(in crate::cel) fn computed<'a>(
    program: &'a Program,
    bindings: &Bindings<'a>,
    budget: &mut Budget,
) -> Option<String> {
    let value = program.eval(bindings, budget).ok()?;
    let text = value.as_str()?.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains(['\n', '\r'])).then(|| text.to_owned())
}

fn place_text(path: Option<&Path<'_>>) -> String {
    path.map_or_else(|| ROOT.to_owned(), Path::to_string)
}

/// Objects and lists are not shown, they would drown the message.
fn complaint(reason: Option<&str>, value: &Value, detail: &str) -> (Reason, String) {
    let shown = match value {
        Value::Object(_) | Value::Array(_) => String::new(),
        scalar => format!("{scalar}: "),
    };
    match reason {
        Some("FieldValueForbidden") => (Reason::Forbidden, format!("Forbidden: {detail}")),
        Some("FieldValueRequired") => (Reason::Required, format!("Required value: {detail}")),
        Some("FieldValueDuplicate") => {
            (Reason::Duplicate, format!("Duplicate value: {shown}").trim_end_matches([':', ' ']).to_owned())
        }
        _ => (Reason::Invalid, format!("Invalid value: {shown}{detail}")),
    }
}

/// The item of the old list that is the same by its keys. Items of other lists have no identity.
fn counterpart<'v>(kind: &ListKind, old: &'v [Value], item: &Value) -> Option<&'v Value> {
    let ListKind::Map(keys) = kind else { return None };
    old.iter().find(|candidate| keys.iter().all(|key| candidate.get(key) == item.get(key)))
}
