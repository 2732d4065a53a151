//! Which pod is next: the most important, then the one that has waited longest. Pods without a place are parked until
//! something happens that may help. Pure: the time is an argument.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use shoal_runtime::ObjectKey;
use shoal_runtime::cache::Uid;
use tokio::time::Instant;

use super::reason::Wakes;
use super::shape::Shape;

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);
/// Even if nothing happens, a parked pod is tried again after this time.
const PARKED_AT_MOST: Duration = Duration::from_secs(300);

/// A pod that wants a place.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its name.
    pub key: ObjectKey,
    /// Which of the pods that had this name.
    pub uid: Uid,
    /// What it needs.
    pub shape: Arc<Shape>,
    /// When it was created, in seconds.
    pub created: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active(u64),
    /// Not before this time.
    BackOff(Instant),
    /// Until one of these happens, or this time.
    Parked(Wakes, Instant),
    /// Being worked on.
    Taken,
}

struct Entry {
    pod: Pending,
    state: State,
    attempts: u32,
    last_try: Option<Instant>,
    /// What was told about it last.
    told: Option<String>,
}

/// All pods that want a place.
#[derive(Default)]
pub struct Queue {
    entries: HashMap<ObjectKey, Entry>,
    active: BTreeSet<(Reverse<i32>, u64, ObjectKey)>,
    waiting: BTreeSet<(Instant, ObjectKey)>,
    parked: BTreeSet<ObjectKey>,
    next: u64,
}

impl Queue {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many are parked.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// A pod wants a place, or has changed. One that is parked is tried again only if it needs something else now.
    pub fn add(&mut self, pod: Pending) {
        if let Some(entry) = self.entries.get_mut(&pod.key)
            && entry.pod.uid == pod.uid
        {
            if Arc::ptr_eq(&entry.pod.shape, &pod.shape) || entry.state == State::Taken {
                entry.pod = pod;
                return;
            }
        }
        let key = pod.key.clone();
        self.remove(&key);
        self.entries
            .insert(key.clone(), Entry { pod, state: State::Taken, attempts: 0, last_try: None, told: None });
        self.activate(&key);
    }

    /// The pod is gone or has a place.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.unlink(key);
        self.entries.remove(key);
    }

    /// The next pod to be placed. It is not given again before it is parked or retried.
    pub fn pop(&mut self, now: Instant) -> Option<Pending> {
        let (_, _, key) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        entry.state = State::Taken;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.last_try = Some(now);
        Some(entry.pod.clone())
    }

    /// There is no place: tried again after one of these events.
    pub fn park(&mut self, key: &ObjectKey, wakes: Wakes, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let until = now + PARKED_AT_MOST;
        entry.state = State::Parked(wakes, until);
        self.parked.insert(key.clone());
        self.waiting.insert((until, key.clone()));
    }

    /// Something else failed: tried again after a while.
    pub fn retry(&mut self, key: &ObjectKey, now: Instant) {
        if self.entries.get(key).is_some_and(|entry| entry.state == State::Taken) {
            self.back_off(key, now);
        }
    }

    /// These things have happened: parked pods that they may help are tried again, though none too often.
    pub fn wake(&mut self, events: Wakes, now: Instant) {
        if events == Wakes::NONE || self.parked.is_empty() {
            return;
        }
        let entries = &self.entries;
        let helped = |key: &&ObjectKey| match entries.get(*key).map(|entry| entry.state) {
            Some(State::Parked(wakes, _)) => wakes.meets(events),
            _ => false,
        };
        let woken: Vec<ObjectKey> = self.parked.iter().filter(helped).cloned().collect();
        for key in woken {
            self.unlink(&key);
            self.back_off(&key, now);
        }
    }

    /// Moves on what has waited long enough.
    pub fn tick(&mut self, now: Instant) {
        while let Some((at, key)) = self.waiting.first().cloned()
            && at <= now
        {
            self.unlink(&key);
            self.waiting.remove(&(at, key.clone()));
            self.activate(&key);
        }
    }

    /// When [`Queue::tick`] has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Whether a pod can be had now.
    pub fn is_ready(&self) -> bool {
        !self.active.is_empty()
    }

    /// Notes what is told about a pod; whether it is something new.
    pub fn tell(&mut self, key: &ObjectKey, text: &str) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let new = entry.told.as_deref() != Some(text);
        if new {
            entry.told = Some(text.to_owned());
        }
        new
    }

    fn back_off(&mut self, key: &ObjectKey, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let doublings = entry.attempts.saturating_sub(1).min(4);
        let delay = (FIRST_BACK_OFF * (1 << doublings)).min(LONGEST_BACK_OFF);
        let until = entry.last_try.map_or(now, |last| last + delay);
        if until <= now {
            self.activate(key);
            return;
        }
        entry.state = State::BackOff(until);
        self.waiting.insert((until, key.clone()));
    }

    fn activate(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.next += 1;
        entry.state = State::Active(self.next);
        self.active.insert((Reverse(entry.pod.shape.priority), self.next, key.clone()));
    }

    fn unlink(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match entry.state {
            State::Active(turn) => {
                self.active.remove(&(Reverse(entry.pod.shape.priority), turn, key.clone()));
            }
            State::BackOff(at) => {
                self.waiting.remove(&(at, key.clone()));
            }
            State::Parked(_, until) => {
                self.parked.remove(key);
                self.waiting.remove(&(until, key.clone()));
            }
            State::Taken => {}
        }
        entry.state = State::Taken;
    }
}
