//! Evaluation of the macros that iterate.

use std::collections::BTreeMap;

use super::ast::Fold;
use super::compare::sort;
use super::error::EvalError;
use super::eval::{Evaluated, Machine, insert};
use super::node::{Comprehension, Node};
use super::value::CelValue;

/// The range of an iteration.
enum Range<'a> {
    List(super::value::List<'a>),
    Map(super::value::Map<'a>, Vec<CelValue<'a>>),
}

impl<'a> Range<'a> {
    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Map(_, keys) => keys.len(),
        }
    }

    /// What the single variable stands for: elements of lists, keys of maps.
    fn single(&self, index: usize) -> CelValue<'a> {
        match self {
            Range::List(list) => list.get(index),
            Range::Map(_, keys) => keys.get(index).cloned(),
        }
        .unwrap_or(CelValue::Null)
    }

    /// What the two variables stand for.
    fn pair(&self, index: usize) -> (CelValue<'a>, CelValue<'a>) {
        match self {
            Range::List(list) => (CelValue::Int(index as i64), list.get(index).unwrap_or(CelValue::Null)),
            Range::Map(map, keys) => {
                let key = keys.get(index).cloned().unwrap_or(CelValue::Null);
                let value = map.get(&key).unwrap_or(CelValue::Null);
                (key, value)
            }
        }
    }
}

impl<'a> Machine<'_, 'a> {
    pub(super) fn comprehension(&mut self, node: &'a Comprehension) -> Evaluated<'a> {
        let range = match self.eval(&node.range)? {
            CelValue::List(list) => Range::List(list),
            CelValue::Map(map) => {
                self.budget.charge(map.len() as u64)?;
                let keys = map.keys();
                Range::Map(map, keys)
            }
            _ => return Err(EvalError::NoSuchOverload),
        };
        match node.fold {
            Fold::All => self.quantifier(node, &range, false),
            Fold::Exists => self.quantifier(node, &range, true),
            Fold::ExistsOne => {
                let mut count = 0;
                for index in 0..range.len() {
                    count += usize::from(self.test(node, &range, index, &node.body)?);
                }
                Ok(CelValue::Bool(count == 1))
            }
            Fold::Filter => {
                let mut kept = Vec::new();
                for index in 0..range.len() {
                    if self.test(node, &range, index, &node.body)? {
                        kept.push(range.single(index));
                    }
                }
                Ok(CelValue::list(kept))
            }
            Fold::List => {
                let mut items = Vec::new();
                for index in 0..range.len() {
                    items.extend(self.transformed(node, &range, index)?);
                }
                Ok(CelValue::list(items))
            }
            Fold::Map => {
                let mut map = BTreeMap::new();
                for index in 0..range.len() {
                    if let Some(value) = self.transformed(node, &range, index)? {
                        self.budget.charge(5)?;
                        insert(&mut map, &range.pair(index).0, value)?;
                    }
                }
                Ok(CelValue::map(map))
            }
            Fold::MapEntry => self.map_entries(node, &range),
            Fold::SortBy => self.sort_by(node, &range),
        }
    }

    /// Evaluates a part of the macro for one element.
    fn at(&mut self, node: &Comprehension, range: &Range<'a>, index: usize, body: &'a Node) -> Evaluated<'a> {
        self.budget.charge(3)?;
        if !node.two {
            return self.within(range.single(index), body);
        }
        let (key, value) = range.pair(index);
        self.locals.push(key);
        let result = self.within(value, body);
        self.locals.pop();
        result
    }

    fn test(
        &mut self,
        node: &Comprehension,
        range: &Range<'a>,
        index: usize,
        body: &'a Node,
    ) -> Result<bool, EvalError> {
        self.at(node, range, index, body)?.as_bool().ok_or(EvalError::NoSuchOverload)
    }

    /// `all` and `exists`: an element that is `decisive` decides, whatever errors the others give.
    fn quantifier(&mut self, node: &'a Comprehension, range: &Range<'a>, decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for index in 0..range.len() {
            match self.test(node, range, index, &node.body) {
                Ok(value) if value == decisive => return Ok(CelValue::Bool(value)),
                Ok(_) => {}
                Err(EvalError::BudgetExceeded) => return Err(EvalError::BudgetExceeded),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(CelValue::Bool(!decisive)), Err)
    }

    /// The transformed element, unless the filter leaves it out.
    fn transformed(
        &mut self,
        node: &'a Comprehension,
        range: &Range<'a>,
        index: usize,
    ) -> Result<Option<CelValue<'a>>, EvalError> {
        if let Some(filter) = &node.filter
            && !self.test(node, range, index, filter)?
        {
            return Ok(None);
        }
        self.at(node, range, index, &node.body).map(Some)
    }

    fn map_entries(&mut self, node: &'a Comprehension, range: &Range<'a>) -> Evaluated<'a> {
        let mut entries = BTreeMap::new();
        for index in 0..range.len() {
            let Some(value) = self.transformed(node, range, index)? else { continue };
            let CelValue::Map(map) = value else { return Err(EvalError::NoSuchOverload) };
            self.budget.charge(map.len() as u64)?;
            for key in map.keys() {
                let value = map.get(&key).unwrap_or(CelValue::Null);
                insert(&mut entries, &key, value)?;
            }
        }
        Ok(CelValue::map(entries))
    }

    fn sort_by(&mut self, node: &'a Comprehension, range: &Range<'a>) -> Evaluated<'a> {
        let mut keyed = Vec::with_capacity(range.len());
        for index in 0..range.len() {
            keyed.push((self.at(node, range, index, &node.body)?, range.single(index)));
        }
        sort(self.budget, &mut keyed)?;
        Ok(CelValue::list(keyed.into_iter().map(|(_, item)| item).collect()))
    }
}
