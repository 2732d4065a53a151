//! Texts of timestamps and durations, as Go reads and writes them.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

const SECOND: i64 = 1_000_000_000;
/// Units of a duration's text, longest first where one starts with another.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// Reads `2024-01-02T03:04:05.6Z` and its like with an offset.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00";
    let head = bytes.get(..shape.len())?;
    let fits = head.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s });
    let tail = text.get(shape.len()..)?;
    if !fits || !(tail.ends_with('Z') || tail.len() >= 6) || tail.contains('[') {
        return None;
    }
    text.parse().ok()
}

/// Reads a timestamp or a bare date.
pub fn parse_date(text: &str) -> Option<Timestamp> {
    if text.len() != 10 {
        return parse_timestamp(text);
    }
    let date: Date = text.parse().ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Writes a timestamp in UTC.
pub fn format_timestamp(at: Timestamp) -> String {
    at.to_string()
}

/// Reads `1h30m`, `-1.5s`, `100ms` as nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, nanos) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let nanos = i128::from(*nanos);
        let count: i128 = if whole.is_empty() { 0 } else { i128::from(whole.parse::<i64>().ok()?) };
        total = total.checked_add(count.checked_mul(nanos)?)?;
        let mut part = nanos;
        for digit in fraction.bytes().take(18) {
            // Go computes fractions in floating point; tenths of the unit are exact for all units.
            total += i128::from(digit - b'0') * part / 10;
            part /= 10;
        }
        rest = after.get(unit.len()..)?;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Writes a duration in seconds: `5400s`, `1.5s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, rest) = (nanos / SECOND.unsigned_abs(), nanos % SECOND.unsigned_abs());
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// A zone by name (`Europe/Berlin`) or offset (`+02:00`, `02:00`).
pub fn zone(name: &str) -> Option<TimeZone> {
    if let Some((hours, minutes)) = name.split_once(':') {
        let sign = if hours.starts_with('-') { -1 } else { 1 };
        let hours: i32 = hours.trim_start_matches(['+', '-']).parse().ok().filter(|hours| *hours < 24)?;
        let minutes: i32 = minutes.parse().ok().filter(|minutes| (0..60).contains(minutes))?;
        let seconds = sign * (hours * 3600 + minutes * 60);
        return Some(TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?));
    }
    if name == "UTC" { Some(TimeZone::UTC) } else { TimeZone::get(name).ok() }
}
