//! The evaluator: walks a checked expression and pays for every step.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::budget::Budget;
use super::compare::{compare, equal};
use super::env::{Bindings, Bound};
use super::error::EvalError;
use super::library::Function;
use super::node::Node;
use super::value::{CelValue, Key};

/// The result of a step.
pub type Evaluated<'a> = Result<CelValue<'a>, EvalError>;

/// The state of an evaluation.
pub(super) struct Machine<'b, 'a> {
    bindings: &'b Bindings<'a>,
    /// What is left to spend.
    pub(super) budget: &'b mut Budget,
    /// Variables of iterations.
    pub(super) locals: Vec<CelValue<'a>>,
}

/// Evaluates a whole program.
pub(super) fn run<'a>(node: &'a Node, bindings: &Bindings<'a>, budget: &mut Budget) -> Evaluated<'a> {
    Machine { bindings, budget, locals: Vec::new() }.eval(node)
}

impl<'a> Machine<'_, 'a> {
    pub(super) fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Const(value) => Ok(value.reborrow()),
            Node::Variable(place) => self.variable(*place),
            Node::Local(place) => {
                self.budget.charge(1)?;
                self.locals.get(*place).cloned().ok_or(EvalError::text("no such attribute"))
            }
            Node::Select(operand, field) => self.select(operand, field),
            Node::OptionalSelect(operand, field) => self.optional_select(operand, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::Index(nodes) => self.index(nodes, false),
            Node::OptionalIndex(nodes) => self.index(nodes, true),
            Node::Call(functions, args) => self.call(functions, args),
            Node::Matches(text, pattern) => {
                let value = self.eval(text)?;
                let text = value.as_str().ok_or(EvalError::NoSuchOverload)?;
                Ok(CelValue::Bool(pattern.is_match(text, self.budget)?))
            }
            Node::Equal(nodes, wanted) => {
                let (a, b) = self.pair(nodes)?;
                Ok(CelValue::Bool(equal(self.budget, &a, &b)? == *wanted))
            }
            Node::Compare(nodes, comparison) => {
                let (a, b) = self.pair(nodes)?;
                Ok(CelValue::Bool(comparison.holds(compare(self.budget, &a, &b)?)))
            }
            Node::Not(operand) => match self.eval(operand)? {
                CelValue::Bool(value) => Ok(CelValue::Bool(!value)),
                _ => Err(EvalError::NoSuchOverload),
            },
            Node::And(parts) => self.logic(parts, false),
            Node::Or(parts) => self.logic(parts, true),
            Node::Ternary(nodes) => self.ternary(nodes),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::Bind(nodes) => {
                let [value, body] = nodes.as_ref();
                let value = self.eval(value)?;
                self.within(value, body)
            }
            Node::OptMap(nodes, flat) => self.opt_map(nodes, *flat),
        }
    }

    fn pair(&mut self, nodes: &'a [Node; 2]) -> Result<(CelValue<'a>, CelValue<'a>), EvalError> {
        let [a, b] = nodes;
        self.budget.charge(1)?;
        Ok((self.eval(a)?, self.eval(b)?))
    }

    /// Evaluates `body` with one more variable.
    pub(super) fn within(&mut self, value: CelValue<'a>, body: &'a Node) -> Evaluated<'a> {
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.pop();
        result
    }

    fn variable(&mut self, place: usize) -> Evaluated<'a> {
        self.budget.charge(1)?;
        match self.bindings.get(place) {
            Bound::Value(value) => Ok(value),
            Bound::Unset => Err(EvalError::text("no such attribute")),
            Bound::Lazy(program, cell) => {
                if let Some(known) = cell.try_borrow().ok().and_then(|known| known.clone()) {
                    return known;
                }
                let result = run(program.node(), self.bindings, self.budget);
                if let Ok(mut cell) = cell.try_borrow_mut() {
                    *cell = Some(result.clone());
                }
                result
            }
        }
    }

    fn select(&mut self, operand: &'a Node, field: &str) -> Evaluated<'a> {
        let operand = self.eval(operand)?;
        self.budget.charge(1)?;
        match operand {
            CelValue::Map(map) => map.field(field).ok_or_else(|| EvalError::NoSuchKey(field.to_owned())),
            CelValue::Optional(_) => optional_field(&operand, field),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn optional_select(&mut self, operand: &'a Node, field: &str) -> Evaluated<'a> {
        let operand = self.eval(operand)?;
        self.budget.charge(1)?;
        optional_field(&operand, field)
    }

    fn has(&mut self, operand: &'a Node, field: &str) -> Evaluated<'a> {
        let operand = self.eval(operand)?;
        self.budget.charge(1)?;
        match optional_field(&operand, field)? {
            CelValue::Optional(found) => Ok(CelValue::Bool(found.is_some())),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn index(&mut self, nodes: &'a [Node; 2], optional: bool) -> Evaluated<'a> {
        let (operand, key) = self.pair(nodes)?;
        if let CelValue::String(text) = &key {
            self.budget.charge_text(text.as_str().len())?;
        }
        match operand {
            CelValue::Optional(None) => Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(inner)) => optional_element(&inner, &key),
            other if optional => optional_element(&other, &key),
            other => match element(&other, &key)? {
                Some(found) => Ok(found),
                None if matches!(other, CelValue::List(_)) => {
                    Err(EvalError::owned(format!("index out of bounds: {}", key.to_json())))
                }
                None => Err(EvalError::NoSuchKey(
                    key.as_str().map_or_else(|| key.to_json().to_string(), str::to_owned),
                )),
            },
        }
    }

    fn call(&mut self, functions: &[&'static Function], args: &'a [Node]) -> Evaluated<'a> {
        self.budget.charge(1)?;
        match args {
            [one] => {
                let values = [self.eval(one)?];
                self.dispatch(functions, &values)
            }
            [one, two] => {
                let values = [self.eval(one)?, self.eval(two)?];
                self.dispatch(functions, &values)
            }
            several => {
                let values: Result<Vec<CelValue<'a>>, EvalError> =
                    several.iter().map(|arg| self.eval(arg)).collect();
                self.dispatch(functions, &values?)
            }
        }
    }

    /// The first function that exists for these values.
    fn dispatch(&mut self, functions: &[&'static Function], values: &[CelValue<'a>]) -> Evaluated<'a> {
        for function in functions {
            match (function.call)(self.budget, values) {
                Err(EvalError::NoSuchOverload) => {}
                result => return result,
            }
        }
        Err(EvalError::NoSuchOverload)
    }

    /// `&&` and `||`: a part that is `decisive` decides, whatever errors the other parts give.
    fn logic(&mut self, parts: &'a [Node], decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for part in parts {
            match self.eval(part) {
                Ok(CelValue::Bool(value)) if value == decisive => return Ok(CelValue::Bool(value)),
                Ok(CelValue::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::NoSuchOverload)),
                Err(EvalError::BudgetExceeded) => return Err(EvalError::BudgetExceeded),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(CelValue::Bool(!decisive)), Err)
    }

    fn ternary(&mut self, nodes: &'a [Node; 3]) -> Evaluated<'a> {
        let [test, then, otherwise] = nodes;
        match self.eval(test)? {
            CelValue::Bool(true) => self.eval(then),
            CelValue::Bool(false) => self.eval(otherwise),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Evaluated<'a> {
        self.budget.charge(1 + items.len() as u64)?;
        let mut list = Vec::with_capacity(items.len());
        for (node, optional) in items {
            let value = self.eval(node)?;
            if *optional {
                list.extend(content(value)?);
            } else {
                list.push(value);
            }
        }
        Ok(CelValue::list(list))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Evaluated<'a> {
        self.budget.charge(1 + entries.len() as u64)?;
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            let value = if *optional { content(value)? } else { Some(value) };
            if let Some(value) = value {
                insert(&mut map, &key, value)?;
            }
        }
        Ok(CelValue::map(map))
    }

    fn opt_map(&mut self, nodes: &'a [Node; 2], flat: bool) -> Evaluated<'a> {
        let [target, body] = nodes;
        let target = self.eval(target)?;
        self.budget.charge(1)?;
        let Some(inner) = content(target)? else { return Ok(CelValue::Optional(None)) };
        let result = self.within(inner, body)?;
        Ok(if flat { result } else { result.some() })
    }
}

/// Adds an entry to a map under construction.
pub(super) fn insert<'a>(
    map: &mut BTreeMap<Key<'a>, CelValue<'a>>,
    key: &CelValue<'a>,
    value: CelValue<'a>,
) -> Result<(), EvalError> {
    let Some(key) = Key::from_value(key) else {
        return Err(EvalError::owned(format!("unsupported key type: {}", key.type_name())));
    };
    match map.entry(key) {
        Entry::Vacant(free) => {
            free.insert(value);
            Ok(())
        }
        Entry::Occupied(taken) => Err(EvalError::owned(format!("Failed with repeated key: {}", taken.key()))),
    }
}

/// What an optional holds.
fn content<'a>(value: CelValue<'a>) -> Result<Option<CelValue<'a>>, EvalError> {
    match value {
        CelValue::Optional(inner) => Ok(inner.map(|inner| (*inner).clone())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn optional_field<'a>(operand: &CelValue<'a>, field: &str) -> Evaluated<'a> {
    match operand {
        CelValue::Map(map) => Ok(map.field(field).map_or(CelValue::Optional(None), CelValue::some)),
        CelValue::Optional(None) => Ok(CelValue::Optional(None)),
        CelValue::Optional(Some(inner)) => match inner.as_ref() {
            CelValue::Map(map) => Ok(map.field(field).map_or(CelValue::Optional(None), CelValue::some)),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn optional_element<'a>(operand: &CelValue<'a>, key: &CelValue<'a>) -> Evaluated<'a> {
    Ok(element(operand, key)?.map_or(CelValue::Optional(None), CelValue::some))
}

fn element<'a>(operand: &CelValue<'a>, key: &CelValue<'a>) -> Result<Option<CelValue<'a>>, EvalError> {
    match (operand, key) {
        (CelValue::List(list), key) => match key {
            CelValue::Int(index) => Ok(usize::try_from(*index).ok().and_then(|index| list.get(index))),
            CelValue::Uint(index) => Ok(usize::try_from(*index).ok().and_then(|index| list.get(index))),
            CelValue::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Ok(list.get(*index as usize)),
            _ => Err(EvalError::NoSuchOverload),
        },
        (CelValue::Map(map), key) => Ok(map.get(key)),
        _ => Err(EvalError::NoSuchOverload),
    }
}
