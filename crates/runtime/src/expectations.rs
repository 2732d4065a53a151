//! Expectations: what a controller has asked for and its cache has not yet shown.
//!
//! A controller that counts its children in a cache must not act on the count while creations and deletions of its
//! own are under way, or it makes too many. It says beforehand what it is about to do, its triggers tell what they
//! see, and it counts only when the two agree or too much time has passed for them ever to.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ObjectKey;

/// After this time the cache is believed again: the events may have been missed while nobody watched.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

struct Expected {
    creations: i64,
    deletions: HashSet<String>,
    since: Instant,
}

/// Expectations by the key of the parent.
#[derive(Default)]
pub struct Expectations(Mutex<HashMap<ObjectKey, Expected>>);

impl Expectations {
    /// No expectations.
    pub fn new() -> Expectations {
        Expectations::default()
    }

    /// `count` children of `parent` are about to be created. Say it before the first request.
    pub fn expect_creations(&self, parent: &ObjectKey, count: usize) {
        self.raise(parent, |expected| expected.creations += i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The children with these uids are about to be deleted. Say it before the first request.
    pub fn expect_deletions(&self, parent: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.raise(parent, |expected| expected.deletions.extend(uids));
    }

    /// A child of `parent` was seen for the first time, or its creation failed.
    pub fn creation_observed(&self, parent: &ObjectKey) {
        self.lower(parent, |expected| expected.creations -= 1);
    }

    /// A child of `parent` is gone or being deleted, or its deletion failed.
    pub fn deletion_observed(&self, parent: &ObjectKey, uid: &str) {
        self.lower(parent, |expected| {
            expected.deletions.remove(uid);
        });
    }

    /// Whether the cache has shown everything that was asked for, or never will.
    pub fn satisfied(&self, parent: &ObjectKey) -> bool {
        let mut all = self.0.lock();
        let Some(expected) = all.get(parent) else { return true };
        let over = expected.met() || expected.since.elapsed() > TIMEOUT;
        if over {
            all.remove(parent);
        }
        over
    }

    /// The parent is gone.
    pub fn forget(&self, parent: &ObjectKey) {
        self.0.lock().remove(parent);
    }

    fn raise(&self, parent: &ObjectKey, change: impl FnOnce(&mut Expected)) {
        let mut all = self.0.lock();
        let new = || Expected { creations: 0, deletions: HashSet::new(), since: Instant::now() };
        let expected = all.entry(parent.clone()).or_insert_with(new);
        expected.since = Instant::now();
        change(expected);
    }

    fn lower(&self, parent: &ObjectKey, change: impl FnOnce(&mut Expected)) {
        if let Some(expected) = self.0.lock().get_mut(parent) {
            change(expected);
        }
    }
}

impl Expected {
    fn met(&self) -> bool {
        self.creations <= 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_waits_until_its_own_writes_are_seen() {
        let (all, parent) = (Expectations::new(), ObjectKey::new("a", "web"));
        assert!(all.satisfied(&parent));
        all.expect_creations(&parent, 2);
        all.creation_observed(&parent);
        assert!(!all.satisfied(&parent));
        // The event may come before the answer to the request that caused it.
        all.creation_observed(&parent);
        assert!(all.satisfied(&parent));
        all.expect_deletions(&parent, ["u1".to_owned(), "u2".to_owned()]);
        all.deletion_observed(&parent, "u1");
        all.deletion_observed(&parent, "u1");
        assert!(!all.satisfied(&parent), "one uid counts once");
        all.deletion_observed(&parent, "u2");
        assert!(all.satisfied(&parent));
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_never_come_are_given_up() {
        let (all, parent) = (Expectations::new(), ObjectKey::new("a", "web"));
        all.expect_creations(&parent, 1);
        tokio::time::advance(TIMEOUT).await;
        assert!(!all.satisfied(&parent));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(all.satisfied(&parent));
    }
}
