//! Whether a text is a cron schedule: five fields, or a descriptor such as `@hourly`.

use jiff::tz::TimeZone;

/// What one field may hold.
struct Bounds {
    min: u64,
    max: u64,
    /// Names that stand for numbers, the first for `min`.
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Checks a schedule; the error is in the words of the real server.
pub fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if let Some(zone) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        let (zone, after) = zone.split_once(' ').unwrap_or((zone, ""));
        TimeZone::get(zone).map_err(|_| format!("provided bad location {zone}: unknown time zone {zone}"))?;
        rest = after.trim();
    }
    if rest.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if rest.starts_with('@') {
        return check_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn check_descriptor(descriptor: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&descriptor) {
        return Ok(());
    }
    match descriptor.strip_prefix("@every ") {
        Some(every) if is_duration(every) => Ok(()),
        Some(every) => {
            Err(format!("failed to parse duration {descriptor}: time: invalid duration {every:?}"))
        }
        None => Err(format!("unrecognized descriptor: {descriptor}")),
    }
}

/// A Go duration: an optional sign, then decimal numbers with units.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if !rest[..number].contains(|c: char| c.is_ascii_digit()) || rest[..number].matches('.').count() > 1 {
            return false;
        }
        let units = &rest[number..];
        let Some(unit) =
            ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|u| units.starts_with(**u))
        else {
            return false;
        };
        rest = &units[unit.len()..];
        parts += 1;
    }
    parts > 0
}

/// One of `*`, `N`, `N-M`, each with an optional `/step`.
fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let mut parts = range.split('/');
    let span = parts.next().unwrap_or_default();
    let step = parts.next();
    let ends: Vec<&str> = span.split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => number(one, bounds).map(|n| (n, n))?,
        [low, high] => (number(low, bounds)?, number(high, bounds)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let mut every = 1;
    if let Some(step) = step {
        if parts.next().is_some() {
            return Err(format!("too many slashes: {range}"));
        }
        every = integer(step)?;
        if ends.len() == 1 {
            end = bounds.max;
        }
    }
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {range}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {range}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if every == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named {
        Some(position) => Ok(bounds.min + position as u64),
        None => integer(text),
    }
}

fn integer(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(n) => u64::try_from(n).map_err(|_| format!("negative number ({n}) not allowed: {text}")),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_of_five_fields_and_descriptors_are_accepted() {
        for good in [
            "*/5 * * * *",
            "0 0 1 jan SUN",
            "1,2,3-5/2 ? * * 1-5",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
            "@every 1.5s",
            "TZ=UTC 0 * * * *",
            "CRON_TZ=Europe/Berlin @daily",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (bad, message) in [
            ("", "empty spec string"),
            ("not a schedule", "expected exactly 5 fields, found 3: [not a schedule]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every day", "failed to parse duration @every day: time: invalid duration \"day\""),
            (
                "TZ=Mars/Olympus * * * * *",
                "provided bad location Mars/Olympus: unknown time zone Mars/Olympus",
            ),
        ] {
            assert_eq!(check(bad), Err(message.to_owned()), "{bad}");
        }
    }
}
