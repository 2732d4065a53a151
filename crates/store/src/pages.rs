//! A sorted map of objects, cut into copy-on-write pages: a consistent copy of a table costs one reference per page,
//! so that lists and snapshots hold no lock while they walk it, and counting a range does not visit its objects.

use std::ops::Bound;
use std::sync::Arc;

use crate::object::Object;

/// Large enough that 100,000 objects are some 1,000 pages, small enough to copy in a few microseconds.
const PAGE: usize = 128;

/// The objects of one table in the order of their keys' bytes. No page is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Page {
    /// No key here is below it, all keys of the pages before are; for the first page it does not count.
    low: Arc<str>,
    entries: Arc<Entries>,
}

type Entries = Vec<Entry>;

/// The key stands beside its object because a search follows one pointer less that way.
#[derive(Clone, Debug)]
struct Entry {
    key: Arc<str>,
    object: Arc<Object>,
}

/// Where an object is, or where it would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    page: usize,
    slot: usize,
}

/// A consistent copy of a part of a table.
pub(crate) struct Slice {
    pages: Vec<Arc<Entries>>,
    skip: usize,
    take: usize,
    /// Objects of the range after the ones taken.
    pub remaining: usize,
}

impl Slice {
    /// The objects taken.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        let entries = self.pages.iter().flat_map(|page| page.iter());
        entries.skip(self.skip).take(self.take).map(|entry| &entry.object)
    }

    /// The objects taken, as an exactly sized vector.
    pub(crate) fn to_vec(&self) -> Vec<Arc<Object>> {
        let mut objects = Vec::with_capacity(self.take);
        objects.extend(self.iter().cloned());
        objects
    }
}

impl Page {
    /// From entries that are not empty.
    fn new(entries: Entries) -> Option<Page> {
        Some(Page { low: entries.first()?.key.clone(), entries: Arc::new(entries) })
    }
}

impl Pages {
    /// From objects sorted by key without duplicates.
    pub(crate) fn from_sorted(objects: Vec<Arc<Object>>) -> Pages {
        let len = objects.len();
        let mut pages = Vec::with_capacity(len.div_ceil(PAGE));
        let mut entries = objects.into_iter().map(|object| Entry { key: object.key.clone(), object });
        while let Some(page) = Page::new(entries.by_ref().take(PAGE).collect()) {
            pages.push(page);
        }
        Pages { pages, len }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all objects. Visits each of them.
    pub(crate) fn bytes(&self) -> u64 {
        let entries = self.pages.iter().flat_map(|page| page.entries.iter());
        entries.map(|entry| entry.object.size() as u64).sum()
    }

    /// The object of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        let at = self.lower(key, false);
        let entry = self.pages.get(at.page)?.entries.get(at.slot)?;
        (*entry.key == *key).then_some(&entry.object)
    }

    /// Stores an object; returns the one it replaces.
    pub(crate) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let at = self.lower(&object.key, false);
        let last = at.page + 1 >= self.pages.len();
        let entry = Entry { key: object.key.clone(), object };
        let Some(page) = self.pages.get_mut(at.page) else {
            self.pages.extend(Page::new(vec![entry]));
            self.len += 1;
            return None;
        };
        let entries = Arc::make_mut(&mut page.entries);
        if let Some(present) = entries.get_mut(at.slot).filter(|present| present.key == entry.key) {
            return Some(std::mem::replace(&mut present.object, entry.object));
        }
        self.len += 1;
        if entries.len() < PAGE {
            entries.insert(at.slot, entry);
        } else if last && at.slot == PAGE {
            // Growing at the end (the usual order of a bulk load) fills pages instead of halving them.
            self.pages.extend(Page::new(vec![entry]));
        } else {
            entries.insert(at.slot, entry);
            let upper = Page::new(entries.split_off(PAGE / 2));
            self.pages.splice(at.page + 1..at.page + 1, upper);
        }
        None
    }

    /// Removes a key; returns its object.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        self.get(key)?;
        let at = self.lower(key, false);
        let entries = Arc::make_mut(&mut self.pages[at.page].entries);
        let removed = entries.remove(at.slot);
        self.len -= 1;
        if entries.is_empty() {
            self.pages.remove(at.page);
        } else if entries.len() < PAGE / 4 {
            self.merge(at.page);
        }
        Some(removed.object)
    }

    /// Joins a small page with a neighbour when both together are at most half a page, lest deletions leave crumbs.
    fn merge(&mut self, page: usize) {
        for left in [page, page.wrapping_sub(1)] {
            let (Some(a), Some(b)) = (self.pages.get(left), self.pages.get(left.wrapping_add(1))) else {
                continue;
            };
            if a.entries.len() + b.entries.len() <= PAGE / 2 {
                let right = self.pages.remove(left + 1);
                Arc::make_mut(&mut self.pages[left].entries).extend(right.entries.iter().cloned());
                return;
            }
        }
    }

    /// A copy of the objects within the bounds: at most `limit` of them (0 = all).
    pub(crate) fn slice(&self, from: Bound<&str>, to: Bound<&str>, limit: usize) -> Slice {
        let start = match from {
            Bound::Unbounded => Position { page: 0, slot: 0 },
            Bound::Included(key) => self.lower(key, false),
            Bound::Excluded(key) => self.lower(key, true),
        };
        let end = match to {
            Bound::Unbounded => Position { page: self.pages.len(), slot: 0 },
            Bound::Included(key) => self.lower(key, true),
            Bound::Excluded(key) => self.lower(key, false),
        };
        let total = self.distance(start, end);
        let take = if limit == 0 { total } else { total.min(limit) };
        let mut pages = Vec::new();
        let mut covered = 0;
        for page in self.pages.iter().skip(start.page) {
            if covered >= start.slot + take || take == 0 {
                break;
            }
            covered += page.entries.len();
            pages.push(page.entries.clone());
        }
        Slice { pages, skip: start.slot, take, remaining: total - take }
    }

    /// The first position whose key is not below `key`; with `after`, the first one above it. It may be the end of
    /// the page the key belongs to.
    fn lower(&self, key: &str, after: bool) -> Position {
        let page = self.pages.partition_point(|page| *page.low <= *key).saturating_sub(1);
        let before = |entry: &Entry| if after { *entry.key <= *key } else { *entry.key < *key };
        let slot = self.pages.get(page).map_or(0, |page| page.entries.partition_point(before));
        Position { page, slot }
    }

    /// Objects from `start` up to, not including, `end`; 0 if `end` is not after `start`.
    fn distance(&self, start: Position, end: Position) -> usize {
        if end.page < start.page {
            return 0;
        }
        let between: usize = self.pages[start.page..end.page].iter().map(|page| page.entries.len()).sum();
        (between + end.slot).saturating_sub(start.slot)
    }
}
