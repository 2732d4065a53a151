//! A token bucket: so many requests per second, and some at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Spreads requests over time. Cheap to clone; all clones share the bucket.
#[derive(Clone, Debug)]
pub struct Limiter {
    interval: Duration,
    burst: u32,
    /// When the bucket would be full if nobody took anything.
    full_at: Arc<Mutex<Instant>>,
}

impl Limiter {
    /// `rate` requests per second, `burst` at once.
    pub fn new(rate: f64, burst: u32) -> Limiter {
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX / 4);
        Limiter { interval, burst: burst.max(1), full_at: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Waits for a turn. Turns come in the order in which they were asked for; a turn that is not waited for is lost.
    pub async fn acquire(&self) {
        let at = {
            let mut full_at = self.full_at.lock();
            let now = Instant::now();
            let allowance = self.interval.saturating_mul(self.burst - 1);
            let base = (*full_at).max(now);
            *full_at = base.checked_add(self.interval).unwrap_or(base);
            base.checked_sub(allowance).unwrap_or(now)
        };
        tokio::time::sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_is_spread() {
        let limiter = Limiter::new(10.0, 5);
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..8 {
            limiter.acquire().await;
            times.push(start.elapsed().as_millis());
        }
        // Timers are as coarse as a millisecond.
        assert_eq!(times[..5], [0; 5]);
        assert!((100..=101).contains(&times[5]) && (300..=303).contains(&times[7]), "{times:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let rested = Instant::now();
        for _ in 0..5 {
            limiter.acquire().await;
        }
        assert_eq!(rested.elapsed(), Duration::ZERO, "a rest fills the bucket, but not beyond its size");
        limiter.acquire().await;
        assert!(rested.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn strange_rates_do_not_panic() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            let limiter = Limiter::new(rate, 0);
            let _ = tokio::time::timeout(Duration::from_secs(1), limiter.acquire()).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), limiter.acquire()).await;
        }
    }
}
