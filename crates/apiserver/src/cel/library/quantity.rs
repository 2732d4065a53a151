//! Amounts of resources.

use shoal_objects::Quantity;
use shoal_objects::quantity::Format;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::value::CelValue;

const ORDER: &[&str] = &["quantity.(quantity)bool"];
const SUM: &[&str] = &["quantity.(quantity)quantity", "quantity.(int)quantity"];

pub const ROWS: &[Row] = &[
    ("quantity", &["(string)quantity"], quantity),
    ("isQuantity", &["(string)bool"], is_quantity),
    ("sign", &["quantity.()int"], sign),
    ("isInteger", &["quantity.()bool"], is_integer),
    ("asInteger", &["quantity.()int"], as_integer),
    ("asApproximateFloat", &["quantity.()double"], as_float),
    ("add", SUM, add),
    ("sub", SUM, sub),
    ("isGreaterThan", ORDER, is_greater),
    ("isLessThan", ORDER, is_less),
    ("compareTo", &["quantity.(quantity)int"], compare_to),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn read<'b>(value: Option<&'b CelValue<'_>>) -> Result<&'b Quantity, EvalError> {
    match value {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn quantity<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text)] = args else { return Err(MISMATCH) };
    budget.charge(5)?;
    budget.charge_text(text.as_str().len())?;
    match Quantity::parse(text.as_str()) {
        Ok(quantity) => Ok(CelValue::opaque(Opaque::Quantity(quantity))),
        Err(error) => Err(EvalError::owned(error.to_string())),
    }
}

fn is_quantity<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text)] = args else { return Err(MISMATCH) };
    budget.charge_text(text.as_str().len())?;
    Ok(CelValue::Bool(Quantity::parse(text.as_str()).is_ok()))
}

fn sign<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let quantity = read(args.first())?;
    Ok(CelValue::Int(if quantity.is_zero() {
        0
    } else if quantity.is_negative() {
        -1
    } else {
        1
    }))
}

/// The value, when it is a whole number that fits.
fn whole(quantity: &Quantity) -> Option<i64> {
    let value = quantity.value();
    (Quantity::new(value, Format::DecimalSi) == *quantity).then_some(value)
}

fn is_integer<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(whole(read(args.first())?).is_some()))
}

fn as_integer<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let value = whole(read(args.first())?);
    value.map(CelValue::Int).ok_or(EvalError::text("cannot convert value to integer"))
}

fn as_float<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let quantity = read(args.first())?;
    if let Some(value) = whole(quantity) {
        return Ok(CelValue::Double(value as f64));
    }
    let milli = quantity.milli_value();
    let approximate =
        if milli == i64::MAX || milli == i64::MIN { quantity.value() as f64 } else { milli as f64 / 1000.0 };
    Ok(CelValue::Double(approximate))
}

fn combine<'a>(args: &[CelValue<'a>], combine: fn(&mut Quantity, &Quantity)) -> Evaluated<'a> {
    let mut result = read(args.first())?.clone();
    match args.get(1) {
        Some(CelValue::Int(value)) => combine(&mut result, &Quantity::new(*value, Format::DecimalSi)),
        other => combine(&mut result, read(other)?),
    }
    Ok(CelValue::opaque(Opaque::Quantity(result)))
}

fn add<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    combine(args, Quantity::add)
}

fn sub<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    combine(args, Quantity::sub)
}

fn is_greater<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read(args.first())? > read(args.get(1))?))
}

fn is_less<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read(args.first())? < read(args.get(1))?))
}

fn compare_to<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Int(read(args.first())?.cmp(read(args.get(1))?) as i64))
}
