//! The order of ready keys: priorities above groups above first come, first served.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::Priority;
use super::entries::{Entries, Entry, List, Slot};

/// Of so many keys taken while both lanes have some, one is from the lower lane: a storm of live events delays
/// a resync but never stops it.
pub(super) const LOW_SHARE: u32 = 8;

/// Ready keys, in one lane per priority.
#[derive(Default)]
pub(super) struct Lanes {
    live: Lane,
    resync: Lane,
    /// Keys taken from the upper lane while the lower one had to wait.
    passed_over: u32,
}

/// Groups take turns; within a group, keys leave in the order in which they came.
#[derive(Default)]
struct Lane {
    /// Exactly the groups that are in `turns`; a list may be empty when its last key changed lanes.
    groups: HashMap<u32, List, FixedState>,
    turns: VecDeque<u32>,
    len: usize,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.live.len + self.resync.len
    }

    pub(super) fn len_of(&self, priority: Priority) -> usize {
        match priority {
            Priority::Live => self.live.len,
            Priority::Resync => self.resync.len,
        }
    }

    /// Puts a key at the end of its group, in the lane of its priority.
    pub(super) fn push<K>(&mut self, entries: &mut Entries<K>, slot: Slot) {
        let Entry { priority, digest, .. } = entries.peek(slot);
        let (priority, group) = (*priority, digest.group);
        let lane = self.lane(priority);
        let list = lane.groups.entry(group).or_insert_with(|| {
            lane.turns.push_back(group);
            List::default()
        });
        entries.push_back(list, slot);
        lane.len += 1;
    }

    /// Takes a key out before its turn.
    pub(super) fn unlink<K>(&mut self, entries: &mut Entries<K>, slot: Slot) {
        let Entry { priority, digest, .. } = entries.peek(slot);
        let (priority, group) = (*priority, digest.group);
        let lane = self.lane(priority);
        if let Some(list) = lane.groups.get_mut(&group) {
            entries.unlink(list, slot);
            lane.len -= 1;
        }
    }

    /// The key whose turn it is.
    pub(super) fn pop<K>(&mut self, entries: &mut Entries<K>) -> Option<Slot> {
        let low_turn = self.live.len == 0 || self.passed_over + 1 >= LOW_SHARE;
        if self.resync.len > 0 && low_turn {
            self.passed_over = 0;
            return self.resync.pop(entries);
        }
        self.passed_over = if self.resync.len > 0 { self.passed_over + 1 } else { 0 };
        self.live.pop(entries)
    }

    /// Takes everything out.
    pub(super) fn clear<K>(&mut self, entries: &mut Entries<K>) -> Vec<Slot> {
        let slots = std::iter::from_fn(|| self.pop(entries)).collect();
        self.passed_over = 0;
        slots
    }

    /// Keys of one lane, group by group.
    pub(super) fn iter<'a, K>(
        &'a self,
        entries: &'a Entries<K>,
        priority: Priority,
    ) -> impl Iterator<Item = &'a Entry<K>> {
        let lane = match priority {
            Priority::Live => &self.live,
            Priority::Resync => &self.resync,
        };
        let lists = lane.turns.iter().filter_map(|group| lane.groups.get(group));
        lists.flat_map(|list| entries.iter(*list))
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Live => &mut self.live,
            Priority::Resync => &mut self.resync,
        }
    }
}

impl Lane {
    fn pop<K>(&mut self, entries: &mut Entries<K>) -> Option<Slot> {
        while let Some(group) = self.turns.front().copied() {
            let list = self.groups.get_mut(&group)?;
            let slot = entries.pop_front(list);
            let emptied = list.is_empty();
            if emptied {
                self.groups.remove(&group);
                self.turns.pop_front();
            } else if self.turns.len() > 1 {
                self.turns.rotate_left(1);
            }
            if slot.is_some() {
                self.len -= 1;
                return slot;
            }
        }
        None
    }
}
