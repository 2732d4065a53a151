//! Conversions between types, and `size`.

use jiff::Timestamp;

use super::Row;
use super::printing::format_double;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::time;
use crate::cel::value::CelValue;

pub const ROWS: &[Row] = &[
    (
        "size",
        &[
            "(string)int",
            "(bytes)int",
            "(list<A>)int",
            "(map<A,B>)int",
            "string.()int",
            "bytes.()int",
            "list<A>.()int",
            "map<A,B>.()int",
        ],
        size,
    ),
    (
        "int",
        &["(int)int", "(uint)int", "(double)int", "(string)int", "(timestamp)int", "(duration)int"],
        to_int,
    ),
    ("uint", &["(uint)uint", "(int)uint", "(double)uint", "(string)uint"], to_uint),
    ("double", &["(double)double", "(int)double", "(uint)double", "(string)double"], to_double),
    ("bool", &["(bool)bool", "(string)bool"], to_bool),
    (
        "string",
        &[
            "(string)string",
            "(bool)string",
            "(int)string",
            "(uint)string",
            "(double)string",
            "(bytes)string",
            "(timestamp)string",
            "(duration)string",
            "(ip)string",
            "(cidr)string",
        ],
        to_string,
    ),
    ("bytes", &["(bytes)bytes", "(string)bytes"], to_bytes),
    ("timestamp", &["(timestamp)timestamp", "(string)timestamp", "(int)timestamp"], to_timestamp),
    ("duration", &["(duration)duration", "(string)duration", "(int)duration"], to_duration),
    ("dyn", &["(A)dyn"], to_dyn),
    ("type", &["(A)type<A>"], type_of),
];

fn size<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let length = match args {
        [CelValue::String(text)] => {
            budget.charge_text(text.as_str().len())?;
            text.as_str().chars().count()
        }
        [CelValue::Bytes(bytes)] => bytes.len(),
        [CelValue::List(list)] => list.len(),
        [CelValue::Map(map)] => map.len(),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(CelValue::Int(length as i64))
}

fn conversion_error(text: &str, to: &str) -> EvalError {
    EvalError::owned(format!("type conversion error from 'string' to '{to}': {text:?}"))
}

fn to_int<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    const RANGE: EvalError = EvalError::text("integer overflow");
    Ok(CelValue::Int(match args {
        [CelValue::Int(value)] | [CelValue::Duration(value)] => *value,
        [CelValue::Uint(value)] => i64::try_from(*value).map_err(|_| RANGE)?,
        [CelValue::Double(value)] if value.abs() < 9.223_372_036_854_775e18 => *value as i64,
        [CelValue::Double(_)] => return Err(RANGE),
        [CelValue::String(text)] => {
            text.as_str().parse().map_err(|_| conversion_error(text.as_str(), "int"))?
        }
        [CelValue::Timestamp(at)] => at.as_second(),
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_uint<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    const RANGE: EvalError = EvalError::text("unsigned integer overflow");
    Ok(CelValue::Uint(match args {
        [CelValue::Uint(value)] => *value,
        [CelValue::Int(value)] => u64::try_from(*value).map_err(|_| RANGE)?,
        [CelValue::Double(value)] if (0.0..1.844_674_407_370_955e19).contains(value) => *value as u64,
        [CelValue::Double(_)] => return Err(RANGE),
        [CelValue::String(text)] => {
            text.as_str().parse().map_err(|_| conversion_error(text.as_str(), "uint"))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_double<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Double(match args {
        [CelValue::Double(value)] => *value,
        [CelValue::Int(value)] => *value as f64,
        [CelValue::Uint(value)] => *value as f64,
        [CelValue::String(text)] => {
            text.as_str().parse().map_err(|_| conversion_error(text.as_str(), "double"))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_bool<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Bool(value)] => Ok(CelValue::Bool(*value)),
        [CelValue::String(text)] => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(CelValue::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(CelValue::Bool(false)),
            other => Err(conversion_error(other, "bool")),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_string<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(match args {
        [CelValue::String(text)] => CelValue::String(text.clone()),
        [CelValue::Bool(value)] => CelValue::borrowed(if *value { "true" } else { "false" }),
        [CelValue::Int(value)] => CelValue::text(value.to_string()),
        [CelValue::Uint(value)] => CelValue::text(value.to_string()),
        [CelValue::Double(value)] => CelValue::text(format_double(*value)),
        [CelValue::Bytes(bytes)] => {
            budget.charge_text(bytes.len())?;
            let text = std::str::from_utf8(bytes);
            CelValue::text(
                text.map_err(|_| EvalError::text("invalid UTF-8 in bytes, cannot convert to string"))?,
            )
        }
        [CelValue::Timestamp(at)] => CelValue::text(time::format_timestamp(*at)),
        [CelValue::Duration(nanos)] => CelValue::text(time::format_duration(*nanos)),
        [CelValue::Opaque(value)] => CelValue::text(value.to_string()),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn to_bytes<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::Bytes(bytes)] => Ok(CelValue::Bytes(bytes.clone())),
        [CelValue::String(text)] => {
            budget.charge_text(text.as_str().len())?;
            Ok(CelValue::bytes(text.as_str().as_bytes()))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_timestamp<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    const RANGE: EvalError = EvalError::text("timestamp overflow");
    Ok(CelValue::Timestamp(match args {
        [CelValue::Timestamp(at)] => *at,
        [CelValue::Int(seconds)] => Timestamp::from_second(*seconds).map_err(|_| RANGE)?,
        [CelValue::String(text)] => time::parse_timestamp(text.as_str())
            .ok_or_else(|| conversion_error(text.as_str(), "timestamp"))?,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_duration<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Duration(match args {
        [CelValue::Duration(nanos)] | [CelValue::Int(nanos)] => *nanos,
        [CelValue::String(text)] => {
            time::parse_duration(text.as_str()).ok_or_else(|| conversion_error(text.as_str(), "duration"))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_dyn<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    args.first().cloned().ok_or(EvalError::NoSuchOverload)
}

fn type_of<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    args.first().map(|value| CelValue::Type(value.type_name())).ok_or(EvalError::NoSuchOverload)
}
