//! `'%s has %d'.format([…])` and the texts of numbers.

use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::time;
use crate::cel::value::{CelValue, List};

/// The deepest value that is printed.
const MAX_DEPTH: usize = 64;
/// The most digits after the point.
const MAX_PRECISION: usize = 1000;

/// The shortest text of a number that reads back as the same, with an exponent when it is large or small.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Fills the verbs of `pattern` with `values`.
pub fn format(budget: &mut Budget, pattern: &str, values: &List<'_>) -> Result<String, EvalError> {
    budget.charge_text(pattern.len())?;
    let mut out = String::with_capacity(pattern.len());
    let mut next = 0;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut precision = None;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut digits = 0_usize;
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                digits = digits.saturating_mul(10).saturating_add(digit as usize).min(MAX_PRECISION);
                chars.next();
            }
            precision = Some(digits);
        }
        let Some(verb) = chars.next() else {
            return Err(EvalError::text("unexpected end of string"));
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = values.get(next).ok_or_else(|| EvalError::owned(format!("index {next} out of range")))?;
        next += 1;
        let text = substitute(verb, precision, &value, budget)?;
        budget.charge_text(text.len())?;
        out.push_str(&text);
    }
    Ok(out)
}

fn substitute(
    verb: char,
    precision: Option<usize>,
    value: &CelValue<'_>,
    budget: &mut Budget,
) -> Result<String, EvalError> {
    let precision = precision.unwrap_or(6);
    Ok(match (verb, value) {
        ('s', value) => {
            let mut out = String::new();
            print(value, budget, &mut out, 0)?;
            out
        }
        ('d', CelValue::Int(value)) => value.to_string(),
        ('d', CelValue::Uint(value)) => value.to_string(),
        ('d', CelValue::Double(value)) if value.is_finite() => format_double(*value),
        ('f', CelValue::Double(value)) => format!("{value:.precision$}"),
        ('f', CelValue::Int(value)) => format!("{:.precision$}", *value as f64),
        ('f', CelValue::Uint(value)) => format!("{:.precision$}", *value as f64),
        ('e', CelValue::Double(value)) => exponent(*value, precision),
        ('e', CelValue::Int(value)) => exponent(*value as f64, precision),
        ('b', CelValue::Int(value)) => signed(*value, format!("{:b}", value.unsigned_abs())),
        ('b', CelValue::Uint(value)) => format!("{value:b}"),
        ('b', CelValue::Bool(value)) => u8::from(*value).to_string(),
        ('o', CelValue::Int(value)) => signed(*value, format!("{:o}", value.unsigned_abs())),
        ('o', CelValue::Uint(value)) => format!("{value:o}"),
        ('x', CelValue::Int(value)) => signed(*value, format!("{:x}", value.unsigned_abs())),
        ('X', CelValue::Int(value)) => signed(*value, format!("{:X}", value.unsigned_abs())),
        ('x', CelValue::Uint(value)) => format!("{value:x}"),
        ('X', CelValue::Uint(value)) => format!("{value:X}"),
        ('x' | 'X', CelValue::String(text)) => hex(text.as_str().as_bytes(), verb == 'X', budget)?,
        ('x' | 'X', CelValue::Bytes(bytes)) => hex(bytes, verb == 'X', budget)?,
        ('d' | 'f' | 'e' | 'b' | 'o' | 'x' | 'X', other) => {
            return Err(EvalError::owned(format!(
                "error during formatting: %{verb} clause cannot be used on {}",
                other.type_name()
            )));
        }
        _ => {
            return Err(EvalError::owned(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            )));
        }
    })
}

fn signed(value: i64, digits: String) -> String {
    if value < 0 { format!("-{digits}") } else { digits }
}

fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

fn hex(bytes: &[u8], upper: bool, budget: &mut Budget) -> Result<String, EvalError> {
    budget.charge_text(bytes.len() * 2)?;
    Ok(bytes.iter().map(|b| if upper { format!("{b:02X}") } else { format!("{b:02x}") }).collect())
}

/// Writes a value as `%s` shows it.
fn print(value: &CelValue<'_>, budget: &mut Budget, out: &mut String, depth: usize) -> Result<(), EvalError> {
    budget.charge(1)?;
    if depth > MAX_DEPTH {
        return Err(EvalError::text("value is nested too deeply"));
    }
    match value {
        CelValue::Null => out.push_str("null"),
        CelValue::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        CelValue::Int(value) => out.push_str(&value.to_string()),
        CelValue::Uint(value) => out.push_str(&value.to_string()),
        CelValue::Double(value) => out.push_str(&format_double(*value)),
        CelValue::String(text) => {
            budget.charge_text(text.as_str().len())?;
            out.push_str(text.as_str());
        }
        CelValue::Bytes(bytes) => {
            budget.charge_text(bytes.len())?;
            out.push_str(&String::from_utf8_lossy(bytes));
        }
        CelValue::Timestamp(at) => out.push_str(&time::format_timestamp(*at)),
        CelValue::Duration(nanos) => out.push_str(&time::format_duration(*nanos)),
        CelValue::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                print(&item, budget, out, depth + 1)?;
            }
            out.push(']');
        }
        CelValue::Map(map) => {
            out.push('{');
            for (index, key) in map.keys().iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                print(key, budget, out, depth + 1)?;
                out.push_str(": ");
                print(&map.get(key).unwrap_or(CelValue::Null), budget, out, depth + 1)?;
            }
            out.push('}');
        }
        CelValue::Type(name) => out.push_str(name),
        CelValue::Optional(_) | CelValue::Opaque(_) => {
            return Err(EvalError::owned(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, \
                 maps, lists, types, durations, and timestamps, was given {}",
                value.type_name()
            )));
        }
    }
    Ok(())
}
