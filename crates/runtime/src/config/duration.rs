//! Durations as people write them: `10s`, `1m30s`, `250ms`.

use std::time::Duration;

const UNITS: &[(&str, u64)] = &[
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// Reads a duration: numbers, each with a unit (`h`, `m`, `s`, `ms`, `us`, `ns`), or a lone `0`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("{:?} is not a duration: write a number and a unit, such as \"30s\" or \"1m30s\"", clip(text))
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (whole, tail) = rest.split_at(digits);
        let (fraction, tail) = match tail.strip_prefix('.') {
            Some(tail) => tail.split_at(tail.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?),
            None => ("", tail),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let too_long = || format!("{:?} is too long for a duration", clip(text));
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        nanos += u128::from(whole) * u128::from(*scale);
        // Nine digits are nanoseconds of the largest unit that matters; more would be lost anyway.
        let fraction = &fraction[..fraction.len().min(9)];
        if !fraction.is_empty() {
            let value: u128 = fraction.parse().map_err(|_| wrong())?;
            nanos += value * u128::from(*scale) / 10u128.pow(fraction.len() as u32);
        }
        if nanos > u128::from(u64::MAX) {
            return Err(too_long());
        }
        rest = tail;
    }
    match u64::try_from(nanos) {
        Ok(nanos) if !text.is_empty() => Ok(Duration::from_nanos(nanos)),
        _ => Err(wrong()),
    }
}

/// Writes a duration so that [`parse`] reads it back.
pub fn format(duration: Duration) -> String {
    let mut nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, scale) in UNITS.iter().filter(|(unit, _)| *unit != "µs") {
        let count = nanos / u128::from(*scale);
        nanos %= u128::from(*scale);
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}

/// Serialises a duration as its text.
pub(super) fn serialize<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*duration))
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("1.5s", 1_500),
            (".5m", 30_000),
            ("0", 0),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in ["", "30", "s", "30 s", "-1s", "1d", "1.s.", "99999999999999999999s", "9999999999h", "."]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            parse("30").unwrap_err(),
            r#""30" is not a duration: write a number and a unit, such as "30s" or "1m30s""#
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in any::<u64>()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
