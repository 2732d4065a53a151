//! Hands changes to whoever asked for them.
//!
//! A subscriber that is slow does not make the queue longer: changes to one object that were not fetched yet are folded
//! into one. So a subscriber sees the newest state of every object, and every deletion, but not every version in between.
//! Deletions are told even of objects that came and went unseen: a controller that has just made an object may know it
//! from the answer to its request, and would wait for ever for the one that replaces it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delta::{ChangeKind, Delta, Origin};
use super::encoded::Encoded;
use crate::key::ObjectKey;

/// Changes to the objects of an informer. Dropping it ends the subscription.
pub struct Subscription {
    feed: Arc<Feed>,
}

/// The side of the cache.
pub(crate) struct Feed {
    pending: Mutex<Pending>,
    changed: Notify,
}

#[derive(Default)]
struct Pending {
    /// Objects that were there when the subscription began, still to be told; in reverse.
    initial: Vec<Arc<Encoded>>,
    order: VecDeque<ObjectKey>,
    by_key: HashMap<ObjectKey, Folded>,
    closed: bool,
}

/// What is to be told about the objects of one name: first those that are gone, then the one that is there.
#[derive(Default)]
struct Folded {
    gone: VecDeque<Delta>,
    here: Option<Delta>,
}

impl Subscription {
    pub(crate) fn new(mut present: Vec<Arc<Encoded>>) -> (Subscription, Arc<Feed>) {
        present.reverse();
        let pending = Mutex::new(Pending { initial: present, ..Pending::default() });
        let feed = Arc::new(Feed { pending, changed: Notify::new() });
        (Subscription { feed: feed.clone() }, feed)
    }

    /// The next change; `None` when the informer was stopped and everything was told. Nothing is lost when the future is
    /// dropped.
    pub async fn recv(&mut self) -> Option<Delta> {
        loop {
            let changed = self.feed.changed.notified();
            {
                let mut pending = self.feed.pending.lock();
                if let Some(delta) = pending.take() {
                    return Some(delta);
                }
                if pending.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// The next change, if there is one now.
    pub fn try_recv(&mut self) -> Option<Delta> {
        self.feed.pending.lock().take()
    }

    /// How many objects have changes that were not fetched.
    pub fn len(&self) -> usize {
        let pending = self.feed.pending.lock();
        pending.initial.len() + pending.order.len()
    }

    /// Whether everything was fetched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Feed {
    pub(crate) fn push<'a>(&self, deltas: impl IntoIterator<Item = &'a Delta>) {
        let mut pending = self.pending.lock();
        for delta in deltas {
            pending.fold(delta);
        }
        drop(pending);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.pending.lock().closed = true;
        self.changed.notify_one();
    }

    pub(crate) fn len(&self) -> usize {
        let pending = self.pending.lock();
        pending.initial.len() + pending.order.len()
    }
}

impl Pending {
    fn take(&mut self) -> Option<Delta> {
        if let Some(object) = self.initial.pop() {
            return Delta::new(ChangeKind::Added, Origin::Relist, None, Some(object));
        }
        loop {
            let key = self.order.front()?;
            let Some(folded) = self.by_key.get_mut(key) else {
                self.order.pop_front();
                continue;
            };
            if let Some(delta) = folded.gone.pop_front().or_else(|| folded.here.take()) {
                if folded.here.is_none() && folded.gone.is_empty() {
                    self.by_key.remove(key);
                    self.order.pop_front();
                }
                self.shrink();
                return Some(delta);
            }
            self.by_key.remove(key);
            self.order.pop_front();
        }
    }

    /// After a flood the memory is given back.
    fn shrink(&mut self) {
        if self.order.is_empty() && self.initial.is_empty() && self.by_key.capacity() > 4096 {
            *self = Pending { closed: self.closed, ..Pending::default() };
        }
    }

    fn fold(&mut self, delta: &Delta) {
        let folded = match self.by_key.get_mut(&delta.key) {
            Some(folded) => folded,
            None => {
                self.order.push_back(delta.key.clone());
                self.by_key.entry(delta.key.clone()).or_default()
            }
        };
        folded.fold(delta);
    }
}

impl Folded {
    fn fold(&mut self, delta: &Delta) {
        let untold = self.here.take();
        if delta.is_gone() {
            // What was last told of it, if anything was.
            let old = untold.and_then(|here| here.old).or_else(|| delta.old.clone());
            self.gone.push_back(Delta { old, ..delta.clone() });
            return;
        }
        self.here = Some(match untold {
            // Nothing new was said, so what is still untold stays as it is.
            Some(here) if delta.origin == Origin::Resync => here,
            Some(here) => Delta {
                change: here.change,
                old: here.old,
                origin: if here.origin == Origin::Live { Origin::Live } else { delta.origin },
                ..delta.clone()
            },
            None => delta.clone(),
        });
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // What is not fetched any more need not be held until the cache notices.
        *self.feed.pending.lock() = Pending { closed: true, ..Pending::default() };
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscription({} pending)", self.len())
    }
}
