//! From changes to the keys that they concern.

use std::fmt;
use std::sync::Arc;

use crate::ObjectKey;
use crate::cache::{ChangeKind, Delta, Encoded, Lister, Origin};
use crate::queue::Priority;

/// Says whether a change is worth a reconcile. Cheap to clone.
///
/// What a resync tells again always is: it is how parked keys come back.
#[derive(Clone)]
pub struct Predicate(Arc<dyn Fn(&Delta) -> bool + Send + Sync>);

impl Predicate {
    /// Changes for which `holds` is true.
    pub fn new(holds: impl Fn(&Delta) -> bool + Send + Sync + 'static) -> Predicate {
        Predicate(Arc::new(holds))
    }

    /// Changes that are worth it to both.
    #[must_use]
    pub fn and(self, other: Predicate) -> Predicate {
        Predicate::new(move |delta| (self.0)(delta) && (other.0)(delta))
    }

    /// Changes that are worth it to one of both.
    #[must_use]
    pub fn or(self, other: Predicate) -> Predicate {
        Predicate::new(move |delta| (self.0)(delta) || (other.0)(delta))
    }

    pub(crate) fn holds(&self, delta: &Delta) -> bool {
        delta.origin == Origin::Resync || (self.0)(delta)
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// The specification has changed, or deletion was asked for. Objects whose changes are not counted always pass.
pub fn generation_changed() -> Predicate {
    Predicate::new(|delta| {
        differs(delta, |object| (object.generation(), object.is_deleting())) || uncounted(delta)
    })
}

/// Labels have changed.
pub fn labels_changed() -> Predicate {
    Predicate::new(|delta| match (&delta.old, &delta.new) {
        (Some(old), Some(new)) => !old.labels().eq(new.labels()),
        _ => true,
    })
}

/// Annotations have changed. Dearer than the others: bodies are looked into.
pub fn annotations_changed() -> Predicate {
    Predicate::new(|delta| differs(delta, Encoded::annotations))
}

/// Finalizers or owners have changed, or deletion was asked for.
pub fn lifecycle_changed() -> Predicate {
    Predicate::new(|delta| {
        differs(delta, |object| {
            (object.is_deleting(), object.finalizers().to_vec(), object.owner_references().to_vec())
        })
    })
}

/// Whether what `read` reads is not the same before and after; so too for objects that came or went.
fn differs<T: PartialEq>(delta: &Delta, read: impl Fn(&Encoded) -> T) -> bool {
    match (&delta.old, &delta.new) {
        (Some(old), Some(new)) if !delta.is_gone() => read(old) != read(new),
        _ => true,
    }
}

fn uncounted(delta: &Delta) -> bool {
    delta.new.as_ref().is_none_or(|object| object.generation() == 0)
}

/// How urgent a change is.
pub(crate) fn priority(delta: &Delta) -> Priority {
    match delta.origin {
        Origin::Live => Priority::Live,
        Origin::Relist | Origin::Resync => Priority::Resync,
    }
}

/// What made a key run, in a word.
pub(crate) fn reason(delta: &Delta) -> &'static str {
    match (delta.origin, delta.change) {
        (Origin::Resync, _) => "resync",
        (_, ChangeKind::Added) => "added",
        (_, ChangeKind::Modified) => "modified",
        (_, ChangeKind::Deleted) => "deleted",
        (_, ChangeKind::Evicted) => "evicted",
    }
}

/// The object before and after, where they are different.
pub(crate) fn states(delta: &Delta) -> impl Iterator<Item = &Arc<Encoded>> {
    let old = delta.old.as_ref().filter(|old| delta.new.as_ref().is_none_or(|new| !Arc::ptr_eq(old, new)));
    old.into_iter().chain(&delta.new)
}

/// The objects of this group and kind that control the changed object, or did before, as far as the cache has them.
pub(crate) fn controllers<K: serde::de::DeserializeOwned + Send + Sync + 'static>(
    delta: &Delta,
    group: &str,
    kind: &str,
    lister: &Lister<K>,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for object in states(delta) {
        let Some(owner) = object.controller() else { continue };
        let owner_group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        if *owner.kind != *kind || owner_group != group {
            continue;
        }
        // The reference does not say whether the owner has a namespace; the cache does.
        let places = [delta.key.namespace.clone(), "".into()];
        let key = places.into_iter().map(|namespace| ObjectKey { namespace, name: owner.name.clone() }).find(
            |key| {
                // Another object of that name is not the owner.
                lister.meta(key).is_some_and(|found| *found.uid() == *owner.uid)
            },
        );
        keys.extend(key);
    }
    keys.dedup();
    keys
}
