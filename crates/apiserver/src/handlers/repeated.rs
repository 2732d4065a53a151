//! Applies that are known to change nothing.
//!
//! What an apply leads to depends on the stored object, on the request and on the types of the kind, and on nothing else
//! as long as no policy or webhook is asked. Tools that apply the same configuration again and again are answered
//! without looking into it: all that is kept is a fingerprint of the three, until others push it out.

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use shoal_store::Object;

use crate::admission;
use crate::conversion;
use crate::handlers::{Call, ownership};

/// Fingerprints that share a place; the oldest goes.
const WAYS: usize = 4;
const PLACES: usize = 4096;

type Fingerprint = [u8; 16];

/// Fingerprints of applies that changed nothing: at most 256 KiB, and none before the first of them.
#[derive(Default)]
pub struct Memory(Mutex<Vec<[Fingerprint; WAYS]>>);

/// An apply that may be a repetition.
pub struct Repeated<'c> {
    call: &'c Call<'c>,
    fingerprint: Fingerprint,
    revision: u64,
}

impl<'c> Repeated<'c> {
    /// `None` where somebody has to be asked each time.
    pub async fn of(call: &'c Call<'c>, stored: &Object) -> Option<Repeated<'c>> {
        let converts = conversion::webhook(&call.target.resource).is_some();
        if converts || !admission::is_unobserved(call).await {
            return None;
        }
        Some(Repeated { call, fingerprint: fingerprint(call, stored), revision: stored.revision })
    }

    /// Whether it changed nothing before.
    pub fn is_known(&self) -> bool {
        self.call.server.repeated.contains(self.fingerprint)
    }

    /// Remembers it if it left the object as it was and there was nothing to say about it.
    pub fn remember(&self, now: &Object) {
        if now.revision == self.revision && self.call.warnings.lock().is_empty() {
            self.call.server.repeated.insert(self.fingerprint);
        }
    }
}

/// Revisions are never used twice: one stands for the object and all that is in it.
fn fingerprint(call: &Call<'_>, stored: &Object) -> Fingerprint {
    let resource = &*call.target.resource;
    let mut context = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        context.update(&bytes.len().to_le_bytes());
        context.update(bytes);
    };
    add(&stored.revision.to_le_bytes());
    add(&resource.custom.as_ref().map_or(0, |custom| custom.revision).to_le_bytes());
    for text in [&*resource.table, &stored.key, &resource.api_version, &call.target.subresource] {
        add(text.as_bytes());
    }
    add(ownership::manager(call).as_bytes());
    for (name, value) in call.query.pairs() {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    add(&call.body);
    let digest = context.finish();
    let mut fingerprint = Fingerprint::default();
    fingerprint.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    fingerprint
}

fn place(fingerprint: Fingerprint) -> usize {
    usize::from(u16::from_le_bytes([fingerprint[0], fingerprint[1]])) % PLACES
}

impl Memory {
    fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.0.lock().get(place(fingerprint)).is_some_and(|ways| ways.contains(&fingerprint))
    }

    fn insert(&self, fingerprint: Fingerprint) {
        let mut places = self.0.lock();
        if places.is_empty() {
            places.resize(PLACES, Default::default());
        }
        if let Some(ways) = places.get_mut(place(fingerprint))
            && !ways.contains(&fingerprint)
        {
            ways.rotate_right(1);
            ways[0] = fingerprint;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_fingerprint_of_a_place_goes() {
        let memory = Memory::default();
        let numbered = |n: u8| -> Fingerprint { std::array::from_fn(|i| if i == 5 { n } else { 7 }) };
        assert!(!memory.contains(numbered(1)));
        for n in 1..=5 {
            memory.insert(numbered(n));
            memory.insert(numbered(n));
        }
        let known: Vec<u8> = (0..9).filter(|n| memory.contains(numbered(*n))).collect();
        assert_eq!(known, [2, 3, 4, 5]);
    }
}
