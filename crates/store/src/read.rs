//! Reads of the present and of the past: the past is the present with the later events undone.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::object::{Compacted, Listing, Object, Range};
use crate::shared::Shared;

/// The bounds of a list within its table.
struct Bounds<'a> {
    from: Bound<&'a str>,
    to: Bound<&'a str>,
}

/// Calls `read` with the bounds of a range after a key.
fn with_bounds<T>(range: Range<'_>, start_after: Option<&str>, read: impl FnOnce(&Bounds<'_>) -> T) -> T {
    let (first, end);
    let (mut from, to) = match range {
        Range::All => (Bound::Unbounded, Bound::Unbounded),
        Range::Key(key) => (Bound::Included(key), Bound::Included(key)),
        Range::Namespace(namespace) => {
            first = format!("{namespace}/");
            // '0' follows '/'.
            end = format!("{namespace}0");
            (Bound::Included(first.as_str()), Bound::Excluded(end.as_str()))
        }
    };
    if let Some(after) = start_after {
        let later = match from {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => after >= key,
        };
        if later {
            from = Bound::Excluded(after);
        }
    }
    read(&Bounds { from, to })
}

impl Bounds<'_> {
    fn contain(&self, key: &str) -> bool {
        let above = match self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        };
        let below = match self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        };
        above && below
    }
}

/// The current state of a range.
pub(crate) fn list(
    shared: &Shared,
    resource: &str,
    range: Range<'_>,
    start_after: Option<&str>,
    limit: usize,
) -> Listing {
    // Read before the look-up: a table that is not there after it had no events up to this revision.
    let before = shared.revision();
    let Some(table) = shared.table(resource) else {
        return Listing { revision: before, ..Listing::default() };
    };
    with_bounds(range, start_after, |bounds| {
        let (slice, revision) = {
            let objects = table.objects.read();
            (objects.slice(bounds.from, bounds.to, limit), shared.revision())
        };
        Listing { revision, objects: slice.to_vec(), remaining: slice.remaining }
    })
}

/// The state of a range at an older revision.
pub(crate) fn list_at(
    shared: &Shared,
    revision: u64,
    resource: &str,
    range: Range<'_>,
    start_after: Option<&str>,
    limit: usize,
) -> Result<Listing, Compacted> {
    shared.trim();
    let table = shared.table_or_new(resource);
    with_bounds(range, start_after, |bounds| {
        let objects = table.objects.read();
        let ring = table.ring.read();
        if revision < ring.floor {
            return Err(Compacted { revision: ring.floor });
        }
        let revision = revision.min(shared.revision());
        if ring.newest() <= revision {
            drop(ring);
            let slice = objects.slice(bounds.from, bounds.to, limit);
            drop(objects);
            return Ok(Listing { revision, objects: slice.to_vec(), remaining: slice.remaining });
        }
        let events: Vec<_> = ring.after(revision).cloned().collect();
        let slice = objects.slice(bounds.from, bounds.to, 0);
        drop(ring);
        drop(objects);
        // What each key was before its first event after the revision.
        let mut undone: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for event in events.iter().rev().filter(|event| bounds.contain(&event.object.key)) {
            undone.insert(&event.object.key, event.previous.as_ref());
        }
        let mut past = merge(slice.iter(), undone);
        let take = if limit == 0 { past.len() } else { limit.min(past.len()) };
        let remaining = past.len() - take;
        past.truncate(take);
        Ok(Listing { revision, objects: past.into_iter().cloned().collect(), remaining })
    })
}

/// The present with some keys replaced by what they were.
fn merge<'a>(
    present: impl Iterator<Item = &'a Arc<Object>>,
    undone: BTreeMap<&str, Option<&'a Arc<Object>>>,
) -> Vec<&'a Arc<Object>> {
    let mut past = Vec::new();
    let mut undone = undone.into_iter().peekable();
    for object in present {
        let mut replaced = false;
        while let Some((key, was)) = undone.next_if(|(key, _)| *key <= &*object.key) {
            replaced = key == &*object.key;
            past.extend(was);
        }
        if !replaced {
            past.push(object);
        }
    }
    past.extend(undone.filter_map(|(_, was)| was));
    past
}

/// A key as it was at an older revision.
pub(crate) fn get_at(
    shared: &Shared,
    revision: u64,
    resource: &str,
    key: &str,
) -> Result<Option<Arc<Object>>, Compacted> {
    shared.trim();
    let table = shared.table_or_new(resource);
    let objects = table.objects.read();
    let ring = table.ring.read();
    if revision < ring.floor {
        return Err(Compacted { revision: ring.floor });
    }
    match ring.after(revision).find(|event| &*event.object.key == key) {
        Some(event) => Ok(event.previous.clone()),
        None => Ok(objects.get(key).cloned()),
    }
}
