//! A daemon that fails at once is not restarted at once, for ever.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

const FIRST: i64 = 1;
const LONGEST: i64 = 15 * 60;

/// When and with which delay daemons were last replaced, by uid of the set and name of the node.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<(String, String), (i64, i64)>>);

impl Backoff {
    /// How long to wait before the failed daemon of this node is replaced; nothing: do it now.
    pub(super) fn wait(&self, set: &str, node: &str, now: Timestamp) -> Option<Duration> {
        let now = now.as_second();
        let mut all = self.0.lock();
        // One that has run for long may fail like a new one.
        all.retain(|_, (last, _)| now.saturating_sub(*last) < 2 * LONGEST);
        let entry = all.entry((set.to_owned(), node.to_owned()));
        let mut first = false;
        let (last, delay) = entry.or_insert_with(|| {
            first = true;
            (now, FIRST)
        });
        let left = last.saturating_add(*delay) - now;
        if !first && left > 0 {
            return u64::try_from(left).ok().map(Duration::from_secs);
        }
        if !first {
            (*last, *delay) = (now, (*delay * 2).min(LONGEST));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_twice_as_long_as_the_one_before() {
        let backoff = Backoff::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(backoff.wait("s", "n", at(0)), None);
        assert_eq!(backoff.wait("s", "n", at(0)), Some(Duration::from_secs(1)));
        assert_eq!(backoff.wait("s", "n", at(1)), None);
        assert_eq!(backoff.wait("s", "n", at(1)), Some(Duration::from_secs(2)));
        assert_eq!(backoff.wait("s", "other", at(1)), None);
        assert_eq!(backoff.wait("s", "n", at(9_000)), None);
        assert_eq!(backoff.wait("s", "n", at(9_000)), Some(Duration::from_secs(1)), "forgotten meanwhile");
    }
}
