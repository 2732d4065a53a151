//! Equality and order of values.

use std::cmp::Ordering;

use super::budget::Budget;
use super::error::EvalError;
use super::types::ListKind;
use super::value::{CelValue, List, Map};

/// `a == b`. Values of different types are different, except that numbers are compared by what they count.
pub fn equal(budget: &mut Budget, a: &CelValue<'_>, b: &CelValue<'_>) -> Result<bool, EvalError> {
    Ok(match (a, b) {
        (CelValue::Null, CelValue::Null) => true,
        (CelValue::Bool(a), CelValue::Bool(b)) => a == b,
        (CelValue::String(a), CelValue::String(b)) => {
            budget.charge_text(a.as_str().len().min(b.as_str().len()))?;
            a == b
        }
        (CelValue::Bytes(a), CelValue::Bytes(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            a == b
        }
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a == b,
        (CelValue::Duration(a), CelValue::Duration(b)) => a == b,
        (CelValue::Type(a), CelValue::Type(b)) => a == b,
        (CelValue::Opaque(a), CelValue::Opaque(b)) => a == b,
        (CelValue::Optional(None), CelValue::Optional(None)) => true,
        (CelValue::Optional(Some(a)), CelValue::Optional(Some(b))) => equal(budget, a, b)?,
        (CelValue::List(a), CelValue::List(b)) => equal_lists(budget, a, b)?,
        (CelValue::Map(a), CelValue::Map(b)) => equal_maps(budget, a, b)?,
        _ => compare_numbers(a, b) == Some(Ordering::Equal),
    })
}

fn equal_lists(budget: &mut Budget, a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.kind() {
        ListKind::Atomic => {
            for (a, b) in a.iter().zip(b.iter()) {
                budget.charge(2)?;
                if !equal(budget, &a, &b)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Set | ListKind::Map(_) => contains_all(budget, a, b),
    }
}

/// Whether every element of `part` is in `whole`.
pub fn contains_all(budget: &mut Budget, whole: &List<'_>, part: &List<'_>) -> Result<bool, EvalError> {
    for item in part.iter() {
        if !contains(budget, whole, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the list has an element equal to `item`.
pub fn contains(budget: &mut Budget, list: &List<'_>, item: &CelValue<'_>) -> Result<bool, EvalError> {
    for other in list.iter() {
        budget.charge(1)?;
        if equal(budget, &other, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal_maps(budget: &mut Budget, a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for key in a.keys() {
        budget.charge(3)?;
        match (a.get(&key), b.get(&key)) {
            (Some(a), Some(b)) if equal(budget, &a, &b)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The order of two values of comparable types; `Err` when they have none, `Ok(None)` next to NaN.
pub fn compare(
    budget: &mut Budget,
    a: &CelValue<'_>,
    b: &CelValue<'_>,
) -> Result<Option<Ordering>, EvalError> {
    budget.charge_text(text_length(a).min(text_length(b)))?;
    order(a, b)
}

fn order(a: &CelValue<'_>, b: &CelValue<'_>) -> Result<Option<Ordering>, EvalError> {
    Ok(match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => Some(a.cmp(b)),
        (CelValue::String(a), CelValue::String(b)) => Some(a.cmp(b)),
        (CelValue::Bool(a), CelValue::Bool(b)) => Some(a.cmp(b)),
        (CelValue::Bytes(a), CelValue::Bytes(b)) => Some(a.cmp(b)),
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => Some(a.cmp(b)),
        (CelValue::Duration(a), CelValue::Duration(b)) => Some(a.cmp(b)),
        _ if is_number(a) && is_number(b) => compare_numbers(a, b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn text_length(value: &CelValue<'_>) -> usize {
    match value {
        CelValue::String(text) => text.as_str().len(),
        CelValue::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// Sorts by key, stably. Everything that can fail is asked beforehand, because sorting itself must not fail.
pub fn sort<'a>(budget: &mut Budget, items: &mut [(CelValue<'a>, CelValue<'a>)]) -> Result<(), EvalError> {
    let Some((first, _)) = items.first() else { return Ok(()) };
    let longest = items.iter().map(|(key, _)| text_length(key)).max().unwrap_or(0) as u64;
    let rounds = u64::from(usize::BITS - items.len().leading_zeros());
    budget.charge((items.len() as u64).saturating_mul(rounds).saturating_mul(1 + longest / 10))?;
    for (key, _) in items.iter() {
        order(first, key)?;
    }
    // NaN sorts first, or the order would not be total.
    let is_nan = |value: &CelValue<'_>| matches!(value, CelValue::Double(value) if value.is_nan());
    items.sort_by(|(a, _), (b, _)| {
        let known = order(a, b).ok().flatten();
        known.unwrap_or_else(|| is_nan(b).cmp(&is_nan(a)))
    });
    Ok(())
}

/// Whether the value is a number.
pub fn is_number(value: &CelValue<'_>) -> bool {
    matches!(value, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_))
}

fn compare_numbers(a: &CelValue<'_>, b: &CelValue<'_>) -> Option<Ordering> {
    match (whole(a), whole(b), a, b) {
        (Some(a), Some(b), _, _) => Some(a.cmp(&b)),
        (_, _, CelValue::Double(a), CelValue::Double(b)) => a.partial_cmp(b),
        (Some(a), None, _, CelValue::Double(b)) => compare_whole(a, *b),
        (None, Some(b), CelValue::Double(a), _) => compare_whole(b, *a).map(Ordering::reverse),
        _ => None,
    }
}

fn whole(value: &CelValue<'_>) -> Option<i128> {
    match value {
        CelValue::Int(value) => Some(i128::from(*value)),
        CelValue::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// Exact, unlike comparing after a conversion to floating point.
fn compare_whole(whole: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Saturates far beyond what a 64-bit number reaches.
    let by_whole = whole.cmp(&(float as i128));
    Some(by_whole.then(0.0_f64.partial_cmp(&float.fract())?))
}
