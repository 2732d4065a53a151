//! Scalars that Go decodes with code of their own: times, quantities, bytes, numbers or text.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::Number;
use shoal_objects::{Timestamp, Value};

/// Checks a time and writes it in UTC, with whole seconds or with six decimals.
/// `None` for the zero time, which Go writes as absent.
pub fn time(value: &mut Value, micro: bool) -> Result<Option<()>, String> {
    let text = text_of(value)?;
    if is_canonical(text.as_bytes(), micro) {
        return Ok((!text.starts_with("0001-01-01T00:00:00")).then_some(()));
    }
    let time = parse_time(text, micro)?;
    let canonical = if micro { time.to_micro_string() } else { time.to_string() };
    let kept = !canonical.starts_with("0001-01-01T00:00:00");
    *value = Value::String(canonical);
    Ok(kept.then_some(()))
}

/// Already as it would be written, and a date that exists.
fn is_canonical(text: &[u8], micro: bool) -> bool {
    let pattern: &[u8] = if micro { b"0000-00-00T00:00:00.000000Z" } else { b"0000-00-00T00:00:00Z" };
    let digits_fit = text.len() == pattern.len()
        && text.iter().zip(pattern).all(|(c, p)| if *p == b'0' { c.is_ascii_digit() } else { c == p });
    // Days beyond 28 need the calendar.
    digits_fit
        && &text[5..7] <= b"12".as_slice()
        && &text[5..7] > b"00".as_slice()
        && &text[8..10] <= b"28".as_slice()
        && &text[8..10] > b"00".as_slice()
        && &text[11..13] < b"24".as_slice()
        && text[14] < b'6'
        && text[17] < b'6'
}

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads a time as Go does, with its complaints.
pub fn parse_time(text: &str, micro: bool) -> Result<Timestamp, String> {
    let layout = if micro { MICRO_LAYOUT } else { SECONDS_LAYOUT };
    let complain = |what: String| format!("parsing time {text:?} as {layout:?}: {what}");
    let out_of_range = |what: &str| format!("parsing time {text:?}: {what} out of range");

    let mut rest = text;
    let mut numbers = [0i64; 6];
    let parts =
        [("2006", 4, "-"), ("01", 2, "-"), ("02", 2, "T"), ("15", 2, ":"), ("04", 2, ":"), ("05", 2, "")];
    for (number, (element, width, literal)) in numbers.iter_mut().zip(parts) {
        let digits = rest.get(..width).filter(|d| d.bytes().all(|c| c.is_ascii_digit()));
        let Some(digits) = digits else {
            return Err(complain(format!("cannot parse {rest:?} as {element:?}")));
        };
        *number = digits.parse().unwrap_or_default();
        rest = &rest[width..];
        let Some(after) = rest.strip_prefix(literal) else {
            return Err(complain(format!("cannot parse {rest:?} as {literal:?}")));
        };
        rest = after;
    }

    let fraction_digits =
        rest.strip_prefix(['.', ',']).map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
    let mut micros = 0;
    if micro && (fraction_digits != 6 || !rest.starts_with('.')) {
        return Err(complain(format!("cannot parse {rest:?} as \".000000\"")));
    }
    if fraction_digits > 0 {
        if micro {
            micros = rest[1..7].parse().unwrap_or_default();
        }
        rest = &rest[1 + fraction_digits..];
    }

    let offset = match rest.as_bytes() {
        [b'Z', ..] => {
            rest = &rest[1..];
            0
        }
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..]
            if [h1, h2, m1, m2].iter().all(|c| c.is_ascii_digit()) =>
        {
            let pair = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let minutes = pair(h1, h2) * 60 + pair(m1, m2);
            rest = &rest[6..];
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return Err(complain(format!("cannot parse {rest:?} as \"Z07:00\""))),
    };
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }

    let [year, month, day, hour, minute, second] = numbers;
    let checks = [
        (month, 1, 12, "month"),
        (hour, 0, 23, "hour"),
        (minute, 0, 59, "minute"),
        (second, 0, 59, "second"),
    ];
    if let Some((.., what)) = checks.iter().find(|(n, low, high, _)| n < low || n > high) {
        return Err(out_of_range(what));
    }
    let narrow = |n: i64| i8::try_from(n).unwrap_or_default();
    let date = i16::try_from(year)
        .ok()
        .and_then(|year| jiff::civil::Date::new(year, narrow(month), narrow(day)).ok());
    let Some(date) = date else { return Err(out_of_range("day")) };
    let days = i64::from((date - jiff::civil::date(1970, 1, 1)).get_days());
    let seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second;
    Ok(Timestamp(seconds * 1_000_000 + micros))
}

/// Checks a quantity and writes it canonically. Numbers are taken as their text.
pub fn quantity(value: &mut Value) -> Result<(), String> {
    let text = match &*value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
        // Go hands the raw JSON to the quantity parser, which refuses it.
        other => Cow::Owned(other.to_string()),
    };
    let canonical = shoal_objects::quantity::canonicalize(&text).map_err(|e| e.to_string())?;
    if value.as_str() != Some(&*canonical) {
        *value = Value::String(canonical);
    }
    Ok(())
}

/// Checks a number of 32 bits or text.
pub fn int_or_string(value: &Value) -> Result<(), String> {
    match value {
        Value::String(_) => Ok(()),
        Value::Number(n) if in_int32(n) => Ok(()),
        Value::Number(n) => Err(format!("json: cannot unmarshal number {n} into Go value of type int32")),
        other => Err(format!("json: cannot unmarshal {} into Go value of type int32", go_kind(other))),
    }
}

/// Whether the number is whole and fits 32 bits.
pub fn in_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}

/// Go reads bits behind the last byte without complaint and line breaks anywhere; what it writes is canonical.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Checks base64 and writes it canonically.
pub fn bytes(text: &mut String) -> Result<(), String> {
    let broken = text.contains(['\n', '\r']);
    let joined =
        if broken { Cow::Owned(text.replace(['\n', '\r'], "")) } else { Cow::Borrowed(text.as_str()) };
    let corrupt = |at: usize| format!("illegal base64 data at input byte {at}");
    let decoded = LENIENT.decode(joined.as_bytes()).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            corrupt(at)
        }
        _ => corrupt(joined.len() / 4 * 4),
    })?;
    // Only these two make a difference between what was read and what is written.
    if broken || joined.ends_with('=') {
        let canonical = STANDARD.encode(decoded);
        if canonical != *text {
            *text = canonical;
        }
    }
    Ok(())
}

fn text_of(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("json: cannot unmarshal {} into Go value of type string", go_kind(value)))
}

/// What Go's decoder calls a JSON value.
pub fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
