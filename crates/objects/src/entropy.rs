//! The one source of chance for uids, generated names and jitter. Seeded, a run can be repeated to the byte.
//! Never used for secrets.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Generated names avoid vowels (no words by accident) and look-alikes.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A shared random generator. Cheap to clone.
#[derive(Clone)]
pub struct Entropy(Arc<Mutex<fastrand::Rng>>);

impl Entropy {
    /// Seeded by the operating system.
    pub fn system() -> Entropy {
        Entropy(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// The same sequence for the same seed.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }

    /// A number below `limit` (0 when `limit` is 0).
    pub fn below(&self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..limit) }
    }

    /// A random (version 4) UUID.
    pub fn uid(&self) -> String {
        let high = (self.bits() & !0xf000) | 0x4000;
        let low = (self.bits() & !(0xc << 60)) | (0x8 << 60);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// `length` characters for the end of a generated name.
    pub fn name_suffix(&self, length: usize) -> String {
        (0..length)
            .map(|_| char::from(NAME_LETTERS[self.below(NAME_LETTERS.len() as u64) as usize]))
            .collect()
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_of_valid_uids() {
        let (a, b) = (Entropy::seeded(7), Entropy::seeded(7));
        for _ in 0..100 {
            let uid = a.uid();
            assert_eq!(uid, b.uid());
            assert_eq!(uid.len(), 36);
            assert_eq!(&uid[14..15], "4");
            assert!("89ab".contains(&uid[19..20]));
        }
    }
}
