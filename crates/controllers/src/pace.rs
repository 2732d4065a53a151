//! Large workloads are looked at less often: while ten thousand pods start, each of them is no reason to go through all.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_runtime::ObjectKey;
use tokio::time::Instant;

const LONGEST: Duration = Duration::from_secs(2);
/// Those with fewer pods are looked at whenever something changes.
const MANY: usize = 100;

/// When large workloads were last looked at, and how large they were.
pub(crate) struct Pace {
    per_pod: Duration,
    looks: Mutex<HashMap<ObjectKey, (Instant, usize)>>,
}

impl Pace {
    /// Each pod adds this much time between two looks.
    pub(crate) fn new(per_pod: Duration) -> Pace {
        Pace { per_pod, looks: Mutex::default() }
    }

    /// How long it is too early to look again.
    pub(crate) fn wait(&self, key: &ObjectKey) -> Option<Duration> {
        let (last, pods) = *self.looks.lock().get(key)?;
        let pause = self.per_pod.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(LONGEST);
        pause.checked_sub(last.elapsed()).filter(|left| !left.is_zero())
    }

    /// One with so many pods was looked at.
    pub(crate) fn looked(&self, key: &ObjectKey, pods: usize) {
        let mut all = self.looks.lock();
        if pods < MANY {
            all.remove(key);
        } else {
            all.insert(key.clone(), (Instant::now(), pods));
        }
    }

    /// It is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.looks.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_larger_the_workload_the_longer_the_pause() {
        let (pace, key) = (Pace::new(Duration::from_micros(100)), ObjectKey::new("a", "s"));
        assert_eq!(pace.wait(&key), None);
        pace.looked(&key, 5);
        assert_eq!(pace.wait(&key), None);
        pace.looked(&key, 10_000);
        assert_eq!(pace.wait(&key), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(pace.wait(&key), Some(Duration::from_millis(100)));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(pace.wait(&key), None);
    }
}
