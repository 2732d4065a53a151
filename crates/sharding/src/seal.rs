//! Seals: a number computed from a record's content, so that an edit by hand is noticed. Against accidents, not attackers.

use crate::key::mixed;

/// Collects content and gives the seal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealer(u64);

impl Sealer {
    /// For one sort of record.
    pub(crate) fn new(sort: &str) -> Sealer {
        Sealer(0x5348_4f41_4c00_0001).text(sort)
    }

    pub(crate) fn number(self, number: u64) -> Sealer {
        Sealer(mixed(self.0.rotate_left(5) ^ number))
    }

    pub(crate) fn text(self, text: &str) -> Sealer {
        self.number(crate::key::fnv1a64(text)).number(text.len() as u64)
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}
