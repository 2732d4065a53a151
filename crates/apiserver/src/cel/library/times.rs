//! Parts of timestamps and durations.

use jiff::Zoned;
use jiff::tz::TimeZone;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::time;
use crate::cel::value::CelValue;

const DATE: &[&str] = &["timestamp.()int", "timestamp.(string)int"];
const CLOCK: &[&str] = &["timestamp.()int", "timestamp.(string)int", "duration.()int"];

pub const ROWS: &[Row] = &[
    ("getFullYear", DATE, year),
    ("getMonth", DATE, month),
    ("getDate", DATE, date),
    ("getDayOfMonth", DATE, day_of_month),
    ("getDayOfWeek", DATE, day_of_week),
    ("getDayOfYear", DATE, day_of_year),
    ("getHours", CLOCK, hours),
    ("getMinutes", CLOCK, minutes),
    ("getSeconds", CLOCK, seconds),
    ("getMilliseconds", CLOCK, milliseconds),
];

fn zoned(budget: &mut Budget, args: &[CelValue<'_>]) -> Result<Zoned, EvalError> {
    match args {
        [CelValue::Timestamp(at)] => Ok(at.to_zoned(TimeZone::UTC)),
        [CelValue::Timestamp(at), CelValue::String(name)] => {
            budget.charge(10)?;
            let unknown = || EvalError::owned(format!("unknown time zone {}", name.as_str()));
            Ok(at.to_zoned(time::zone(name.as_str()).ok_or_else(unknown)?))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn part<'a>(budget: &mut Budget, args: &[CelValue<'a>], part: fn(&Zoned) -> i64) -> Evaluated<'a> {
    Ok(CelValue::Int(part(&zoned(budget, args)?)))
}

/// A part of a timestamp, or a whole duration counted in a unit.
fn part_or_count<'a>(
    budget: &mut Budget,
    args: &[CelValue<'a>],
    nanos: i64,
    read: fn(&Zoned) -> i64,
) -> Evaluated<'a> {
    match args {
        [CelValue::Duration(length)] => Ok(CelValue::Int(length / nanos)),
        other => part(budget, other, read),
    }
}

fn year<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.year()))
}

fn month<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.month()) - 1)
}

fn date<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.day()))
}

fn day_of_month<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.day()) - 1)
}

fn day_of_week<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.weekday().to_sunday_zero_offset()))
}

fn day_of_year<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(budget, args, |at| i64::from(at.day_of_year()) - 1)
}

fn hours<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part_or_count(budget, args, 3_600_000_000_000, |at| i64::from(at.hour()))
}

fn minutes<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part_or_count(budget, args, 60_000_000_000, |at| i64::from(at.minute()))
}

fn seconds<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part_or_count(budget, args, 1_000_000_000, |at| i64::from(at.second()))
}

fn milliseconds<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part_or_count(budget, args, 1_000_000, |at| i64::from(at.millisecond()))
}
