//! Optional values.

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::CelValue;

pub const ROWS: &[Row] = &[
    ("optional.of", &["(A)optional<A>"], of),
    ("optional.none", &["()optional<A>"], none),
    ("optional.ofNonZeroValue", &["(A)optional<A>"], of_non_zero),
    ("optional.unwrap", &["(list<optional<A>>)list<A>"], unwrap),
    ("unwrapOpt", &["list<optional<A>>.()list<A>"], unwrap),
    ("hasValue", &["optional<A>.()bool"], has_value),
    ("value", &["optional<A>.()A"], value),
    ("or", &["optional<A>.(optional<A>)optional<A>"], or),
    ("orValue", &["optional<A>.(A)A"], or_value),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn of<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    args.first().cloned().map(CelValue::some).ok_or(MISMATCH)
}

fn none<'a>(_: &mut Budget, _: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Optional(None))
}

fn of_non_zero<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [value] = args else { return Err(MISMATCH) };
    let zero = match value {
        CelValue::Null
        | CelValue::Bool(false)
        | CelValue::Int(0)
        | CelValue::Uint(0)
        | CelValue::Duration(0) => true,
        CelValue::Double(value) => *value == 0.0,
        CelValue::String(text) => text.as_str().is_empty(),
        CelValue::Bytes(bytes) => bytes.is_empty(),
        CelValue::List(list) => list.is_empty(),
        CelValue::Map(map) => map.is_empty(),
        _ => false,
    };
    Ok(if zero { CelValue::Optional(None) } else { value.clone().some() })
}

fn unwrap<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::List(list)] = args else { return Err(MISMATCH) };
    budget.charge(list.len() as u64)?;
    let mut out = Vec::new();
    for item in list.iter() {
        match item {
            CelValue::Optional(inner) => out.extend(inner.map(|inner| (*inner).clone())),
            _ => return Err(MISMATCH),
        }
    }
    Ok(CelValue::list(out))
}

fn has_value<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::Optional(inner)] = args else { return Err(MISMATCH) };
    Ok(CelValue::Bool(inner.is_some()))
}

fn value<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::Optional(inner)] = args else { return Err(MISMATCH) };
    inner.as_deref().cloned().ok_or(EvalError::text("optional.none() dereference"))
}

fn or<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Optional(None), other @ CelValue::Optional(_)] => Ok(other.clone()),
        [some @ CelValue::Optional(_), CelValue::Optional(_)] => Ok(some.clone()),
        _ => Err(MISMATCH),
    }
}

fn or_value<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Optional(None), other] => Ok(other.clone()),
        [CelValue::Optional(Some(inner)), _] => Ok((**inner).clone()),
        _ => Err(MISMATCH),
    }
}
