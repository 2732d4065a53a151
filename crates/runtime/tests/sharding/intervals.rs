//! Who worked on what and when; and whether that was ever two at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// One reconcile.
#[derive(Clone, Debug)]
pub struct Interval {
    pub key: String,
    pub replica: String,
    pub slot: u32,
    pub epoch: u64,
    pub value: String,
    pub start: Duration,
    pub end: Option<Duration>,
}

/// All reconciles of all replicas.
#[derive(Clone)]
pub struct Intervals {
    began: Instant,
    all: Arc<Mutex<Vec<Interval>>>,
}

/// A reconcile that is under way; it ends also when it is cut off.
pub struct Open {
    intervals: Intervals,
    place: usize,
}

impl Intervals {
    pub fn new() -> Intervals {
        Intervals { began: Instant::now(), all: Arc::default() }
    }

    pub fn begin(&self, key: &str, replica: &str, shard: (u32, u64), value: &str) -> Open {
        let mut all = self.all.lock();
        all.push(Interval {
            key: key.to_owned(),
            replica: replica.to_owned(),
            slot: shard.0,
            epoch: shard.1,
            value: value.to_owned(),
            start: self.began.elapsed(),
            end: None,
        });
        Open { intervals: self.clone(), place: all.len() - 1 }
    }

    pub fn all(&self) -> Vec<Interval> {
        self.all.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// Who worked on each key last.
    pub fn last_by_key(&self) -> BTreeMap<String, Interval> {
        self.all().into_iter().map(|interval| (interval.key.clone(), interval)).collect()
    }

    /// The longest time between two reconciles of one key.
    pub fn longest_gap(&self) -> Duration {
        let mut ends: BTreeMap<String, Duration> = BTreeMap::new();
        let mut longest = Duration::ZERO;
        for interval in self.all() {
            let end = interval.end.unwrap_or(interval.start);
            if let Some(before) = ends.insert(interval.key, end) {
                longest = longest.max(interval.start.saturating_sub(before));
            }
        }
        longest
    }

    /// No two replicas at one key at the same time, and epochs of a slot never fall.
    pub fn check(&self) {
        let mut by_key: BTreeMap<String, Vec<Interval>> = BTreeMap::new();
        let mut epochs: BTreeMap<u32, u64> = BTreeMap::new();
        for interval in self.all() {
            let highest = epochs.entry(interval.slot).or_default();
            assert!(interval.epoch >= *highest, "the epoch of slot {} fell: {interval:?}", interval.slot);
            *highest = interval.epoch;
            by_key.entry(interval.key.clone()).or_default().push(interval);
        }
        for intervals in by_key.values_mut() {
            intervals.sort_by_key(|interval| interval.start);
            for pair in intervals.windows(2) {
                let end = pair[0].end.unwrap_or(Duration::MAX);
                assert!(end <= pair[1].start, "two at once: {:?} and {:?}", pair[0], pair[1]);
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.intervals.all.lock()[self.place].end = Some(self.intervals.began.elapsed());
    }
}
