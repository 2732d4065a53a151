//! Takes the steps of a watcher into the store: what is new, what is old news, what is gone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::delta::{ChangeKind, Origin};
use super::encoded::{Encoded, Uid};
use super::siblings::Interner;
use super::stats::Stats;
use super::store::{Batch, Store};
use crate::key::ObjectKey;
use crate::watch::{Change, Kind, Record, Revision};

/// Which objects are in the scope of this cache, beside what the server was asked for.
pub type Filter = Arc<dyn Fn(&Encoded) -> bool + Send + Sync>;

/// Changes the encoded body of an object before it is held. Metadata has been read before.
pub type Transform = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// So many changes are made under one lock.
const BATCH: usize = 64;
/// So many deletions are remembered, to know late events for what they are.
const TOMBSTONES: usize = 4096;

/// The only one who writes to the store.
pub(crate) struct Writer {
    store: Arc<Store>,
    interner: Interner,
    transform: Option<Transform>,
    filter: Option<Filter>,
    stats: Arc<Stats>,
    tombstones: Tombstones,
    /// Counts lists; objects remember the last one in which they were.
    epoch: u32,
    listing: bool,
    /// The list being taken in may go back in time.
    restored: bool,
    /// What is not there after a list at this revision was gone then.
    floor: Option<Revision>,
    /// The same for parts that were listed alone, the latest last, as long as the watch is not there.
    part_floors: Vec<(Filter, Revision)>,
}

/// What is to be done about one object.
enum Incoming {
    Put(Arc<Encoded>, Kind),
    Gone { key: ObjectKey, version: Revision },
}

/// What becomes of an object that came.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Insert,
    Update,
    /// Another object of the same name: the old one is gone.
    Replace,
    Unchanged,
    /// Old news.
    Stale,
}

impl Writer {
    pub fn new(
        store: Arc<Store>,
        interner: Interner,
        transform: Option<Transform>,
        stats: Arc<Stats>,
    ) -> Writer {
        Writer {
            store,
            interner,
            transform,
            filter: None,
            stats,
            tombstones: Tombstones::default(),
            epoch: 0,
            listing: false,
            restored: false,
            floor: None,
            part_floors: Vec::new(),
        }
    }

    /// A list begins.
    pub fn begin(&mut self, restored: bool) {
        self.epoch = self.epoch.wrapping_add(1);
        self.listing = true;
        self.restored = restored;
        if restored {
            self.tombstones = Tombstones::default();
        }
        Stats::count(&self.stats.lists);
    }

    /// The list is complete: what was not in it is gone.
    pub fn complete(&mut self, revision: &Revision) {
        let epoch = self.epoch;
        let missing = self.store.list(None, |object| !object.was_seen(epoch));
        for chunk in missing.chunks(BATCH) {
            let mut batch = self.store.batch();
            for object in chunk {
                let in_scope = self.filter.as_ref().is_none_or(|filter| filter(object));
                let change = if in_scope { ChangeKind::Deleted } else { ChangeKind::Evicted };
                self.stats.count_change(change);
                batch.remove(object.key(), change, Origin::Relist);
            }
        }
        self.listing = false;
        self.restored = false;
        self.floor = Some(revision.clone());
        self.forget_floors(revision);
    }

    /// A part was listed alone, beside the watch, at this revision: what was not in it is gone. What is held in a later version came
    /// by the watch and stays.
    pub fn complete_part(&mut self, changes: &[Change], covers: &Filter, revision: &Revision) {
        Stats::count(&self.stats.lists);
        let listed: HashSet<ObjectKey> =
            changes.iter().filter_map(|change| self.key(&change.record)).collect();
        self.apply(changes);
        let gone = self.store.list(None, |object| {
            covers(object) && !listed.contains(object.key()) && revision.covers(object.resource_version())
        });
        for chunk in gone.chunks(BATCH) {
            let mut batch = self.store.batch();
            for object in chunk {
                self.stats.count_change(ChangeKind::Deleted);
                batch.remove(object.key(), ChangeKind::Deleted, Origin::Relist);
            }
        }
        self.part_floors.push((covers.clone(), revision.clone()));
    }

    /// The watch has told everything up to there; perhaps some of it will be told again.
    pub fn told_up_to(&mut self, revision: &Revision) {
        if self.floor.as_ref().is_none_or(|floor| revision.covers(floor)) {
            self.floor = Some(revision.clone());
        }
    }

    /// The watch has come this far: old news about parts come no more.
    pub fn forget_floors(&mut self, revision: &Revision) {
        self.part_floors.retain(|(_, floor)| !revision.covers(floor));
    }

    /// What of this object is older and not held was gone then.
    fn floor_of(&self, object: &Encoded) -> Option<&Revision> {
        let part = self.part_floors.iter().rev().find(|(covers, _)| covers(object));
        part.map(|(_, floor)| floor).or(self.floor.as_ref())
    }

    /// From now on only these objects are in scope. Others are evicted now; those that come into scope come with a list.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
        let Some(filter) = &self.filter else {
            return;
        };
        let outside = self.store.list(None, |object| !filter(object));
        for chunk in outside.chunks(BATCH) {
            let mut batch = self.store.batch();
            for object in chunk {
                self.stats.count_change(ChangeKind::Evicted);
                batch.remove(object.key(), ChangeKind::Evicted, Origin::Live);
            }
        }
    }

    /// Tells every object again.
    pub fn resync(&mut self) {
        for chunk in self.store.list(None, |_| true).chunks(BATCH) {
            let mut batch = self.store.batch();
            for object in chunk {
                batch.tell_again(object.key());
            }
        }
    }

    /// Takes in changes, in order.
    pub fn apply(&mut self, changes: &[Change]) {
        for chunk in changes.chunks(BATCH) {
            // Encoding is the larger part of the work, and needs no lock.
            let incoming: Vec<Incoming> = chunk.iter().filter_map(|change| self.prepare(change)).collect();
            let store = self.store.clone();
            let mut batch = store.batch();
            for one in incoming {
                match one {
                    Incoming::Put(object, kind) => self.put(&mut batch, object, kind),
                    Incoming::Gone { key, version } => self.remove(&mut batch, &key, &version),
                }
            }
        }
    }

    fn prepare(&mut self, change: &Change) -> Option<Incoming> {
        let Change { kind, record } = change;
        let key = self.key(record)?;
        if *kind == Kind::Deleted {
            return Some(Incoming::Gone { key, version: record.revision() });
        }
        if let Some(held) = self.store.get(&key)
            && held.resource_version() == &record.revision()
            && held.uid() == &Uid::parse(&record.uid())
        {
            held.see(self.epoch);
            Stats::count(&self.stats.unchanged);
            return None;
        }
        let transform = self.transform.as_deref().map(|transform| transform as &dyn Fn(Vec<u8>) -> Vec<u8>);
        let object = Encoded::new(key, record, &mut self.interner, transform);
        object.see(self.epoch);
        Some(Incoming::Put(Arc::new(object), *kind))
    }

    fn key(&mut self, record: &Record) -> Option<ObjectKey> {
        let name = record.name();
        if name.is_empty() {
            Stats::count(&self.stats.nameless);
            return None;
        }
        let namespace = self.interner.text(&record.namespace());
        Some(ObjectKey { namespace, name: (&*name).into() })
    }

    fn origin(&self) -> Origin {
        if self.listing { Origin::Relist } else { Origin::Live }
    }

    fn put(&mut self, batch: &mut Batch<'_>, object: Arc<Encoded>, kind: Kind) {
        let origin = self.origin();
        let key = object.key().clone();
        if self.filter.as_ref().is_some_and(|filter| !filter(&object)) {
            if batch.get(&key).is_some() {
                self.stats.count_change(ChangeKind::Evicted);
                batch.remove(&key, ChangeKind::Evicted, origin);
            }
            return;
        }
        let held = batch.get(&key).cloned();
        match self.judge(held.as_ref(), &object, kind) {
            Verdict::Insert => self.stats.count_change(ChangeKind::Added),
            Verdict::Update => self.stats.count_change(ChangeKind::Modified),
            Verdict::Replace => {
                self.stats.count_change(ChangeKind::Deleted);
                self.stats.count_change(ChangeKind::Added);
                batch.remove(&key, ChangeKind::Deleted, origin);
            }
            verdict @ (Verdict::Unchanged | Verdict::Stale) => {
                // It exists, in the version that is held or, if this was old news, in a later one.
                if let Some(held) = held {
                    held.see(self.epoch);
                }
                let stats = &self.stats;
                Stats::count(if verdict == Verdict::Stale { &stats.stale } else { &stats.unchanged });
                return;
            }
        }
        self.tombstones.remove(&key);
        batch.put(object, origin);
    }

    fn judge(&self, held: Option<&Arc<Encoded>>, new: &Encoded, kind: Kind) -> Verdict {
        let version = new.resource_version();
        let Some(held) = held else {
            let live = !self.listing && kind != Kind::Present;
            let before_list = live && self.floor_of(new).is_some_and(|floor| floor.covers(version));
            let is_late = before_list || self.tombstones.covers(new.key(), version);
            return if is_late { Verdict::Stale } else { Verdict::Insert };
        };
        if held.resource_version() == version && held.uid() == new.uid() {
            Verdict::Unchanged
        } else if version.is_older_than(held.resource_version()) && !self.restored {
            Verdict::Stale
        } else if held.uid() == new.uid() {
            Verdict::Update
        } else {
            Verdict::Replace
        }
    }

    fn remove(&mut self, batch: &mut Batch<'_>, key: &ObjectKey, version: &Revision) {
        let Some(held) = batch.get(key) else {
            self.tombstones.insert(key.clone(), version.clone());
            return;
        };
        if version.is_older_than(held.resource_version()) {
            Stats::count(&self.stats.stale);
            return;
        }
        self.stats.count_change(ChangeKind::Deleted);
        self.tombstones.insert(key.clone(), version.clone());
        batch.remove(key, ChangeKind::Deleted, self.origin());
    }
}

/// Keys that were deleted lately, and when.
#[derive(Default)]
struct Tombstones {
    by_key: HashMap<ObjectKey, Revision>,
    order: VecDeque<ObjectKey>,
}

impl Tombstones {
    fn insert(&mut self, key: ObjectKey, version: Revision) {
        if self.by_key.insert(key.clone(), version).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    /// The key stays in the order, which is harmless: it leaves when its turn comes.
    fn remove(&mut self, key: &ObjectKey) {
        self.by_key.remove(key);
    }

    fn covers(&self, key: &ObjectKey, version: &Revision) -> bool {
        self.by_key.get(key).is_some_and(|deleted| deleted.covers(version))
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{Compression, Packing};
    use super::super::siblings::KindShared;
    use super::*;

    fn writer() -> Writer {
        let kind = Arc::new(KindShared { prefix: "{".into(), packing: Packing::new(Compression::None) });
        Writer::new(Arc::new(Store::default()), Interner::new(kind), None, Arc::default())
    }

    fn held(writer: &Writer) -> Vec<String> {
        let all = writer.store.list(None, |_| true);
        all.iter().map(|object| format!("{}@{}", object.name(), object.resource_version())).collect()
    }

    /// `a…` are held since a list at 10, the watch is at 12, and `b…` are gained by a list at 20.
    fn gained() -> Writer {
        let mut writer = writer();
        writer.begin(false);
        writer.apply(&[Change::of(Kind::Present, "a1", 5), Change::of(Kind::Present, "a2", 6)]);
        writer.complete(&Revision::Number(10));
        writer.apply(&[Change::of(Kind::Modified, "a1", 12)]);
        let part: Filter = Arc::new(|object| object.name().starts_with('b'));
        writer.complete_part(
            &[Change::of(Kind::Present, "b1", 3), Change::of(Kind::Present, "b2", 15)],
            &part,
            &Revision::Number(20),
        );
        writer.told_up_to(&Revision::Number(12));
        writer
    }

    #[test]
    fn a_part_that_is_listed_alone_leaves_everything_else_as_it_is() {
        assert_eq!(held(&gained()), ["a1@12", "a2@6", "b1@3", "b2@15"]);
    }

    #[test]
    fn old_news_about_a_part_that_was_listed_alone_bring_nothing_back() {
        let mut writer = gained();
        // The watch goes on from 12 for everything: b0 was deleted before the list, b2 changed before it.
        writer.apply(&[
            Change::of(Kind::Modified, "b0", 13),
            Change::of(Kind::Modified, "b2", 14),
            Change::of(Kind::Deleted, "b0", 16),
            Change::of(Kind::Added, "a3", 17),
            Change::of(Kind::Deleted, "b1", 21),
            Change::of(Kind::Added, "b3", 22),
        ]);
        assert_eq!(held(&writer), ["a1@12", "a2@6", "a3@17", "b2@15", "b3@22"]);
        writer.forget_floors(&Revision::Number(22));
        assert!(writer.part_floors.is_empty());
    }

    #[test]
    fn a_part_that_is_listed_again_loses_what_is_gone_and_keeps_what_is_newer() {
        let mut writer = gained();
        writer.apply(&[Change::of(Kind::Added, "b4", 25)]);
        let part: Filter = Arc::new(|object| object.name().starts_with('b'));
        writer.complete_part(&[Change::of(Kind::Present, "b2", 15)], &part, &Revision::Number(24));
        assert_eq!(held(&writer), ["a1@12", "a2@6", "b2@15", "b4@25"]);
    }

    #[test]
    fn news_that_the_watch_repeats_after_a_gain_bring_nothing_back() {
        let mut writer = gained();
        // Told already, up to 12: a0 came and went.
        writer.apply(&[Change::of(Kind::Added, "a0", 11)]);
        assert_eq!(held(&writer), ["a1@12", "a2@6", "b1@3", "b2@15"]);
    }
}
