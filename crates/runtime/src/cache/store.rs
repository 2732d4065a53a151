//! The objects of one informer: read by many, written by one task.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;
use shoal_objects::selector::LabelSelector;

use super::delta::{ChangeKind, Delta, Origin};
use super::encoded::Encoded;
use super::index::{Index, IndexFn};
use super::labels::{Labels, is_wasteful};
use super::pages::Objects;
use super::subscription::{Feed, Subscription};
use crate::key::ObjectKey;

/// An object in a set, found by its key.
#[derive(Clone)]
pub(crate) struct Entry(pub Arc<Encoded>);

impl Borrow<ObjectKey> for Entry {
    fn borrow(&self) -> &ObjectKey {
        self.0.key()
    }
}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Told the ids of objects that are not held any more.
pub(crate) type Forget = Arc<dyn Fn(u64) + Send + Sync>;

/// The objects and who wants to know about them.
#[derive(Default)]
pub(crate) struct Store {
    state: RwLock<State>,
    /// How many selections looked at much and found little.
    wasted: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// For finding one. Iterated never: its order is another one in each process.
    by_key: HashSet<Entry, foldhash::fast::RandomState>,
    /// For lists, in the order of keys.
    ordered: BTreeSet<Entry>,
    indexes: BTreeMap<Box<str>, Index>,
    labels: Labels,
    feeds: Vec<Arc<Feed>>,
    forget: Vec<Forget>,
    bytes: usize,
    closed: bool,
}

/// The store, locked for a few changes at once. Subscribers are told when it is unlocked, before any reader sees it.
pub(crate) struct Batch<'a> {
    state: parking_lot::RwLockWriteGuard<'a, State>,
    deltas: Vec<Delta>,
}

impl Store {
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Encoded>> {
        self.look(key, Arc::clone)
    }

    /// What `look` sees of an object. Readers go on meanwhile, but no change does.
    pub fn look<T>(&self, key: &ObjectKey, look: impl FnOnce(&Arc<Encoded>) -> T) -> Option<T> {
        self.state.read().by_key.get(key).map(|entry| look(&entry.0))
    }

    pub fn len(&self) -> usize {
        self.state.read().ordered.len()
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.state.read().bytes
    }

    /// The objects that are wanted, in the order of keys.
    pub fn list(&self, namespace: Option<&str>, wanted: impl Fn(&Encoded) -> bool) -> Vec<Arc<Encoded>> {
        self.state.read().within(namespace).filter(|object| wanted(object)).cloned().collect()
    }

    /// The objects that a selector means, in the order of keys.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Encoded>> {
        let state = self.state.read();
        let near: Objects;
        let mut seen = 0;
        let meant = |object: &&Arc<Encoded>| {
            seen += 1;
            object.matches(selector)
        };
        let found: Vec<Arc<Encoded>> = match state.labels.narrow(selector) {
            Some(objects) => {
                near = objects;
                near.within(namespace).filter(meant).cloned().collect()
            }
            None => state.within(namespace).filter(meant).cloned().collect(),
        };
        drop(state);
        // Thinking about it costs as much again, so ever seldomer if it is of no use.
        if is_wasteful(seen, found.len()) && (self.wasted.fetch_add(1, Relaxed) + 1).is_power_of_two() {
            self.learn(namespace, selector, found.len());
        }
        found
    }

    /// The labels by which objects are found.
    #[cfg(test)]
    pub fn labels(&self) -> Vec<String> {
        self.state.read().labels.keys().map(str::to_owned).collect()
    }

    /// Finds a better way for the next who asks the like.
    fn learn(&self, namespace: Option<&str>, selector: &LabelSelector, found: usize) {
        let seen = self.list(namespace, |_| true);
        let mut state = self.state.write();
        if let Some(label) = state.labels.worth(selector, &seen, found) {
            let State { labels, ordered, .. } = &mut *state;
            labels.learn(label, ordered.iter().map(|entry| &entry.0));
        }
    }

    /// `None` for an index that does not exist.
    pub fn by_index(&self, name: &str, value: &str) -> Option<Objects> {
        Some(self.state.read().indexes.get(name)?.get(value))
    }

    /// Adds an index over everything that is and will be held; replaces one of the same name.
    pub fn add_index(&self, name: &str, values: IndexFn) {
        let mut state = self.state.write();
        let mut index = Index::new(values);
        for entry in &state.ordered {
            index.insert(&entry.0);
        }
        state.indexes.insert(name.into(), index);
    }

    pub fn add_forget(&self, forget: Forget) {
        self.state.write().forget.push(forget);
    }

    /// A subscription that begins with everything that is held at this moment.
    pub fn subscribe(&self) -> Subscription {
        let mut state = self.state.write();
        let present = state.ordered.iter().map(|entry| entry.0.clone()).collect();
        let (subscription, feed) = Subscription::new(present);
        if state.closed {
            feed.close();
        } else {
            state.feeds.push(feed);
        }
        subscription
    }

    /// How many subscribers there are, and how many changes they have not fetched.
    pub fn subscribers(&self) -> (usize, usize) {
        let state = self.state.read();
        (state.feeds.len(), state.feeds.iter().map(|feed| feed.len()).sum())
    }

    /// Nothing will change any more.
    pub fn close(&self) {
        let mut state = self.state.write();
        state.closed = true;
        for feed in state.feeds.drain(..) {
            feed.close();
        }
    }

    /// Locks the store for changes.
    pub fn batch(&self) -> Batch<'_> {
        Batch { state: self.state.write(), deltas: Vec::new() }
    }
}

impl Batch<'_> {
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Encoded>> {
        self.state.by_key.get(key).map(|entry| &entry.0)
    }

    /// Takes in an object; what was there before under this key is replaced.
    pub fn put(&mut self, object: Arc<Encoded>, origin: Origin) {
        let state = &mut *self.state;
        state.bytes += object.held_bytes();
        let old = state.by_key.replace(Entry(object.clone())).map(|entry| entry.0);
        state.ordered.replace(Entry(object.clone()));
        if let Some(old) = &old {
            state.let_go(old);
        }
        for index in state.indexes.values_mut() {
            index.insert(&object);
        }
        state.labels.insert(&object);
        let change = if old.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.deltas.extend(Delta::new(change, origin, old, Some(object)));
    }

    /// Takes out an object.
    pub fn remove(&mut self, key: &ObjectKey, change: ChangeKind, origin: Origin) {
        let state = &mut *self.state;
        let Some(Entry(old)) = state.by_key.take(key) else {
            return;
        };
        state.ordered.remove(key);
        state.let_go(&old);
        self.deltas.extend(Delta::new(change, origin, Some(old), None));
    }

    /// Tells subscribers about an object that did not change.
    pub fn tell_again(&mut self, key: &ObjectKey) {
        let held = self.get(key).cloned();
        self.deltas.extend(Delta::new(ChangeKind::Modified, Origin::Resync, held.clone(), held));
    }
}

impl State {
    /// In the order of keys.
    fn within(&self, namespace: Option<&str>) -> Box<dyn Iterator<Item = &Arc<Encoded>> + '_> {
        let Some(namespace) = namespace.map(str::to_owned) else {
            return Box::new(self.ordered.iter().map(|entry| &entry.0));
        };
        let from = self.ordered.range(ObjectKey::new(&namespace, "")..).map(|entry| &entry.0);
        Box::new(from.take_while(move |object| object.namespace() == namespace))
    }

    fn let_go(&mut self, old: &Arc<Encoded>) {
        self.bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.remove(old);
        }
        self.labels.remove(old);
        for forget in &self.forget {
            forget(old.id());
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.deltas.is_empty() {
            return;
        }
        // Whoever holds the other end of a feed is the subscriber; without one it is of no use.
        self.state.feeds.retain(|feed| Arc::strong_count(feed) > 1);
        for feed in &self.state.feeds {
            feed.push(&self.deltas);
        }
    }
}
