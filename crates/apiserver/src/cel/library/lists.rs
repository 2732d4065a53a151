//! Functions on lists and sets.

use std::cmp::Ordering;

use super::Row;
use super::arithmetic;
use crate::cel::budget::Budget;
use crate::cel::compare::{self, compare, contains_all, equal};
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::{CelValue, List};

const SETS: &[&str] = &["(list<A>,list<A>)bool"];

pub const ROWS: &[Row] = &[
    ("isSorted", &["list<A>.()bool"], is_sorted),
    ("sum", &["list<A>.()A"], sum),
    ("min", &["list<A>.()A"], min),
    ("max", &["list<A>.()A"], max),
    ("indexOf", &["list<A>.(A)int"], index_of),
    ("lastIndexOf", &["list<A>.(A)int"], last_index_of),
    ("distinct", &["list<A>.()list<A>"], distinct),
    ("flatten", &["list<list<A>>.()list<A>", "list<dyn>.(int)list<dyn>"], flatten),
    ("sort", &["list<A>.()list<A>"], sort),
    ("reverse", &["list<A>.()list<A>"], reverse),
    ("slice", &["list<A>.(int,int)list<A>"], slice),
    ("first", &["list<A>.()optional<A>"], first),
    ("last", &["list<A>.()optional<A>"], last),
    ("includes", &["list<A>.(A)bool"], includes),
    ("lists.range", &["(int)list<int>"], range),
    ("sets.contains", SETS, sets_contains),
    ("sets.equivalent", SETS, sets_equivalent),
    ("sets.intersects", SETS, sets_intersects),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;
/// The deepest lists that are flattened.
const MAX_FLATTEN: i64 = 32;

/// The list and what it costs to go over it once.
fn list<'b, 'a>(budget: &mut Budget, args: &'b [CelValue<'a>]) -> Result<&'b List<'a>, EvalError> {
    match args.first() {
        Some(CelValue::List(list)) => {
            budget.charge(list.len() as u64)?;
            Ok(list)
        }
        _ => Err(MISMATCH),
    }
}

fn is_sorted<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let list = list(budget, args)?;
    let mut before: Option<CelValue<'a>> = None;
    for item in list.iter() {
        if let Some(before) = before
            && compare(budget, &before, &item)? == Some(Ordering::Greater)
        {
            return Ok(CelValue::Bool(false));
        }
        before = Some(item);
    }
    Ok(CelValue::Bool(true))
}

fn sum<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let list = list(budget, args)?;
    let mut total: Option<CelValue<'a>> = None;
    for item in list.iter() {
        if !(compare::is_number(&item) || matches!(item, CelValue::Duration(_))) {
            return Err(MISMATCH);
        }
        total = Some(match total {
            None => item,
            Some(total) => arithmetic::add(budget, &[total, item])?,
        });
    }
    Ok(total.unwrap_or(CelValue::Int(0)))
}

fn extreme<'a>(budget: &mut Budget, args: &[CelValue<'a>], wanted: Ordering, name: &str) -> Evaluated<'a> {
    let list = list(budget, args)?;
    let mut best: Option<CelValue<'a>> = None;
    for item in list.iter() {
        let better = match &best {
            None => true,
            Some(best) => compare(budget, &item, best)? == Some(wanted),
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::owned(format!("{name} called on empty list")))
}

fn min<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    extreme(budget, args, Ordering::Less, "min")
}

fn max<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    extreme(budget, args, Ordering::Greater, "max")
}

fn position<'a>(
    budget: &mut Budget,
    args: &[CelValue<'a>],
    indices: impl Iterator<Item = usize>,
) -> Evaluated<'a> {
    let [CelValue::List(list), wanted] = args else { return Err(MISMATCH) };
    for index in indices {
        let Some(item) = list.get(index) else { continue };
        if equal(budget, &item, wanted)? {
            return Ok(CelValue::Int(index as i64));
        }
    }
    Ok(CelValue::Int(-1))
}

fn index_of<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let length = list(budget, args)?.len();
    position(budget, args, 0..length)
}

fn last_index_of<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let length = list(budget, args)?.len();
    position(budget, args, (0..length).rev())
}

fn includes<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(list), wanted] = args else { return Err(MISMATCH) };
    Ok(CelValue::Bool(compare::contains(budget, list, wanted)?))
}

fn distinct<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let list = list(budget, args)?;
    let mut kept: Vec<CelValue<'a>> = Vec::new();
    'items: for item in list.iter() {
        for before in &kept {
            budget.charge(1)?;
            if equal(budget, before, &item)? {
                continue 'items;
            }
        }
        kept.push(item);
    }
    Ok(CelValue::list(kept))
}

fn flatten<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let depth = match args {
        [_] => 1,
        [_, CelValue::Int(depth)] if *depth < 0 => return Err(EvalError::text("level must be non-negative")),
        [_, CelValue::Int(depth)] => (*depth).min(MAX_FLATTEN),
        _ => return Err(MISMATCH),
    };
    let mut out = Vec::new();
    let list = list(budget, args)?;
    flatten_into(budget, list, depth, &mut out)?;
    Ok(CelValue::list(out))
}

fn flatten_into<'a>(
    budget: &mut Budget,
    list: &List<'a>,
    depth: i64,
    out: &mut Vec<CelValue<'a>>,
) -> Result<(), EvalError> {
    for item in list.iter() {
        budget.charge(1)?;
        match item {
            CelValue::List(inner) if depth > 0 => flatten_into(budget, &inner, depth - 1, out)?,
            other => out.push(other),
        }
    }
    Ok(())
}

fn sort<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let mut items: Vec<_> = list(budget, args)?.iter().map(|item| (item, CelValue::Null)).collect();
    compare::sort(budget, &mut items)?;
    Ok(CelValue::list(items.into_iter().map(|(item, _)| item).collect()))
}

fn reverse<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::list(list(budget, args)?.iter().rev().collect()))
}

fn slice<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(list), CelValue::Int(start), CelValue::Int(end)] = args else { return Err(MISMATCH) };
    match (usize::try_from(*start), usize::try_from(*end)) {
        (Ok(from), Ok(to)) if from <= to && to <= list.len() => {
            budget.charge((to - from) as u64)?;
            Ok(CelValue::list((from..to).filter_map(|index| list.get(index)).collect()))
        }
        _ => Err(EvalError::owned(format!("cannot slice({start}, {end}), list is length {}", list.len()))),
    }
}

fn first<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(list)] = args else { return Err(MISMATCH) };
    Ok(list.get(0).map_or(CelValue::Optional(None), CelValue::some))
}

fn last<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(list)] = args else { return Err(MISMATCH) };
    Ok(list
        .len()
        .checked_sub(1)
        .and_then(|index| list.get(index))
        .map_or(CelValue::Optional(None), CelValue::some))
}

fn range<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::Int(end)] = args else { return Err(MISMATCH) };
    budget.charge(u64::try_from(*end).unwrap_or(0))?;
    Ok(CelValue::list((0..*end).map(CelValue::Int).collect()))
}

fn sets_contains<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(whole), CelValue::List(part)] = args else { return Err(MISMATCH) };
    Ok(CelValue::Bool(contains_all(budget, whole, part)?))
}

fn sets_equivalent<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(a), CelValue::List(b)] = args else { return Err(MISMATCH) };
    Ok(CelValue::Bool(contains_all(budget, a, b)? && contains_all(budget, b, a)?))
}

fn sets_intersects<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(a), CelValue::List(b)] = args else { return Err(MISMATCH) };
    for item in b.iter() {
        if compare::contains(budget, a, &item)? {
            return Ok(CelValue::Bool(true));
        }
    }
    Ok(CelValue::Bool(false))
}
