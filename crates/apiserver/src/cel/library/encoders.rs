//! `base64.*` and `jsonpatch.*`

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::CelValue;

pub const ROWS: &[Row] = &[
    ("base64.encode", &["(bytes)string"], encode),
    ("base64.decode", &["(string)bytes"], decode),
    ("jsonpatch.escapeKey", &["(string)string"], escape_key),
];

fn encode<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::Bytes(bytes)] = args else { return Err(EvalError::NoSuchOverload) };
    budget.charge_text(bytes.len())?;
    Ok(CelValue::text(STANDARD.encode(bytes)))
}

fn decode<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text)] = args else { return Err(EvalError::NoSuchOverload) };
    budget.charge_text(text.as_str().len())?;
    let decoded = STANDARD.decode(text.as_str()).or_else(|_| STANDARD_NO_PAD.decode(text.as_str()));
    decoded.map(CelValue::bytes).map_err(|_| EvalError::text("illegal base64 data"))
}

fn escape_key<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text)] = args else { return Err(EvalError::NoSuchOverload) };
    budget.charge_text(text.as_str().len())?;
    Ok(CelValue::text(text.as_str().replace('~', "~0").replace('/', "~1")))
}
