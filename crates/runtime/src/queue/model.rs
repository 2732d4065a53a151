//! The queue against a reference that is too simple to be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::backoff::{Bucket, exponential};
use super::core::Core;
use super::entries::{Digest, Slot};
use super::lanes::LOW_SHARE;
use super::{Next, Priority, Settings};

const KEYS: u64 = 12;
const GROUPS: u64 = 3;
const SETTINGS: Settings = Settings {
    base_delay: Duration::from_millis(3),
    max_delay: Duration::from_millis(40),
    qps: 50.0,
    burst: 4,
};

#[derive(Clone, Debug)]
enum Step {
    Add(u64, Priority),
    AddAfter(u64, u64),
    Retry(u64),
    Take,
    /// Finishes one of the running keys.
    Finish(usize, Next),
    Forget(u64),
    Pass(u64),
    Close,
    Discard,
}

/// One key of the reference.
#[derive(Clone, Copy, Debug)]
struct Known {
    priority: Priority,
    /// Position in the order of arrival, for a ready key.
    ready: Option<u64>,
    due: Option<u64>,
    running: bool,
    again: bool,
    retries: u32,
}

/// Everything is found by looking at every key.
#[derive(Default)]
struct Reference {
    keys: BTreeMap<u64, Known>,
    /// Order of the groups of each lane; a group leaves when it was asked and had nothing left.
    turns: BTreeMap<Priority, Vec<u64>>,
    arrivals: u64,
    passed_over: u32,
    bucket: Bucket,
    closed: bool,
    now: u64,
}

fn group(key: u64) -> u64 {
    key % GROUPS
}

fn digest(key: u64) -> Digest {
    // Two keys share each hash.
    Digest { hash: (key / 2) as u32, group: group(key) as u32 }
}

impl Reference {
    fn entry(&mut self, key: u64) -> &mut Known {
        self.keys.entry(key).or_insert(Known {
            priority: Priority::Live,
            ready: None,
            due: None,
            running: false,
            again: false,
            retries: 0,
        })
    }

    fn enter(&mut self, key: u64) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let entry = self.entry(key);
        entry.ready = Some(arrival);
        let priority = entry.priority;
        let turns = self.turns.entry(priority).or_default();
        if !turns.contains(&group(key)) {
            turns.push(group(key));
        }
    }

    fn due_now(&mut self, key: u64) {
        let entry = self.entry(key);
        entry.due = None;
        match entry.running {
            true => entry.again = true,
            false => self.enter(key),
        }
    }

    fn add(&mut self, key: u64, priority: Priority) {
        if self.closed {
            return;
        }
        let entry = self.entry(key);
        let pending = entry.ready.is_some() || entry.due.is_some() || entry.again;
        let raised = if pending { priority.max(entry.priority) } else { priority };
        let changed = raised != entry.priority;
        entry.priority = raised;
        match entry.ready {
            Some(_) if changed => self.enter(key),
            Some(_) => {}
            None => self.due_now(key),
        }
    }

    /// A key that is nowhere has no priority to keep.
    fn begin(&mut self, key: u64) {
        let entry = self.entry(key);
        if entry.ready.is_none() && entry.due.is_none() && !entry.running {
            entry.priority = Priority::Live;
        }
    }

    fn add_after(&mut self, key: u64, delay: Duration) {
        if self.closed {
            return;
        }
        let due = self.now + delay.as_millis() as u64;
        let entry = self.entry(key);
        if entry.ready.is_some() || entry.again || entry.due.is_some_and(|earlier| earlier <= due) {
            return;
        }
        match delay.is_zero() {
            true => self.due_now(key),
            false => entry.due = Some(due),
        }
    }

    fn retry(&mut self, key: u64) {
        if self.closed {
            return;
        }
        let now = Duration::from_millis(self.now);
        let entry = self.entry(key);
        entry.retries += 1;
        let own = exponential(&SETTINGS, entry.retries);
        let delay = own.max(self.bucket.reserve(&SETTINGS, now));
        self.add_after(key, delay);
    }

    fn lane(&self, priority: Priority) -> usize {
        self.keys.values().filter(|known| known.ready.is_some() && known.priority == priority).count()
    }

    fn take(&mut self) -> Option<u64> {
        let (live, resync) = (self.lane(Priority::Live), self.lane(Priority::Resync));
        let priority = match (live, resync) {
            (0, 0) => return None,
            (_, 0) => Priority::Live,
            (0, _) => Priority::Resync,
            _ if self.passed_over == LOW_SHARE - 1 => Priority::Resync,
            _ => Priority::Live,
        };
        self.passed_over = if priority == Priority::Live && resync > 0 { self.passed_over + 1 } else { 0 };
        loop {
            let group_now = self.turns.get_mut(&priority)?.remove(0);
            let mut ready: Vec<_> = self
                .keys
                .iter()
                .filter(|(key, known)| known.priority == priority && group(**key) == group_now)
                .filter_map(|(key, known)| Some((known.ready?, *key)))
                .collect();
            ready.sort_unstable();
            let Some((_, key)) = ready.first() else { continue };
            if ready.len() > 1 {
                self.turns.entry(priority).or_default().push(group_now);
            }
            let entry = self.entry(*key);
            entry.ready = None;
            entry.running = true;
            return Some(*key);
        }
    }

    fn finish(&mut self, key: u64, next: Next) {
        let entry = self.entry(key);
        entry.running = false;
        if matches!(next, Next::Forget | Next::After(_)) {
            entry.retries = 0;
        }
        if std::mem::take(&mut entry.again) {
            entry.retries += u32::from(next == Next::Retry);
            self.enter(key);
            return;
        }
        match next {
            Next::Retry => self.retry(key),
            Next::After(delay) => self.add_after(key, delay),
            Next::Done | Next::Forget => {}
        }
    }

    /// The keys whose time is the next millisecond, which begins.
    fn tick(&mut self) -> Vec<u64> {
        self.now += 1;
        let due = self.keys.iter().filter(|(_, known)| known.due == Some(self.now));
        due.map(|(key, _)| *key).collect()
    }

    fn close(&mut self) {
        self.closed = true;
        self.keys.values_mut().for_each(|known| known.due = None);
    }

    fn discard(&mut self) {
        self.keys.values_mut().for_each(|known| known.ready = None);
        self.turns.clear();
        self.passed_over = 0;
    }

    fn count(&self, what: impl Fn(&Known) -> bool) -> usize {
        self.keys.values().filter(|known| what(known)).count()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    let priority = prop_oneof![Just(Priority::Live), Just(Priority::Resync)];
    let next = prop_oneof![
        Just(Next::Done),
        Just(Next::Forget),
        Just(Next::Retry),
        (0..30u64).prop_map(|millis| Next::After(Duration::from_millis(millis))),
    ];
    prop_oneof![
        8 => (key.clone(), priority).prop_map(|(key, priority)| Step::Add(key, priority)),
        3 => (key.clone(), 0..30u64).prop_map(|(key, millis)| Step::AddAfter(key, millis)),
        2 => key.clone().prop_map(Step::Retry),
        8 => Just(Step::Take),
        6 => (any::<prop::sample::Index>(), next).prop_map(|(which, next)| Step::Finish(which.index(64), next)),
        1 => key.prop_map(Step::Forget),
        4 => (0..20u64).prop_map(Step::Pass),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![Just(Step::Close), Just(Step::Discard)];
    (prop::collection::vec(step(), 0..200), end, prop::collection::vec(step(), 0..40))
        .prop_map(|(before, end, after)| before.into_iter().chain([end]).chain(after).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_queue_does_what_the_reference_does(steps in steps()) {
        let mut queue: Core<u64> = Core::new(SETTINGS);
        let mut reference = Reference::default();
        let mut running: Vec<(Slot, u64)> = Vec::new();
        for step in steps {
            let now = Duration::from_millis(reference.now);
            match step {
                Step::Add(key, priority) => {
                    queue.add(key, digest(key), priority, now);
                    reference.add(key, priority);
                }
                Step::AddAfter(key, millis) => {
                    queue.add_after(key, digest(key), Duration::from_millis(millis), now);
                    reference.begin(key);
                    reference.add_after(key, Duration::from_millis(millis));
                }
                Step::Retry(key) => {
                    queue.add_rate_limited(key, digest(key), now);
                    reference.begin(key);
                    reference.retry(key);
                }
                Step::Take => {
                    let took = queue.take();
                    prop_assert_eq!(took.as_ref().map(|took| took.key), reference.take());
                    if let Some(took) = took {
                        prop_assert!(running.iter().all(|(_, key)| *key != took.key), "on two workers");
                        running.push((took.slot, took.key));
                    }
                }
                Step::Finish(which, next) => {
                    if !running.is_empty() {
                        let (slot, key) = running.swap_remove(which % running.len());
                        queue.finish(slot, next, || now);
                        reference.finish(key, next);
                    }
                }
                Step::Forget(key) => {
                    queue.forget(&key, digest(key));
                    reference.entry(key).retries = 0;
                }
                Step::Pass(millis) => {
                    for _ in 0..millis {
                        let mut due = reference.tick();
                        let now = reference.now;
                        // Keys of one millisecond become ready in the order in which their timers were set,
                        // which the reference does not know.
                        let order: Vec<_> = queue.timers.get(&now).map_or(Vec::new(), |list| {
                            queue.entries.iter(*list).map(|entry| entry.key).collect()
                        });
                        due.sort_by_key(|key| order.iter().position(|other| other == key));
                        prop_assert_eq!(&due, &order);
                        queue.fire(Duration::from_millis(now), usize::MAX);
                        due.into_iter().for_each(|key| reference.due_now(key));
                    }
                }
                Step::Close => {
                    queue.close();
                    reference.close();
                }
                Step::Discard => {
                    queue.close();
                    queue.discard();
                    reference.close();
                    reference.discard();
                }
            }
            prop_assert_eq!(queue.lanes.len_of(Priority::Live), reference.lane(Priority::Live));
            prop_assert_eq!(queue.lanes.len_of(Priority::Resync), reference.lane(Priority::Resync));
            prop_assert_eq!(queue.waiting, reference.count(|known| known.due.is_some()));
            prop_assert_eq!(queue.running, reference.count(|known| known.running));
            for key in 0..KEYS {
                let expected = reference.keys.get(&key).map_or(0, |known| known.retries);
                prop_assert_eq!(queue.num_requeues(&key, digest(key)), expected);
            }
        }
        // Nothing is remembered of keys that are nowhere, and nothing is lost: everything can be drained.
        queue.close();
        while let Some(took) = queue.take() {
            prop_assert_eq!(reference.take(), Some(took.key));
            queue.finish(took.slot, Next::Forget, || Duration::ZERO);
            reference.finish(took.key, Next::Forget);
        }
        prop_assert_eq!(reference.count(|known| known.ready.is_some()), 0);
    }
}
