//! How long a retry waits: by how often this key failed, and by how many keys failed lately.

use std::time::Duration;

use super::Settings;

/// The delay before retry number `retries` (counted from 1): doubled each time, up to the limit.
pub(super) fn exponential(settings: &Settings, retries: u32) -> Duration {
    let doublings = retries.saturating_sub(1);
    let factor = if doublings < 32 { 1u32 << doublings } else { u32::MAX };
    settings.base_delay.saturating_mul(factor).min(settings.max_delay)
}

/// A token bucket, kept as the moment at which the next token after all promised ones is there.
#[derive(Default)]
pub(super) struct Bucket {
    /// When the bucket would be full again.
    full_at: Duration,
}

impl Bucket {
    /// Takes a token, maybe one that is yet to come: how long until it is there.
    pub(super) fn reserve(&mut self, settings: &Settings, now: Duration) -> Duration {
        if !(settings.qps > 0.0 && settings.qps.is_finite()) {
            return Duration::ZERO;
        }
        let interval = Duration::from_secs_f64((1.0 / settings.qps).min(1e6));
        let capacity = interval.saturating_mul(settings.burst.max(1));
        self.full_at = self.full_at.max(now).saturating_add(interval);
        self.full_at.saturating_sub(now.saturating_add(capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(qps: f64, burst: u32) -> Settings {
        Settings { base_delay: Duration::from_millis(5), max_delay: Duration::from_secs(1000), qps, burst }
    }

    #[test]
    fn delays_double_up_to_the_limit() {
        let delays =
            [1, 2, 3, 10, 18, 19, 40, u32::MAX].map(|retries| exponential(&settings(0.0, 0), retries));
        let millis = delays.map(|delay| delay.as_millis());
        assert_eq!(millis, [5, 10, 20, 2560, 655_360, 1_000_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn a_burst_is_free_and_then_tokens_come_one_by_one() {
        let (settings, mut bucket) = (settings(10.0, 3), Bucket::default());
        let mut wait = |now| bucket.reserve(&settings, Duration::from_millis(now)).as_millis();
        assert_eq!([wait(0), wait(0), wait(0), wait(0), wait(0)], [0, 0, 0, 100, 200]);
        assert_eq!(wait(250), 50);
        assert_eq!(
            [wait(10_000), wait(10_000), wait(10_000), wait(10_000)],
            [0, 0, 0, 100],
            "never more than full"
        );
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut bucket = Bucket::default();
        for qps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(bucket.reserve(&settings(qps, 1), Duration::ZERO), Duration::ZERO);
        }
        assert!(bucket.reserve(&settings(f64::MIN_POSITIVE, 1), Duration::MAX) <= Duration::MAX);
    }
}
