//! Slots: the fixed number of parts that the objects of a group fall into, and ranges of them.

use std::fmt;
use std::str::FromStr;

/// A slot's number, from 0.
pub type Slot = u32;

/// Rises with every change of a slot's owner and never falls.
pub type Epoch = u64;

/// How many slots a group has: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotCount(u32);

/// Why a number cannot be a count of slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} slots are not possible: choose a power of two from 1 to {max}", max = SlotCount::MAX)]
pub struct BadSlotCount(pub u32);

impl SlotCount {
    /// More would not fit into one record.
    pub const MAX: u32 = 16_384;

    /// A power of two up to [`SlotCount::MAX`].
    pub const fn new(count: u32) -> Result<SlotCount, BadSlotCount> {
        if count.is_power_of_two() && count <= SlotCount::MAX {
            Ok(SlotCount(count))
        } else {
            Err(BadSlotCount(count))
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The slot of a hash: its top bits, so that neighbouring slots are neighbouring ranges of hashes.
    pub fn slot_of(self, hash: u64) -> Slot {
        match self.0.trailing_zeros() {
            0 => 0,
            bits => (hash >> (64 - bits)) as Slot,
        }
    }

    /// All slots.
    pub const fn all(self) -> SlotRange {
        SlotRange { start: 0, end: self.0 }
    }
}

impl Default for SlotCount {
    fn default() -> Self {
        SlotCount(1024)
    }
}

/// Some consecutive slots: `start` is in, `end` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    /// The first slot.
    pub start: Slot,
    /// The first slot behind the range.
    pub end: Slot,
}

impl SlotRange {
    /// One slot.
    pub const fn one(slot: Slot) -> SlotRange {
        SlotRange { start: slot, end: slot + 1 }
    }

    /// How many slots.
    pub fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no slot in it.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether the slot is in it.
    pub fn contains(self, slot: Slot) -> bool {
        self.start <= slot && slot < self.end
    }

    /// What both have in common, if anything.
    pub fn common(self, other: SlotRange) -> Option<SlotRange> {
        let both = SlotRange { start: self.start.max(other.start), end: self.end.min(other.end) };
        (!both.is_empty()).then_some(both)
    }

    /// The slots one by one.
    pub fn slots(self) -> std::ops::Range<Slot> {
        self.start..self.end
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            1 => write!(f, "{}", self.start),
            _ => write!(f, "{}-{}", self.start, self.end.saturating_sub(1)),
        }
    }
}

impl FromStr for SlotRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotRange, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |part: &str| part.parse::<Slot>().ok().filter(|slot| *slot < SlotCount::MAX);
        match (number(first), number(last)) {
            (Some(start), Some(last)) if start <= last => Ok(SlotRange { start, end: last + 1 }),
            _ => Err(format!("{text:?} is no range of slots such as 0-340")),
        }
    }
}

/// Appends a slot to sorted ranges, growing the last one where it can.
pub fn push_slot(ranges: &mut Vec<SlotRange>, slot: Slot) {
    match ranges.last_mut() {
        Some(last) if last.end == slot => last.end += 1,
        _ => ranges.push(SlotRange::one(slot)),
    }
}

/// Sorted slots as ranges.
pub fn ranges_of(slots: impl IntoIterator<Item = Slot>) -> Vec<SlotRange> {
    let mut ranges = Vec::new();
    slots.into_iter().for_each(|slot| push_slot(&mut ranges, slot));
    ranges
}

/// Closes the smallest gaps until at most `most` ranges are left: a superset, for selectors that must stay short.
pub fn at_most(mut ranges: Vec<SlotRange>, most: usize) -> Vec<SlotRange> {
    while ranges.len() > most.max(1) {
        let gap = |i: &usize| ranges[i + 1].start - ranges[*i].end;
        let Some(at) = (0..ranges.len() - 1).min_by_key(gap) else { break };
        ranges[at].end = ranges.remove(at + 1).end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_are_slot_counts() {
        assert!(SlotCount::new(1024).is_ok() && SlotCount::new(1).is_ok());
        for bad in [0, 3, 1000, 32_768] {
            let refused = SlotCount::new(bad).unwrap_err().to_string();
            assert!(refused.contains("power of two"), "{refused}");
        }
    }

    #[test]
    fn slots_are_the_top_bits() {
        let count = SlotCount::default();
        assert_eq!(count.slot_of(0), 0);
        assert_eq!(count.slot_of(u64::MAX), 1023);
        assert_eq!(count.slot_of(1 << 54), 1);
        assert_eq!(SlotCount::new(1).unwrap().slot_of(u64::MAX), 0);
    }

    #[test]
    fn ranges_read_what_they_write() {
        for range in [SlotRange::one(5), SlotRange { start: 0, end: 341 }] {
            assert_eq!(range.to_string().parse(), Ok(range));
        }
        for bad in ["", "5-3", "-", "a-b", "0-99999", "4294967295"] {
            assert!(bad.parse::<SlotRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn too_many_ranges_become_a_superset() {
        let ranges = ranges_of([0, 1, 4, 10, 11, 13]);
        assert_eq!(ranges.len(), 4);
        let short = at_most(ranges, 2);
        assert_eq!(short, [SlotRange { start: 0, end: 5 }, SlotRange { start: 10, end: 14 }]);
    }
}
