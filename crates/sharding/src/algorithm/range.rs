//! `range`: the user says which keys belong to which slot, as half-open ranges without gaps.

use crate::algorithm::{Algorithm, Request, Sticky};
use crate::slots::{Slot, SlotCount};

/// Keys from `start` (in) to `end` (out) belong to `shard`. An empty start is the lowest key, an empty end has no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: String,
    /// The first key behind.
    pub end: String,
    /// Their slot.
    pub shard: Slot,
}

/// The seed's range algorithm, checked.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    ranges: Vec<KeyRange>,
}

/// Why ranges are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRanges {
    /// There are none.
    #[error("sharding.ranges: at least one range is needed")]
    None,
    /// Keys that belong nowhere.
    #[error(
        "sharding.ranges: keys from {from:?} to {to:?} belong to no shard; extend a range, '' has no limit"
    )]
    Gap {
        /// First key without a range.
        from: String,
        /// First key with one again; empty if none.
        to: String,
    },
    /// Keys that belong to two.
    #[error(
        "sharding.ranges: {first:?} and {second:?} overlap; ranges include their start and exclude their end"
    )]
    Overlap {
        /// Start of the one.
        first: String,
        /// Start of the other.
        second: String,
    },
    /// A range without keys.
    #[error("sharding.ranges: the range from {start:?} to {end:?} holds no key")]
    Empty {
        /// Its start.
        start: String,
        /// Its end.
        end: String,
    },
    /// A slot that does not exist.
    #[error("sharding.ranges: shard {shard} does not exist, there are {slots}")]
    NoSuchShard {
        /// The shard.
        shard: Slot,
        /// How many there are.
        slots: u32,
    },
}

impl KeyRanges {
    /// Checks that every key belongs to exactly one slot.
    pub fn new(mut ranges: Vec<KeyRange>, slots: SlotCount) -> Result<KeyRanges, BadRanges> {
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let Some(first) = ranges.first() else { return Err(BadRanges::None) };
        if !first.start.is_empty() {
            return Err(BadRanges::Gap { from: String::new(), to: first.start.clone() });
        }
        for (at, range) in ranges.iter().enumerate() {
            let KeyRange { start, end, shard } = range;
            if *shard >= slots.get() {
                return Err(BadRanges::NoSuchShard { shard: *shard, slots: slots.get() });
            }
            if !end.is_empty() && end <= start {
                return Err(BadRanges::Empty { start: start.clone(), end: end.clone() });
            }
            match ranges.get(at + 1) {
                None if end.is_empty() => {}
                None => return Err(BadRanges::Gap { from: end.clone(), to: String::new() }),
                Some(next) if end.is_empty() || next.start < *end => {
                    return Err(BadRanges::Overlap { first: start.clone(), second: next.start.clone() });
                }
                Some(next) if next.start > *end => {
                    return Err(BadRanges::Gap { from: end.clone(), to: next.start.clone() });
                }
                Some(_) => {}
            }
        }
        Ok(KeyRanges { ranges })
    }
}

impl Algorithm for KeyRanges {
    fn name(&self) -> &str {
        "range"
    }

    fn shard_of(&self, key: &str, _: SlotCount) -> Slot {
        let at = self.ranges.partition_point(|range| range.start.as_str() <= key);
        at.checked_sub(1).and_then(|at| self.ranges.get(at)).map_or(0, |range| range.shard)
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        Sticky.rebalance(request)
    }
}
