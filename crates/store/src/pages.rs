//! A sorted map of objects, cut into copy-on-write pages: a consistent copy of a table costs one reference per page,
//! so that lists and snapshots hold no lock while they walk it, and counting a range does not visit its objects.

use std::ops::Bound;
use std::sync::Arc;

use crate::object::Object;

/// Large enough that 100,000 objects are some 1,000 pages, small enough to copy in a few microseconds.
const PAGE: usize = 128;

type Page = Vec<Arc<Object>>;

/// The objects of one table in the order of their keys' bytes. No page is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Arc<Page>>,
    len: usize,
}

/// Where an object is, or where it would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    page: usize,
    slot: usize,
}

/// A consistent copy of a part of a table.
pub(crate) struct Slice {
    pages: Vec<Arc<Page>>,
    skip: usize,
    take: usize,
    /// Objects of the range after the ones taken.
    pub remaining: usize,
}

impl Slice {
    /// The objects taken.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.pages.iter().flat_map(|page| page.iter()).skip(self.skip).take(self.take)
    }

    /// The objects taken, as an exactly sized vector.
    pub(crate) fn to_vec(&self) -> Vec<Arc<Object>> {
        let mut objects = Vec::with_capacity(self.take);
        objects.extend(self.iter().cloned());
        objects
    }
}

impl Pages {
    /// From objects sorted by key without duplicates.
    pub(crate) fn from_sorted(objects: Vec<Arc<Object>>) -> Pages {
        let len = objects.len();
        let mut pages = Vec::with_capacity(len.div_ceil(PAGE));
        let mut objects = objects.into_iter();
        while objects.len() > 0 {
            pages.push(Arc::new(objects.by_ref().take(PAGE).collect::<Page>()));
        }
        Pages { pages, len }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all objects. Visits each of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages.iter().flat_map(|page| page.iter()).map(|object| object.size() as u64).sum()
    }

    /// The object of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        let at = self.lower(key, false);
        self.pages.get(at.page)?.get(at.slot).filter(|object| &*object.key == key)
    }

    /// Stores an object; returns the one it replaces.
    pub(crate) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let mut at = self.lower(&object.key, false);
        if at.page == self.pages.len() {
            match self.pages.last() {
                // Growing at the end (the usual order of a bulk load) fills pages instead of halving them.
                Some(last) if last.len() < PAGE => at = Position { page: at.page - 1, slot: last.len() },
                _ => {
                    let mut page = Vec::with_capacity(PAGE);
                    page.push(object);
                    self.pages.push(Arc::new(page));
                    self.len += 1;
                    return None;
                }
            }
        }
        let page = Arc::make_mut(&mut self.pages[at.page]);
        if let Some(present) = page.get_mut(at.slot).filter(|present| present.key == object.key) {
            return Some(std::mem::replace(present, object));
        }
        page.insert(at.slot, object);
        self.len += 1;
        if page.len() > PAGE {
            let upper = page.split_off(PAGE / 2);
            self.pages.insert(at.page + 1, Arc::new(upper));
        }
        None
    }

    /// Removes a key; returns its object.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let at = self.lower(key, false);
        self.pages.get(at.page)?.get(at.slot).filter(|object| &*object.key == key)?;
        let page = Arc::make_mut(&mut self.pages[at.page]);
        let removed = page.remove(at.slot);
        self.len -= 1;
        if page.is_empty() {
            self.pages.remove(at.page);
        } else if page.len() < PAGE / 4 {
            self.merge(at.page);
        }
        Some(removed)
    }

    /// Joins a small page with a neighbour when both together are at most half a page, lest deletions leave crumbs.
    fn merge(&mut self, page: usize) {
        for left in [page, page.wrapping_sub(1)] {
            let (Some(a), Some(b)) = (self.pages.get(left), self.pages.get(left.wrapping_add(1))) else {
                continue;
            };
            if a.len() + b.len() <= PAGE / 2 {
                let right = self.pages.remove(left + 1);
                Arc::make_mut(&mut self.pages[left]).extend(right.iter().cloned());
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
            covered += page.len();
            pages.push(page.clone());
        }
        Slice { pages, skip: start.slot, take, remaining: total - take }
    }

    /// The first position whose key is not below `key`; with `after`, the first one above it.
    fn lower(&self, key: &str, after: bool) -> Position {
        let before = |object: &Arc<Object>| if after { &*object.key <= key } else { &*object.key < key };
        let page = self.pages.partition_point(|page| page.last().is_some_and(before));
        let slot = self.pages.get(page).map_or(0, |page| page.partition_point(before));
        Position { page, slot }
    }

    /// Objects from `start` up to, not including, `end`; 0 if `end` is not after `start`.
    fn distance(&self, start: Position, end: Position) -> usize {
        if end.page < start.page {
            return 0;
        }
        let between: usize = self.pages[start.page..end.page].iter().map(|page| page.len()).sum();
        (between + end.slot).saturating_sub(start.slot)
    }
}
