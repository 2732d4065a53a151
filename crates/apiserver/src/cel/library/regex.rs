//! Regular expressions. Matching is linear in the text; compiling is paid for.

use super::Row;
use crate::cel::budget::{Budget, search_cost};
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::CelValue;

pub const ROWS: &[Row] = &[
    ("matches", &["string.(string)bool", "(string,string)bool"], matches),
    ("find", &["string.(string)string"], find),
    ("findAll", &["string.(string)list<string>", "string.(string,int)list<string>"], find_all),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn matches<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text), CelValue::String(pattern)] = args else { return Err(MISMATCH) };
    let regex = budget.pattern(pattern.as_str())?;
    budget.charge(search_cost(text.as_str().len(), pattern.as_str().len()))?;
    Ok(CelValue::Bool(regex.is_match(text.as_str())))
}

fn find<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text), CelValue::String(pattern)] = args else { return Err(MISMATCH) };
    let regex = budget.pattern(pattern.as_str())?;
    budget.charge(search_cost(text.as_str().len(), pattern.as_str().len()))?;
    let found = regex.find(text.as_str()).map_or("", |found| found.as_str());
    Ok(CelValue::text(found))
}

fn find_all<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (text, pattern, limit) = match args {
        [CelValue::String(text), CelValue::String(pattern)] => (text, pattern, usize::MAX),
        [CelValue::String(text), CelValue::String(pattern), CelValue::Int(limit)] => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(MISMATCH),
    };
    let regex = budget.pattern(pattern.as_str())?;
    let mut found = Vec::new();
    budget.charge(search_cost(text.as_str().len(), pattern.as_str().len()))?;
    for hit in regex.find_iter(text.as_str()).take(limit) {
        // A search may look to the end of the text before it knows that a match ended early.
        let rest = text.as_str().len() - hit.end();
        budget.charge(1 + search_cost(rest, pattern.as_str().len()) / 10)?;
        found.push(CelValue::text(hit.as_str()));
    }
    Ok(CelValue::list(found))
}
