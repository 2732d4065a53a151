//! Which objects are meant: label selectors, as text or as an object, and field selectors.

use std::fmt;

use serde_json::Value;

use crate::Map;
use crate::invalid::{Errors, Path};
use crate::{meta, names};

mod fields;
mod parse;

pub use fields::{FieldOperator, FieldRequirement, FieldSelector};

/// How a label's value is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `k=v`
    Equals,
    /// `k==v`
    DoubleEquals,
    /// `k!=v`
    NotEquals,
    /// `k in (a,b)`
    In,
    /// `k notin (a,b)`
    NotIn,
    /// `k`
    Exists,
    /// `!k`
    DoesNotExist,
    /// `k>1`
    GreaterThan,
    /// `k<1`
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, each once.
    values: Vec<String>,
}

/// Conditions on labels that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
    /// Nothing at all is meant, whatever the requirements.
    nothing: bool,
}

impl LabelSelector {
    /// Selects every object.
    pub const EVERYTHING: LabelSelector = LabelSelector { requirements: Vec::new(), nothing: false };
    /// Selects no object.
    pub const NOTHING: LabelSelector = LabelSelector { requirements: Vec::new(), nothing: true };

    /// Reads the text form, `app=web,tier in (a,b),!canary`. The error is what the real server says.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        parse::requirements(text).map(LabelSelector::new)
    }

    /// Reads a `LabelSelector` object. No object (absent or null) selects nothing, an empty one everything.
    pub fn from_object(object: Option<&Value>) -> Result<LabelSelector, String> {
        let Some(object) = object.filter(|o| !o.is_null()) else {
            return Ok(LabelSelector::NOTHING);
        };
        let mut requirements = Vec::new();
        if let Some(labels) = object.get("matchLabels").and_then(Value::as_object) {
            requirements.extend(equalities(labels));
        }
        for expression in list(object, "matchExpressions") {
            let operator = match text(expression, "operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = list(expression, "values").iter().filter_map(Value::as_str).map(str::to_owned);
            requirements.push(Requirement::new(text(expression, "key"), operator, values.collect())?);
        }
        Ok(LabelSelector::new(requirements))
    }

    /// Selects what carries all these labels, as the selector of a Service does.
    pub fn from_labels(labels: &Map) -> LabelSelector {
        LabelSelector::new(equalities(labels).collect())
    }

    fn new(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements, nothing: false }
    }

    /// Whether an object whose labels are read by `get` is meant.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }

    /// Whether this object is meant.
    pub fn matches_object(&self, obj: &Value) -> bool {
        self.matches(|key| meta::label(obj, key))
    }

    /// Whether a set of labels is meant.
    pub fn matches_labels(&self, labels: Option<&Map>) -> bool {
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// The labels that must have one certain value, and the value. An index finds objects by them.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        let exact =
            |r: &&Requirement| matches!(r.operator, Operator::Equals | Operator::DoubleEquals | Operator::In);
        self.requirements.iter().filter(exact).filter_map(|r| match &r.values[..] {
            [value] => Some((&*r.key, &**value)),
            _ => None,
        })
    }

    /// Whether every object is meant.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The conditions, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    /// A condition; the error lists everything that is wrong with it.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Requirement, String> {
        values.sort();
        values.dedup();
        let mut errors = Errors::new();
        let (key_path, values_path) = (Path::new("key"), Path::new("values"));
        let found = names::qualified_name(key);
        if !found.is_empty() {
            errors.invalid_str(&key_path, key, &found.join("; "));
        }
        let complaint = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                "for 'in', 'notin' operators, values set can't be empty"
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                "exact-match compatibility requires one single value"
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                "values set must be empty for exists and does not exist"
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            _ => "",
        };
        if !complaint.is_empty() {
            errors.invalid(&values_path, &Value::from(values.clone()), complaint);
        }
        for (index, value) in values.iter().enumerate() {
            let numeric = matches!(operator, Operator::GreaterThan | Operator::LessThan);
            if numeric && value.parse::<i64>().is_err() {
                let complaint = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.invalid_str(&values_path.index(index), value, complaint);
            }
            let found = names::label_value(value);
            if !found.is_empty() {
                errors.invalid_str(&values_path.index(index).key(key), value, &found.join("; "));
            }
        }
        if errors.is_empty() {
            Ok(Requirement { key: key.to_owned(), operator, values })
        } else {
            Err(errors.to_string())
        }
    }

    /// The label tested.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it is tested.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it is tested against, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.binary_search_by(|v| v.as_str().cmp(value)).is_ok();
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(is_listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(is_listed),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                let (Some(left), Some(right)) =
                    (value.and_then(number), self.values.first().and_then(|v| number(v)))
                else {
                    return false;
                };
                if self.operator == Operator::GreaterThan { left > right } else { left < right }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// Checks a `LabelSelector` object.
pub fn validate_label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        meta::validate_labels(labels, &path.child("matchLabels"), errors);
    }
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions");
        let path = path.index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.required(&path.child("values"), detail);
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.forbidden(&path.child("values"), detail);
                }
            }
            other => errors.invalid_str(&path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        for message in names::qualified_name(key) {
            errors.invalid_str(&path.child("key"), key, &message);
        }
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for message in names::label_value(value) {
                errors.invalid_str(&path.child("values").index(index), value, &message);
            }
        }
    }
}

/// Labels are compared as they are: a selector of labels is not checked for form.
fn equalities(labels: &Map) -> impl Iterator<Item = Requirement> {
    labels.iter().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: Operator::Equals,
        values: vec![value.as_str().unwrap_or_default().to_owned()],
    })
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
