//! Operators.

use super::{Row, never};
use crate::cel::budget::Budget;
use crate::cel::compare::{contains, equal};
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::types::ListKind;
use crate::cel::value::{CelValue, List, Str};
use jiff::{SignedDuration, Timestamp};

const ORDERED: &[&str] = &[
    "(int,int)bool",
    "(uint,uint)bool",
    "(double,double)bool",
    "(int,uint)bool",
    "(int,double)bool",
    "(uint,int)bool",
    "(uint,double)bool",
    "(double,int)bool",
    "(double,uint)bool",
    "(string,string)bool",
    "(bytes,bytes)bool",
    "(bool,bool)bool",
    "(timestamp,timestamp)bool",
    "(duration,duration)bool",
];

pub const ROWS: &[Row] = &[
    ("_==_", &["(A,A)bool"], never),
    ("_!=_", &["(A,A)bool"], never),
    ("_<_", ORDERED, never),
    ("_<=_", ORDERED, never),
    ("_>_", ORDERED, never),
    ("_>=_", ORDERED, never),
    ("!_", &["(bool)bool"], never),
    ("@in", &["(A,list<A>)bool", "(A,map<A,B>)bool"], is_in),
    (
        "_+_",
        &[
            "(int,int)int",
            "(uint,uint)uint",
            "(double,double)double",
            "(string,string)string",
            "(bytes,bytes)bytes",
            "(list<A>,list<A>)list<A>",
            "(duration,duration)duration",
            "(timestamp,duration)timestamp",
            "(duration,timestamp)timestamp",
        ],
        add,
    ),
    (
        "_-_",
        &[
            "(int,int)int",
            "(uint,uint)uint",
            "(double,double)double",
            "(duration,duration)duration",
            "(timestamp,duration)timestamp",
            "(timestamp,timestamp)duration",
        ],
        subtract,
    ),
    ("_*_", &["(int,int)int", "(uint,uint)uint", "(double,double)double"], multiply),
    ("_/_", &["(int,int)int", "(uint,uint)uint", "(double,double)double"], divide),
    ("_%_", &["(int,int)int", "(uint,uint)uint"], modulo),
    ("-_", &["(int)int", "(double)double"], negate),
];

const INT_OVERFLOW: EvalError = EvalError::text("integer overflow");
const UINT_OVERFLOW: EvalError = EvalError::text("unsigned integer overflow");
const TIME_OVERFLOW: EvalError = EvalError::text("timestamp overflow");
const DURATION_OVERFLOW: EvalError = EvalError::text("duration overflow");

fn is_in<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [item, CelValue::List(list)] => Ok(CelValue::Bool(contains(budget, list, item)?)),
        [key, CelValue::Map(map)] => {
            budget.charge_text(key.as_str().map_or(0, str::len))?;
            Ok(CelValue::Bool(map.get(key).is_some()))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// `a + b`
pub fn add<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(a), CelValue::Int(b)] => CelValue::Int(a.checked_add(*b).ok_or(INT_OVERFLOW)?),
        [CelValue::Uint(a), CelValue::Uint(b)] => CelValue::Uint(a.checked_add(*b).ok_or(UINT_OVERFLOW)?),
        [CelValue::Double(a), CelValue::Double(b)] => CelValue::Double(a + b),
        [CelValue::String(a), CelValue::String(b)] => {
            let (a, b) = (a.as_str(), b.as_str());
            budget.charge(1)?;
            budget.charge_text(a.len() + b.len())?;
            CelValue::String(Str::Shared([a, b].concat().into()))
        }
        [CelValue::Bytes(a), CelValue::Bytes(b)] => {
            budget.charge_text(a.len() + b.len())?;
            CelValue::bytes([a.as_ref(), b.as_ref()].concat())
        }
        [CelValue::List(a), CelValue::List(b)] => concat(budget, a, b)?,
        [CelValue::Duration(a), CelValue::Duration(b)] => {
            CelValue::Duration(a.checked_add(*b).ok_or(DURATION_OVERFLOW)?)
        }
        [CelValue::Timestamp(at), CelValue::Duration(by)]
        | [CelValue::Duration(by), CelValue::Timestamp(at)] => shifted(*at, *by)?,
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn shifted<'a>(at: Timestamp, by: i64) -> Evaluated<'a> {
    let sum = at.checked_add(SignedDuration::from_nanos(by)).map_err(|_| TIME_OVERFLOW)?;
    Ok(CelValue::Timestamp(sum))
}

/// Lists with a merge rule are merged, others joined.
fn concat<'a>(budget: &mut Budget, a: &List<'a>, b: &List<'a>) -> Evaluated<'a> {
    budget.charge((a.len() + b.len()) as u64)?;
    let mut items: Vec<CelValue<'a>> = a.iter().collect();
    match a.kind() {
        ListKind::Atomic => items.extend(b.iter()),
        ListKind::Set => {
            for item in b.iter() {
                if !contains(budget, a, &item)? {
                    items.push(item);
                }
            }
        }
        ListKind::Map(keys) => {
            for item in b.iter() {
                let mut same = None;
                for (index, candidate) in items.iter().enumerate() {
                    if same.is_none() && same_keys(budget, keys, candidate, &item)? {
                        same = Some(index);
                    }
                }
                match same.and_then(|index| items.get_mut(index)) {
                    Some(slot) => *slot = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(CelValue::list(items))
}

fn same_keys(
    budget: &mut Budget,
    keys: &[String],
    a: &CelValue<'_>,
    b: &CelValue<'_>,
) -> Result<bool, EvalError> {
    let (CelValue::Map(a), CelValue::Map(b)) = (a, b) else { return Ok(false) };
    for key in keys {
        budget.charge(1)?;
        let same = match (a.field(key), b.field(key)) {
            (Some(a), Some(b)) => equal(budget, &a, &b)?,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn subtract<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(a), CelValue::Int(b)] => CelValue::Int(a.checked_sub(*b).ok_or(INT_OVERFLOW)?),
        [CelValue::Uint(a), CelValue::Uint(b)] => CelValue::Uint(a.checked_sub(*b).ok_or(UINT_OVERFLOW)?),
        [CelValue::Double(a), CelValue::Double(b)] => CelValue::Double(a - b),
        [CelValue::Duration(a), CelValue::Duration(b)] => {
            CelValue::Duration(a.checked_sub(*b).ok_or(DURATION_OVERFLOW)?)
        }
        [CelValue::Timestamp(at), CelValue::Duration(by)] => {
            shifted(*at, by.checked_neg().ok_or(DURATION_OVERFLOW)?)?
        }
        [CelValue::Timestamp(a), CelValue::Timestamp(b)] => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            CelValue::Duration(i64::try_from(nanos).map_err(|_| DURATION_OVERFLOW)?)
        }
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn multiply<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(a), CelValue::Int(b)] => CelValue::Int(a.checked_mul(*b).ok_or(INT_OVERFLOW)?),
        [CelValue::Uint(a), CelValue::Uint(b)] => CelValue::Uint(a.checked_mul(*b).ok_or(UINT_OVERFLOW)?),
        [CelValue::Double(a), CelValue::Double(b)] => CelValue::Double(a * b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn divide<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(_), CelValue::Int(0)] | [CelValue::Uint(_), CelValue::Uint(0)] => {
            return Err(EvalError::text("division by zero"));
        }
        [CelValue::Int(a), CelValue::Int(b)] => CelValue::Int(a.checked_div(*b).ok_or(INT_OVERFLOW)?),
        [CelValue::Uint(a), CelValue::Uint(b)] => CelValue::Uint(a / b),
        [CelValue::Double(a), CelValue::Double(b)] => CelValue::Double(a / b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn modulo<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::Int(_), CelValue::Int(0)] | [CelValue::Uint(_), CelValue::Uint(0)] => {
            return Err(EvalError::text("modulus by zero"));
        }
        [CelValue::Int(a), CelValue::Int(b)] => CelValue::Int(a.checked_rem(*b).ok_or(INT_OVERFLOW)?),
        [CelValue::Uint(a), CelValue::Uint(b)] => CelValue::Uint(a % b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn negate<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Int(value)] => Ok(CelValue::Int(value.checked_neg().ok_or(INT_OVERFLOW)?)),
        [CelValue::Double(value)] => Ok(CelValue::Double(-value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}
