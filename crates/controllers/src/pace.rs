//! Holds back what takes long and is asked for all the time.
//!
//! The endpoints of a Service are worked out from all of its pods. With a hundred thousand of them, doing so after each
//! change of one would take all there is. So a key rests for some multiple of the time that it took, and what happens
//! meanwhile is done in one go. What is quick is done at once, as ever.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_runtime::ObjectKey;
use tokio::time::Instant;

/// A key rests this many times as long as it took,
const REST: u32 = 9;
/// but never longer than this,
const LONGEST: Duration = Duration::from_secs(2);
/// and not at all if it was quick.
const QUICK: Duration = Duration::from_millis(5);

/// When keys may be worked on again.
#[derive(Default)]
pub struct Pace(Mutex<HashMap<ObjectKey, Instant>>);

impl Pace {
    /// How long the key still has to rest.
    pub fn rest(&self, key: &ObjectKey) -> Option<Duration> {
        let mut all = self.0.lock();
        let until = *all.get(key)?;
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        if left.is_none() {
            all.remove(key);
        }
        left
    }

    /// The key was worked on since `began`.
    pub fn worked(&self, key: &ObjectKey, began: Instant) {
        let took = began.elapsed();
        if took > QUICK {
            self.0.lock().insert(key.clone(), Instant::now() + (took * REST).min(LONGEST));
        }
    }

    /// The object is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_rests_and_what_is_quick_does_not() {
        let (pace, key) = (Pace::default(), ObjectKey::new("a", "b"));
        let began = Instant::now();
        pace.worked(&key, began);
        assert_eq!(pace.rest(&key), None);
        tokio::time::advance(Duration::from_millis(20)).await;
        pace.worked(&key, began);
        assert_eq!(pace.rest(&key), Some(Duration::from_millis(180)));
        tokio::time::advance(Duration::from_millis(180)).await;
        assert_eq!(pace.rest(&key), None);
        tokio::time::advance(Duration::from_secs(60)).await;
        pace.worked(&key, began);
        assert_eq!(pace.rest(&key), Some(LONGEST));
    }
}
