//! `math.*`

use std::cmp::Ordering;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::compare::{compare, is_number};
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::CelValue;

const EXTREMES: &[&str] =
    &["(int,int...)int", "(double,double...)double", "(uint,uint...)uint", "(list<A>)A", "(dyn...)dyn"];
const ROUNDING: &[&str] = &["(double)double"];
const SIGNED: &[&str] = &["(int)int", "(uint)uint", "(double)double"];
const BITS: &[&str] = &["(int,int)int", "(uint,uint)uint"];
const SHIFTS: &[&str] = &["(int,int)int", "(uint,int)uint"];

pub const ROWS: &[Row] = &[
    ("math.greatest", EXTREMES, greatest),
    ("math.least", EXTREMES, least),
    ("math.ceil", ROUNDING, ceil),
    ("math.floor", ROUNDING, floor),
    ("math.round", ROUNDING, round),
    ("math.trunc", ROUNDING, trunc),
    ("math.sqrt", &["(double)double", "(int)double", "(uint)double"], sqrt),
    ("math.abs", SIGNED, abs),
    ("math.sign", SIGNED, sign),
    ("math.isInf", &["(double)bool"], is_inf),
    ("math.isNaN", &["(double)bool"], is_nan),
    ("math.isFinite", &["(double)bool"], is_finite),
    ("math.bitAnd", BITS, bit_and),
    ("math.bitOr", BITS, bit_or),
    ("math.bitXor", BITS, bit_xor),
    ("math.bitNot", &["(int)int", "(uint)uint"], bit_not),
    ("math.bitShiftLeft", SHIFTS, shift_left),
    ("math.bitShiftRight", SHIFTS, shift_right),
];

fn extreme<'a>(budget: &mut Budget, args: &[CelValue<'a>], wanted: Ordering) -> Evaluated<'a> {
    let items: Vec<CelValue<'a>> = match args {
        [CelValue::List(list)] => {
            budget.charge(list.len() as u64)?;
            list.iter().collect()
        }
        several => several.to_vec(),
    };
    let mut best: Option<CelValue<'a>> = None;
    for item in items {
        if !is_number(&item) {
            return Err(EvalError::NoSuchOverload);
        }
        let better = match &best {
            None => true,
            Some(best) => compare(budget, &item, best)? == Some(wanted),
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or(EvalError::text("math.@max(list) argument must not be empty"))
}

fn greatest<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    extreme(budget, args, Ordering::Greater)
}

fn least<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    extreme(budget, args, Ordering::Less)
}

fn double(args: &[CelValue<'_>]) -> Result<f64, EvalError> {
    match args {
        [CelValue::Double(value)] => Ok(*value),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ceil<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(double(args)?.ceil()))
}

fn floor<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(double(args)?.floor()))
}

fn round<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(double(args)?.round()))
}

fn trunc<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(double(args)?.trunc()))
}

fn sqrt<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(match args {
        [CelValue::Int(value)] => (*value as f64).sqrt(),
        [CelValue::Uint(value)] => (*value as f64).sqrt(),
        other => double(other)?.sqrt(),
    }))
}

fn abs<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(value)] => {
            CelValue::Int(value.checked_abs().ok_or(EvalError::text("integer overflow"))?)
        }
        [CelValue::Uint(value)] => CelValue::Uint(*value),
        other => CelValue::Double(double(other)?.abs()),
    })
}

fn sign<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(value)] => CelValue::Int(value.signum()),
        [CelValue::Uint(value)] => CelValue::Uint((*value).min(1)),
        other => {
            let value = double(other)?;
            CelValue::Double(if value == 0.0 || value.is_nan() { value } else { value.signum() })
        }
    })
}

fn is_inf<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(double(args)?.is_infinite()))
}

fn is_nan<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(double(args)?.is_nan()))
}

fn is_finite<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(double(args)?.is_finite()))
}

fn bits<'a>(args: &[CelValue<'a>], int: fn(i64, i64) -> i64, uint: fn(u64, u64) -> u64) -> Evaluated<'a> {
    match args {
        [CelValue::Int(a), CelValue::Int(b)] => Ok(CelValue::Int(int(*a, *b))),
        [CelValue::Uint(a), CelValue::Uint(b)] => Ok(CelValue::Uint(uint(*a, *b))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn bit_and<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    bits(args, |a, b| a & b, |a, b| a & b)
}

fn bit_or<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    bits(args, |a, b| a | b, |a, b| a | b)
}

fn bit_xor<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    bits(args, |a, b| a ^ b, |a, b| a ^ b)
}

fn bit_not<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Int(value)] => Ok(CelValue::Int(!value)),
        [CelValue::Uint(value)] => Ok(CelValue::Uint(!value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn shift<'a>(args: &[CelValue<'a>], shift: fn(u64, u32) -> Option<u64>, name: &str) -> Evaluated<'a> {
    let by = match args {
        [_, CelValue::Int(by)] if *by < 0 => {
            return Err(EvalError::owned(format!("math.{name}() negative offset: {by}")));
        }
        [_, CelValue::Int(by)] => u32::try_from(*by).unwrap_or(u32::MAX),
        _ => return Err(EvalError::NoSuchOverload),
    };
    match args {
        [CelValue::Int(value), _] => {
            Ok(CelValue::Int(shift(value.cast_unsigned(), by).unwrap_or(0).cast_signed()))
        }
        [CelValue::Uint(value), _] => Ok(CelValue::Uint(shift(*value, by).unwrap_or(0))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn shift_left<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    shift(args, u64::checked_shl, "bitShiftLeft")
}

fn shift_right<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    shift(args, u64::checked_shr, "bitShiftRight")
}
