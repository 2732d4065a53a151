//! A reading of one process's own clock.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment on the clock of one process: microseconds since a start that only this process knows.
///
/// The clock must go on while the machine is suspended (`CLOCK_BOOTTIME`). Moments of two processes are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// From microseconds since the clock's start.
    pub const fn from_micros(micros: u64) -> Moment {
        Moment(micros)
    }

    /// Microseconds since the clock's start.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The moment that lies this much before, or the clock's start.
    pub fn earlier(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(micros(by)))
    }

    /// How long ago `earlier` was; nothing if it is yet to come.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(micros(by)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A duration times a factor, rounded up.
pub(crate) fn stretched(duration: Duration, factor: f64) -> Duration {
    Duration::from_micros((micros(duration) as f64 * factor).ceil() as u64)
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}
