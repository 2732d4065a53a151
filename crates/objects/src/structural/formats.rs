//! The `format`s the real server checks. All others are taken as they are.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether a text has the format.
pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => date(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid(text, format),
        "byte" => base64(text),
        "uri" => uri(text),
        "email" => email(text),
        "hostname" => hostname(text),
        "mac" => mac(text),
        "duration" => duration(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "hexcolor" => {
            let hex = text.strip_prefix('#').unwrap_or(text);
            matches!(hex.len(), 3 | 6) && hex.bytes().all(|b| b.is_ascii_hexdigit())
        }
        _ => true,
    }
}

/// What is wrong with a number that does not fit its format.
pub fn integer_overflow(format: &str, n: f64) -> Option<&'static str> {
    match format {
        "int32" if !(-2147483648.0..=2147483647.0).contains(&n) => {
            Some("must be a number that fits in 32 bits (int32)")
        }
        "uint32" if !(0.0..=4294967295.0).contains(&n) => {
            Some("must be a number that fits in 32 bits (uint32)")
        }
        "int64" if !(-9.223372036854776e18..=9.223372036854776e18).contains(&n) => {
            Some("must be a number that fits in 64 bits (int64)")
        }
        "float" if n.is_finite() && n.abs() > f64::from(f32::MAX) => {
            Some("must be a number that fits in 32 bits (float)")
        }
        _ => None,
    }
}

/// Standard base64 with padding.
fn base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
    let padding = bytes.iter().rev().take_while(|b| **b == b'=').count();
    let body = &bytes[..bytes.len() - padding];
    bytes.len().is_multiple_of(4)
        && padding <= 2
        && body.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn date_time(text: &str) -> bool {
    let spaced = text.len() > 10 && text.is_char_boundary(10) && matches!(&text[10..11], "T" | "t" | " ");
    spaced && text.parse::<jiff::Timestamp>().is_ok()
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn uuid(text: &str, format: &str) -> bool {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let version = match format {
        "uuid3" => '3',
        "uuid4" => '4',
        "uuid5" => '5',
        _ => return hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()),
    };
    hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()) && hex.chars().nth(12) == Some(version)
}

/// An absolute URI, or a path: what Go's `url.ParseRequestURI` takes.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f || b == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        && !rest.is_empty()
}

fn email(text: &str) -> bool {
    let Some((user, host)) = text.rsplit_once('@') else { return false };
    !user.is_empty() && !host.is_empty() && !text.contains([' ', '<', '>', ','])
}

fn hostname(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 255 && name.split('.').all(label)
}

fn mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A Go duration such as `1h30m`, or a number with a unit in words.
fn duration(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    if body == "0" {
        return true;
    }
    const UNITS: &[&str] = &[
        "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w", "nano", "micro", "milli", "sec", "second",
        "seconds", "min", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks",
    ];
    let mut rest = body;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        if number.parse::<f64>().is_err() || !UNITS.contains(&&after[..unit]) {
            return false;
        }
        rest = after[unit..].trim_start();
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_hold_and_fail() {
        for (format, good, bad) in [
            ("date-time", "2024-01-01T00:00:00Z", "yesterday"),
            ("date-time", "2024-01-01T00:00:00.5+02:00", "2024-13-01T00:00:00Z"),
            ("date", "2024-02-29", "2024-02-30"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "::g"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "6f1ed002-ab5b-4b4d-9f0c-4d1a0b6f6a52", "6f1e"),
            ("byte", "aGk=", "aGk"),
            ("uri", "https://a.b/c", "a b"),
            ("email", "a@b.c", "a"),
            ("hostname", "a-b.c", "-a"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("duration", "1h30m", "1x"),
            ("duration", "3 days", "µ"),
        ] {
            assert!(holds(format, good), "{format} {good}");
            assert!(!holds(format, bad), "{format} {bad}");
        }
        assert!(holds("made-up", "anything"));
        assert!(!holds("date-time", "2024-01-0é"));
    }
}
