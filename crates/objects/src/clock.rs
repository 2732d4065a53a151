//! The one source of timestamps. Injected, so that a run can be repeated to the byte.

use std::fmt;
use std::sync::Arc;

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Tells the time of day. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Clock {
        Clock(Arc::new(|| {
            #[allow(clippy::disallowed_methods, reason = "this is the place the rest of the code is sent to")]
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
        }))
    }

    /// A clock that asks `now`.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

impl Timestamp {
    /// Whole seconds since the epoch.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This time moved by some seconds.
    pub fn plus_seconds(self, seconds: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// RFC 3339 with six decimals, as Kubernetes' MicroTime.
    pub fn to_micro_string(self) -> String {
        let (y, mo, d, h, mi, s) = self.civil();
        let micros = self.0.rem_euclid(1_000_000);
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{micros:06}Z")
    }

    fn civil(self) -> (i64, i64, i64, i64, i64, i64) {
        let seconds = self.seconds();
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Days to a date of the proleptic Gregorian calendar, counting years from March so that the leap day is last.
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month, day, rest / 3_600, rest / 60 % 60, rest % 60)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in whole seconds, as Kubernetes' Time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (y, mo, d, h, mi, s) = self.civil();
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp(951_782_400_000_000).to_string(), "2000-02-29T00:00:00Z");
        assert_eq!(Timestamp(1_714_557_600_123_456).to_micro_string(), "2024-05-01T10:00:00.123456Z");
        assert_eq!(Timestamp(-1).to_micro_string(), "1969-12-31T23:59:59.999999Z");
    }
}
