//! Which notes become Events of their own, which are counted on an earlier one, and which are not sent at all.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use shoal_objects::clock::Timestamp;

use super::{Note, Severity};

/// So many different messages for one reason on one object, and further ones share an Event.
const SIMILAR: usize = 10;
/// How long notes are remembered.
const WINDOW_SECONDS: i64 = 600;
/// An object may say this much at once …
const BURST: f64 = 25.0;
/// … and then one more every five minutes.
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
/// How many things are remembered of each sort; the ones unused for longest go first.
const CAPACITY: usize = 4096;

/// What to do with a note.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A new Event.
    Create { name: String, message: String },
    /// One more of an Event that exists.
    Count { name: String, count: i32, message: String },
    /// The object has said too much.
    Drop,
}

/// Notes of one reason on one object.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Topic {
    object: String,
    severity: Severity,
    reason: String,
}

/// An Event as it was sent: the topic and the message, or no message for the one that collects similar ones.
type Sent = (Topic, Option<String>);

#[derive(Default)]
pub(super) struct Correlator {
    events: Recent<Sent, (String, i32)>,
    messages: Recent<Topic, HashSet<String>>,
    budgets: Recent<String, (f64, Timestamp)>,
    names: u64,
}

impl Correlator {
    pub fn decide(&mut self, note: &Note, now: Timestamp) -> Step {
        let topic = topic_of(note);
        if !self.afford(&topic.object, now) {
            return Step::Drop;
        }
        let messages = self.messages.entry(topic.clone(), now, HashSet::new);
        let collected = !messages.contains(&note.message) && messages.len() >= SIMILAR;
        if !collected {
            messages.insert(note.message.clone());
        }
        let (kind, message) = if collected {
            (None, format!("(combined from similar events): {}", note.message))
        } else {
            (Some(note.message.clone()), note.message.clone())
        };
        self.names += 1;
        let fresh = name_of(note, now, self.names);
        let (name, count) = self.events.entry((topic, kind), now, || (fresh, 0));
        *count = count.saturating_add(1);
        match *count {
            1 => Step::Create { name: name.clone(), message },
            count => Step::Count { name: name.clone(), count, message },
        }
    }

    /// The Event of this note is not in the cluster.
    pub fn forget(&mut self, note: &Note) {
        let topic = topic_of(note);
        self.events.remove(&(topic.clone(), Some(note.message.clone())));
        self.events.remove(&(topic, None));
    }

    fn afford(&mut self, object: &str, now: Timestamp) -> bool {
        let (tokens, since) = self.budgets.entry(object.to_owned(), now, || (BURST, now));
        let passed = now.seconds().saturating_sub(since.seconds()).max(0) as f64;
        *tokens = (*tokens + passed * REFILL_PER_SECOND).min(BURST);
        *since = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }
}

fn topic_of(note: &Note) -> Topic {
    let about = &note.regarding;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let object =
        [&about.kind, &about.namespace, &about.name, &about.uid, &about.field_path].map(part).join("/");
    Topic { object, severity: note.severity, reason: note.reason.clone() }
}

/// Names as kubectl users know them: the object's, and a number that is never used twice.
fn name_of(note: &Note, now: Timestamp, serial: u64) -> String {
    let object = note.regarding.name.as_deref().unwrap_or("unnamed");
    let unique = now.0.unsigned_abs().wrapping_mul(1000).wrapping_add(serial % 1000);
    // Names of objects have at most 253 characters; so must this one.
    let room = 253 - 17;
    let object: String = object.chars().take(room).collect();
    format!("{object}.{unique:016x}")
}

/// A map that forgets what was not used for a while.
struct Recent<K, V> {
    entries: HashMap<K, (V, Timestamp)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent { entries: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> Recent<K, V> {
    fn entry(&mut self, key: K, now: Timestamp, new: impl FnOnce() -> V) -> &mut V {
        let oldest = now.plus_seconds(-WINDOW_SECONDS);
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&key) {
            self.shrink(oldest);
        }
        let (value, used) = match self.entries.entry(key) {
            Entry::Occupied(entry) if entry.get().1 < oldest => {
                let entry = entry.into_mut();
                *entry = (new(), now);
                entry
            }
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((new(), now)),
        };
        *used = now;
        value
    }

    /// Halves the map, so that the work is spread over many insertions.
    fn shrink(&mut self, oldest: Timestamp) {
        self.entries.retain(|_, (_, used)| *used >= oldest);
        if self.entries.len() >= CAPACITY {
            let mut times: Vec<Timestamp> = self.entries.values().map(|(_, used)| *used).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.entries.retain(|_, (_, used)| *used > middle);
        }
    }

    fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    const T0: Timestamp = Timestamp(1_700_000_000_000_000);

    fn note(name: &str, message: &str) -> Note {
        Note {
            regarding: ObjectReference {
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "Failed".to_owned(),
            message: message.to_owned(),
            at: T0,
        }
    }

    #[test]
    fn repetitions_are_counted_on_one_event() {
        let mut all = Correlator::default();
        let Step::Create { name, .. } = all.decide(&note("a", "m"), T0) else { panic!() };
        let message = "m".to_owned();
        assert_eq!(all.decide(&note("a", "m"), T0), Step::Count { name, count: 2, message });
        assert!(matches!(all.decide(&note("b", "m"), T0), Step::Create { .. }));
        assert!(matches!(all.decide(&note("a", "other"), T0), Step::Create { .. }));
    }

    #[test]
    fn similar_messages_share_an_event_after_ten() {
        let mut all = Correlator::default();
        for index in 0..SIMILAR {
            assert!(matches!(all.decide(&note("a", &format!("m{index}")), T0), Step::Create { .. }));
        }
        let Step::Create { message, .. } = all.decide(&note("a", "m10"), T0) else { panic!() };
        assert_eq!(message, "(combined from similar events): m10");
        let Step::Count { count: 2, message, .. } = all.decide(&note("a", "m11"), T0) else { panic!() };
        assert_eq!(message, "(combined from similar events): m11");
    }

    #[test]
    fn a_noisy_object_is_silenced_and_others_are_not() {
        let mut all = Correlator::default();
        for _ in 0..25 {
            assert_ne!(all.decide(&note("a", "m"), T0), Step::Drop);
        }
        assert_eq!(all.decide(&note("a", "m"), T0), Step::Drop);
        assert_ne!(all.decide(&note("b", "m"), T0), Step::Drop);
        assert_ne!(all.decide(&note("a", "m"), T0.plus_seconds(301)), Step::Drop);
        assert_eq!(all.decide(&note("a", "m"), T0.plus_seconds(301)), Step::Drop);
    }

    #[test]
    fn memory_is_bounded_and_names_are_unique() {
        let mut all = Correlator::default();
        let mut names = HashSet::new();
        for index in 0..3 * CAPACITY {
            if let Step::Create { name, .. } = all.decide(&note(&format!("p{index}"), "m"), T0) {
                assert!(names.insert(name));
            }
        }
        assert!(all.events.entries.len() <= CAPACITY);
        assert!(all.budgets.entries.len() <= CAPACITY);
    }
}
