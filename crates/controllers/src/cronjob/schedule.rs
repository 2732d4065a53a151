//! When a CronJob is due: five fields, or a descriptor such as `@hourly`, in some time zone.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Unit, Zoned};

/// A date that does not come within so many years never comes.
const YEARS: i16 = 5;

/// What one field may hold.
struct Bounds {
    min: u32,
    max: u32,
    /// Names that stand for numbers, the first for `min`.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The values of a field that are wanted, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// It was `*` or `?`: it says nothing.
    any: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Every(Duration),
    Fields { minute: Field, hour: Field, day: Field, month: Field, weekday: Field },
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule, to be understood in the zone of this name, or in UTC.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Schedule, String> {
        let mut rest = text;
        let mut zone = zone;
        if let Some(after) = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
            let (name, after) = after.split_once(' ').unwrap_or((after, ""));
            zone = Some(name);
            rest = after;
        }
        let zone = match zone {
            Some(name) => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}"))?,
            None => TimeZone::UTC,
        };
        Ok(Schedule { rule: rule(rest.trim())?, zone })
    }

    /// The first time after `after` that the schedule means, if there is one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Every(period) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*period).ok()?).ok()
            }
            Rule::Fields { minute, hour, day, month, weekday } => {
                let start = Timestamp::from_second(after.as_second() - after.as_second().rem_euclid(60));
                let mut at = start.ok()?.checked_add(1.minute()).ok()?.to_zoned(self.zone.clone());
                let last = at.year().saturating_add(YEARS);
                while at.year() <= last {
                    let date = at.date();
                    if !month.has(date.month()) {
                        at = midnight(date.first_of_month().checked_add(1.month()).ok()?, &self.zone)?;
                    } else if !is_day(*day, *weekday, date) {
                        at = midnight(date.tomorrow().ok()?, &self.zone)?;
                    } else if !hour.has(at.hour()) {
                        // Real hours: one that a change of the clock leaves out is never seen.
                        let begun = i64::from(at.minute());
                        at = at.checked_add(60_i64.saturating_sub(begun).minutes()).ok()?;
                    } else if !minute.has(at.minute()) {
                        at = at.checked_add(1.minute()).ok()?;
                    } else {
                        return Some(at.timestamp());
                    }
                }
                None
            }
        }
    }

    /// A time as the schedule's zone writes it.
    pub fn local(&self, time: Timestamp) -> String {
        let local = time.to_zoned(self.zone.clone());
        let offset = local.offset();
        let whole = local.round(Unit::Second).map_or(local.datetime(), |rounded| rounded.datetime());
        if offset.is_zero() { format!("{whole}Z") } else { format!("{whole}{}", colons(offset.seconds())) }
    }
}

/// An offset from UTC as RFC 3339 has it.
fn colons(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

fn midnight(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()
}

/// Where both say something about the day, either is enough.
fn is_day(day: Field, weekday: Field, date: Date) -> bool {
    let by_month = day.has(date.day());
    let by_week = weekday.has(date.weekday().to_sunday_zero_offset());
    if day.any || weekday.any { by_month && by_week } else { by_month || by_week }
}

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| value < 64 && self.bits >> value & 1 == 1)
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    let text = match text {
        "" => return Err("empty spec string".to_owned()),
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    if let Some(every) = text.strip_prefix("@every ") {
        let period = duration(every).ok_or_else(|| format!("failed to parse duration {text}"))?;
        return Ok(Rule::Every(Duration::from_secs(period.as_secs().max(1))));
    }
    if text.starts_with('@') {
        return Err(format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{text}]", fields.len()));
    };
    Ok(Rule::Fields {
        minute: field(minute, &MINUTES)?,
        hour: field(hour, &HOURS)?,
        day: field(day, &DAYS)?,
        month: field(month, &MONTHS)?,
        weekday: field(weekday, &WEEKDAYS)?,
    })
}

fn field(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let mut all = Field { bits: 0, any: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let one = range(part, bounds)?;
        all = Field { bits: all.bits | one.bits, any: all.any || one.any };
    }
    Ok(all)
}

/// One of `*`, `N`, `N-M`, each with an optional `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let (span, step) = match text.split_once('/') {
        Some((span, step)) => (span, Some(number(step, &Bounds { min: 0, max: u32::MAX, names: &[] })?)),
        None => (text, None),
    };
    let every = step.unwrap_or(1);
    let (first, last, any) = match span.split_once('-') {
        _ if span == "*" || span == "?" => (bounds.min, bounds.max, every == 1),
        Some((first, last)) => (number(first, bounds)?, number(last, bounds)?, false),
        None => {
            let first = number(span, bounds)?;
            // `5/15` goes on to the end.
            (first, if step.is_some() { bounds.max } else { first }, false)
        }
    };
    if first < bounds.min || last > bounds.max || first > last || every == 0 {
        return Err(format!("not within {} and {}: {text}", bounds.min, bounds.max));
    }
    let step = usize::try_from(every).unwrap_or(usize::MAX);
    let bits = (first..=last).step_by(step).fold(0, |bits, value| bits | 1_u64 << value);
    Ok(Field { bits, any })
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    if let Some(place) = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return Ok(bounds.min.saturating_add(u32::try_from(place).unwrap_or_default()));
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

/// A Go duration such as `1h30m`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        let units =
            [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (unit, worth) = units.into_iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        seconds += value * worth;
        rest = &rest[digits + unit.len()..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(schedule: &str, zone: Option<&str>, after: &str) -> String {
        let schedule = Schedule::parse(schedule, zone).unwrap();
        schedule.next(after.parse().unwrap()).map_or("never".to_owned(), |time| time.to_string())
    }

    #[test]
    fn the_next_time_is_the_first_that_all_fields_mean() {
        for (schedule, after, expected) in [
            ("*/5 * * * *", "2026-01-01T00:01:30Z", "2026-01-01T00:05:00Z"),
            ("*/5 * * * *", "2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"),
            ("0 0 1 jan *", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("30 9 * * 1-5", "2026-01-02T10:00:00Z", "2026-01-05T09:30:00Z"),
            ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 */2 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 31 2 *", "2026-01-01T00:00:00Z", "never"),
            ("5/20 8 * * *", "2026-01-01T08:30:00Z", "2026-01-01T08:45:00Z"),
            ("@hourly", "2026-01-01T00:59:59Z", "2026-01-01T01:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, None, after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn zones_and_their_changes_are_respected() {
        let berlin = Some("Europe/Berlin");
        assert_eq!(next("0 8 * * *", berlin, "2026-01-01T12:00:00Z"), "2026-01-02T07:00:00Z");
        assert_eq!(next("0 8 * * *", berlin, "2026-07-01T12:00:00Z"), "2026-07-02T06:00:00Z");
        // On 2026-03-29 there is no half past two.
        assert_eq!(next("30 2 * * *", berlin, "2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
        assert_eq!(
            next("TZ=America/New_York 0 0 * * *", None, "2026-01-01T00:00:00Z"),
            "2026-01-01T05:00:00Z"
        );
        let schedule = Schedule::parse("@daily", berlin).unwrap();
        assert_eq!(schedule.local("2026-01-01T23:00:00Z".parse().unwrap()), "2026-01-02T00:00:00+01:00");
        let schedule = Schedule::parse("@daily", None).unwrap();
        assert_eq!(schedule.local("2026-01-01T23:00:00Z".parse().unwrap()), "2026-01-01T23:00:00Z");
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in
            ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "x * * * *", "@often"]
        {
            assert!(Schedule::parse(bad, None).is_err(), "{bad}");
        }
        assert!(Schedule::parse("* * * * *", Some("Mars/Olympus")).is_err());
    }

    proptest! {
        #[test]
        fn nothing_lies_between_a_time_and_the_next(second in 0..4_000_000_000_i64, every in 1..30_u32) {
            let schedule = Schedule::parse(&format!("*/{every} * * * *"), Some("Europe/Berlin")).unwrap();
            let after = Timestamp::from_second(second).unwrap();
            let next = schedule.next(after).unwrap();
            prop_assert!(next > after);
            let before = Timestamp::from_second(next.as_second() - 1).unwrap();
            prop_assert_eq!(schedule.next(before), Some(next));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-*/,0-9@a-zA-Z ?=]{0,30}") {
            if let Ok(schedule) = Schedule::parse(&text, None) {
                let _ = schedule.next(Timestamp::UNIX_EPOCH);
            }
        }
    }
}
