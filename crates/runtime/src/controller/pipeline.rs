//! Where changes go in and jobs come out: the gate, the queue, and the memory of deletions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ObjectKey;
use crate::cache::{ChangeKind, Delta, Encoded};
use crate::gate::{Admission, Gate};
use crate::queue::Queue;
use crate::trace::Journeys;
use crate::trigger;

/// Finds the metadata of the object that a key means.
pub(super) type Find = Box<dyn Fn(&ObjectKey) -> Option<Arc<Encoded>> + Send + Sync>;

/// What the sources of a controller and its workers share.
pub(super) struct Pipeline {
    pub(super) name: Arc<str>,
    pub(super) queue: Queue<ObjectKey>,
    pub(super) gate: Gate,
    pub(super) find: Find,
    pub(super) tombs: Arc<Tombs>,
    pub(super) journeys: Journeys<ObjectKey>,
}

impl Pipeline {
    /// Queues the keys that are ours. Whoever has asked the gate already need not ask again.
    pub(super) fn enqueue(&self, keys: Vec<ObjectKey>, delta: &Delta, asked: bool) {
        for key in keys {
            let admitted = || {
                let object = (self.find)(&key).or_else(|| self.tombs.of(&key));
                matches!(self.gate.ask(&key, object.as_deref()), Admission::Admitted(_))
            };
            if asked || admitted() {
                self.journeys.event(&self.name, &key, trigger::reason(delta));
                self.queue.add_with(key, trigger::priority(delta));
            }
        }
    }
}

/// Objects that were deleted and not worked on since, with their last state.
///
/// An object that is missing from the cache without being here was never seen, or is not ours any more: nobody may
/// take that for a deletion.
#[derive(Default)]
pub(super) struct Tombs(Mutex<HashMap<ObjectKey, Arc<Encoded>>>);

impl Tombs {
    /// Notes what a change says.
    pub(super) fn see(&self, delta: &Delta) {
        let mut tombs = self.0.lock();
        match (delta.change, delta.latest()) {
            (ChangeKind::Deleted, Some(last)) => {
                tombs.insert(delta.key.clone(), last.clone());
            }
            _ if tombs.is_empty() => {}
            _ => {
                tombs.remove(&delta.key);
            }
        }
    }

    /// The last state of a deleted object.
    pub(super) fn of(&self, key: &ObjectKey) -> Option<Arc<Encoded>> {
        self.0.lock().get(key).cloned()
    }

    /// The last states of all deleted objects.
    pub(super) fn all(&self) -> Vec<Arc<Encoded>> {
        self.0.lock().values().cloned().collect()
    }

    /// A deletion was worked on. A later one of the same name was not.
    pub(super) fn done(&self, key: &ObjectKey, last: &Arc<Encoded>) {
        let mut tombs = self.0.lock();
        if tombs.get(key).is_some_and(|known| Arc::ptr_eq(known, last)) {
            tombs.remove(key);
        }
    }
}
