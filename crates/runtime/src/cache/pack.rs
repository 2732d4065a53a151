//! Bodies in memory: as they are, or compressed against a dictionary of the kind.
//!
//! Objects of one kind are much alike, each for itself is short. The dictionary is simply the first few of them; see
//! `docs/designs/0002-cache.md` for what was measured.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// How bodies are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they came.
    None,
    /// LZ4 with a dictionary of the kind.
    #[default]
    Lz4,
}

/// The dictionary is this long.
const DICTIONARY: usize = 8 << 10;
/// No single object gives more than this to the dictionary.
const SAMPLE: usize = 4 << 10;
/// Objects larger than this are compressed without the dictionary's help being noticeable, but well by themselves.
const SHORT: usize = 64;

/// The packing of one kind.
#[derive(Debug)]
pub struct Packing {
    compression: Compression,
    dictionary: OnceLock<Box<[u8]>>,
    samples: Mutex<Vec<u8>>,
}

/// The bytes of one object.
#[derive(Debug)]
pub struct Body {
    /// Packed or not.
    pub bytes: Box<[u8]>,
    /// Length when unpacked; 0 for bytes that are not packed.
    pub unpacked: u32,
}

impl Packing {
    /// Nothing packed yet.
    pub fn new(compression: Compression) -> Packing {
        Packing { compression, dictionary: OnceLock::new(), samples: Mutex::new(Vec::new()) }
    }

    /// Takes an object's bytes in.
    pub fn pack(&self, bytes: &[u8]) -> Body {
        let plain = || Body { bytes: bytes.into(), unpacked: 0 };
        if self.compression == Compression::None || bytes.len() < SHORT {
            return plain();
        }
        let Some(dictionary) = self.dictionary.get() else {
            self.learn(bytes);
            return plain();
        };
        let packed = lz4_flex::block::compress_with_dict(bytes, dictionary);
        match u32::try_from(bytes.len()) {
            Ok(unpacked) if packed.len() < bytes.len() => Body { bytes: packed.into(), unpacked },
            _ => plain(),
        }
    }

    fn learn(&self, bytes: &[u8]) {
        let mut samples = self.samples.lock();
        let room = DICTIONARY.saturating_sub(samples.len()).min(SAMPLE);
        samples.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if samples.len() >= DICTIONARY {
            let _ = self.dictionary.set(std::mem::take(&mut *samples).into());
        }
    }

    /// Appends the object to `whole`, which begins with `prefix` in the place of the opening brace.
    pub fn unpack(&self, bytes: &[u8], unpacked: u32, whole: &mut Vec<u8>, prefix: &str) {
        whole.reserve(prefix.len() + bytes.len().max(unpacked as usize));
        whole.extend_from_slice(prefix.as_bytes());
        if unpacked == 0 {
            whole.extend_from_slice(bytes.get(1..).unwrap_or_default());
            return;
        }
        // The brace that opens the object lands on the last byte of the prefix, which is put back.
        let at = whole.len() - 1;
        let last = whole[at];
        whole.resize(at + unpacked as usize, 0);
        let dictionary = self.dictionary.get().map_or(&[][..], |dictionary| dictionary);
        // These bytes were packed here, so they unpack; if memory went bad, decoding the zeroes fails and is reported.
        let _ = lz4_flex::block::decompress_into_with_dict(bytes, &mut whole[at..], dictionary);
        whole[at] = last;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shoal_objects::Entropy;

    use super::*;

    /// Text of few letters, so that there is something to pack.
    fn text() -> impl Strategy<Value = String> {
        (any::<u64>(), 0..3000_usize).prop_map(|(seed, length)| {
            let chance = Entropy::seeded(seed);
            (0..length).map(|_| char::from(b"abc\"{}:"[chance.below(7) as usize])).collect()
        })
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(texts in proptest::collection::vec(text(), 1..12), lz4: bool) {
            let packing = Packing::new(if lz4 { Compression::Lz4 } else { Compression::None });
            let bodies: Vec<Body> = texts.iter().map(|text| packing.pack(format!("{{{text}").as_bytes())).collect();
            for (text, body) in texts.iter().zip(&bodies) {
                let mut whole = Vec::new();
                packing.unpack(&body.bytes, body.unpacked, &mut whole, "{\"kind\":\"K\",");
                prop_assert_eq!(String::from_utf8(whole).unwrap(), format!("{{\"kind\":\"K\",{text}"));
                prop_assert!(body.bytes.len() <= text.len() + 1);
            }
        }
    }

    #[test]
    fn likeness_to_others_of_the_kind_is_what_makes_objects_small() {
        let object = |name: u32| {
            format!("{{\"metadata\":{{\"name\":\"pod-{name}\"}},\"spec\":\"{}\"}}", "s-p-e-c ".repeat(200))
        };
        let packing = Packing::new(Compression::Lz4);
        let bodies: Vec<Body> = (0..50).map(|name| packing.pack(object(name).as_bytes())).collect();
        assert!(bodies[49].bytes.len() * 10 < object(49).len(), "{}", bodies[49].bytes.len());
    }
}
