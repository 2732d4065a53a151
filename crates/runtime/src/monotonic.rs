//! A clock that only goes forward and goes on while the machine sleeps.
//!
//! Leases are about how much time has passed. The time of day can jump, and the usual monotonic clock stands still in
//! suspend: a laptop that wakes after an hour would believe that it still leads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time since some fixed moment. Cheap to clone.
#[derive(Clone)]
pub struct Monotonic {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    everywhere: bool,
}

/// The longest timer that is set at once: timers stand still in suspend, so they are looked at again this often.
const NAP: Duration = Duration::from_millis(500);

impl Monotonic {
    /// The machine's clock since boot, suspend included.
    pub fn system() -> Monotonic {
        let now = Arc::new(|| {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
            let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
            Duration::new(seconds, nanos)
        });
        Monotonic { now, everywhere: true }
    }

    /// Tokio's clock, for tests with paused time.
    pub fn tokio() -> Monotonic {
        let start = tokio::time::Instant::now();
        Monotonic::from_fn(move || start.elapsed())
    }

    /// A clock that asks `now`, which may depend on the runtime that it is asked in.
    pub fn from_fn(now: impl Fn() -> Duration + Send + Sync + 'static) -> Monotonic {
        Monotonic { now: Arc::new(now), everywhere: false }
    }

    /// Whether threads outside of the runtime read the same time.
    pub fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// The time now.
    pub fn now(&self) -> Duration {
        (self.now)()
    }

    /// Waits until this clock shows `time`.
    pub async fn reached(&self, time: Duration) {
        loop {
            let left = time.saturating_sub(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(NAP)).await;
        }
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monotonic({:?})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_machines_clock_goes_forward() {
        let clock = Monotonic::system();
        let before = clock.now();
        assert!(!before.is_zero());
        assert!(clock.now() >= before);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_passes_in_suspend_is_noticed_soon_after() {
        let asleep = Arc::new(AtomicU64::new(0));
        let (awake, gap) = (Monotonic::tokio(), asleep.clone());
        let clock =
            Monotonic::from_fn(move || awake.now() + Duration::from_secs(gap.load(Ordering::Relaxed)));
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.reached(Duration::from_secs(3600)).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        asleep.store(3600, Ordering::Relaxed);
        tokio::time::timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap();
    }
}
