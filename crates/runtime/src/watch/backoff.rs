//! Waiting longer after each failure, and not all at the same time.

use std::time::Duration;

use shoal_objects::Entropy;

/// How long to wait after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffOptions {
    /// After the first failure.
    pub base: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for BackoffOptions {
    fn default() -> BackoffOptions {
        BackoffOptions { base: Duration::from_millis(800), max: Duration::from_secs(30) }
    }
}

/// Counts failures since there was progress.
#[derive(Clone, Debug)]
pub struct Backoff {
    options: BackoffOptions,
    entropy: Entropy,
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    pub fn new(options: BackoffOptions, entropy: Entropy) -> Backoff {
        Backoff { options, entropy, failures: 0 }
    }

    /// Something worked: the next failure is a first one again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Another failure: how long to wait, between the half and the whole of a time that doubles.
    pub fn next(&mut self) -> Duration {
        let whole = self.options.base.saturating_mul(1 << self.failures.min(20)).min(self.options.max);
        self.failures = self.failures.saturating_add(1);
        let half = whole / 2;
        let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(self.entropy.below(spread.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_begin_anew_after_progress() {
        let options = BackoffOptions { base: Duration::from_secs(1), max: Duration::from_secs(8) };
        let mut backoff = Backoff::new(options, Entropy::seeded(1));
        for whole in [1, 2, 4, 8, 8, 8] {
            let wait = backoff.next();
            assert!(wait * 2 >= Duration::from_secs(whole) && wait <= Duration::from_secs(whole), "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_secs(1));
    }
}
