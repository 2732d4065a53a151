//! From an object to its slot: a pure function of fields that never change.
//!
//! Functions over `uid` and `namespace` use plain FNV-1a-64, because the API server filters lists and watches with it
//! (KEP-5866); a range of slots then is a range of hashes. FNV's top bits hardly depend on the last characters, which does not matter for uids but
//! makes namespaces named `tenant-0001`, `tenant-0002`, … share slots. Where the server need not know the hash, it is mixed once more.

use std::fmt;

use crate::slots::{Slot, SlotCount, SlotRange, at_most};

/// Which immutable fields of an object decide its slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyFunction {
    /// `metadata.uid`; the server can filter by it.
    Uid,
    /// `metadata.namespace`, so that a namespace stays together; the server can filter by it, the balance is coarser.
    Namespace,
    /// `namespace/name`: survives delete-and-recreate, the server cannot filter by it.
    NamespacedName,
    /// The uid of the topmost owner, pinned when the object is first seen; roots are filtered by the server.
    RootOwner,
    /// A function of the user's, told apart by name and version.
    User {
        /// Its name.
        id: String,
        /// To be raised whenever it gives other results.
        version: u32,
    },
}

/// The part of an object's metadata that key functions look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectKey<'a> {
    /// `metadata.uid`
    pub uid: &'a str,
    /// `metadata.namespace`, empty for objects of the cluster.
    pub namespace: &'a str,
    /// `metadata.name`
    pub name: &'a str,
    /// The uid of the topmost owner; empty if the object owns itself.
    pub root_owner: &'a str,
}

/// The field that a server-side shard selector hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorField {
    /// `object.metadata.uid`
    Uid,
    /// `object.metadata.namespace`
    Namespace,
}

impl KeyFunction {
    /// Its name in the record.
    pub fn id(&self) -> &str {
        match self {
            KeyFunction::Uid => "uid",
            KeyFunction::Namespace => "namespace",
            KeyFunction::NamespacedName => "namespaced-name",
            KeyFunction::RootOwner => "root-owner",
            KeyFunction::User { id, .. } => id,
        }
    }

    /// Its version in the record: replicas with another one compute other slots.
    pub fn version(&self) -> u32 {
        match self {
            KeyFunction::User { version, .. } => *version,
            _ => 1,
        }
    }

    /// The name of its hash in the record.
    pub fn hash_name(&self) -> &'static str {
        if self.is_raw() { "fnv1a64" } else { "fnv1a64-mixed" }
    }

    /// The built-in function of that name, or a user's.
    pub fn named(id: &str, version: u32) -> KeyFunction {
        match id {
            "uid" => KeyFunction::Uid,
            "namespace" => KeyFunction::Namespace,
            "namespaced-name" => KeyFunction::NamespacedName,
            "root-owner" => KeyFunction::RootOwner,
            id => KeyFunction::User { id: id.to_owned(), version },
        }
    }

    /// The slot of an object. A user's function computes its own key: see [`KeyFunction::slot_of_key`].
    pub fn slot_of(&self, object: ObjectKey<'_>, slots: SlotCount) -> Slot {
        match self {
            KeyFunction::Uid => self.slot_of_key(object.uid, slots),
            KeyFunction::Namespace => self.slot_of_key(object.namespace, slots),
            KeyFunction::RootOwner if object.root_owner.is_empty() => self.slot_of_key(object.uid, slots),
            KeyFunction::RootOwner => self.slot_of_key(object.root_owner, slots),
            KeyFunction::NamespacedName | KeyFunction::User { .. } => {
                let hash = [object.namespace, "/", object.name].into_iter().fold(FNV_START, fnv1a64_on);
                slots.slot_of(mixed(hash))
            }
        }
    }

    /// The slot of a key that was already taken from the object.
    pub fn slot_of_key(&self, key: &str, slots: SlotCount) -> Slot {
        let hash = fnv1a64(key);
        slots.slot_of(if self.is_raw() { hash } else { mixed(hash) })
    }

    /// What the server can filter primaries by, if it can at all.
    pub fn selector_field(&self) -> Option<SelectorField> {
        match self {
            KeyFunction::Uid | KeyFunction::RootOwner => Some(SelectorField::Uid),
            KeyFunction::Namespace => Some(SelectorField::Namespace),
            _ => None,
        }
    }

    /// The `shardSelector` for some slots, with at most 16 ranges; more are merged, which lets a few foreign objects
    /// through, and the check on the client's side takes those out. None if the server cannot tell the slots apart.
    pub fn shard_selector(&self, ranges: &[SlotRange], slots: SlotCount) -> Option<String> {
        let field = self.selector_field()?;
        let bits = slots.get().trailing_zeros();
        let text: Vec<String> = at_most(ranges.to_vec(), MAX_SELECTOR_RANGES)
            .into_iter()
            .map(|range| {
                let bound = |slot: Slot| u128::from(slot) << (64 - bits);
                format!("shardRange({field}, '{:#018x}', '{:#018x}')", bound(range.start), bound(range.end))
            })
            .collect();
        (!text.is_empty()).then(|| text.join(" || "))
    }

    fn is_raw(&self) -> bool {
        self.selector_field().is_some()
    }
}

/// Longer selectors cost the server more than the objects they keep away.
pub const MAX_SELECTOR_RANGES: usize = 16;

impl fmt::Display for SelectorField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelectorField::Uid => "object.metadata.uid",
            SelectorField::Namespace => "object.metadata.namespace",
        })
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash that the API server uses for shard selectors.
pub fn fnv1a64(text: &str) -> u64 {
    fnv1a64_on(FNV_START, text)
}

fn fnv1a64_on(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads every bit of a hash over all others.
pub fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(function: &KeyFunction, keys: impl Iterator<Item = String>, parts: u32) -> f64 {
        let slots = SlotCount::new(parts).unwrap();
        let mut counts = vec![0_u32; parts as usize];
        for key in keys {
            counts[function.slot_of_key(&key, slots) as usize] += 1;
        }
        let most = counts.iter().max().copied().unwrap_or_default();
        f64::from(most) * f64::from(parts) / f64::from(counts.iter().sum::<u32>())
    }

    #[test]
    fn the_hash_is_the_one_of_the_server() {
        assert_eq!(fnv1a64(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a64("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a64("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn similar_names_spread_only_with_the_mixed_hash() {
        let names = || (0..1000).map(|n| format!("default/web-{n}"));
        assert!(spread(&KeyFunction::NamespacedName, names(), 8) < 1.2);
        let tenants = || (0..1000).map(|n| format!("tenant-{n:04}"));
        assert!(spread(&KeyFunction::User { id: "tenant".into(), version: 1 }, tenants(), 8) < 1.3);
        assert!(spread(&KeyFunction::Namespace, tenants(), 8) > 2.0, "the server's hash is what it is");
    }

    #[test]
    fn a_slot_range_is_a_range_of_hashes() {
        let slots = SlotCount::default();
        let all = KeyFunction::Uid.shard_selector(&[slots.all()], slots);
        assert_eq!(
            all.as_deref(),
            Some("shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')")
        );
        let some = [SlotRange { start: 0, end: 512 }, SlotRange::one(1023)];
        assert_eq!(
            KeyFunction::Namespace.shard_selector(&some, slots).as_deref(),
            Some(
                "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000') || \
                 shardRange(object.metadata.namespace, '0xffc0000000000000', '0x10000000000000000')"
            )
        );
        assert_eq!(KeyFunction::NamespacedName.shard_selector(&some, slots), None);
        assert_eq!(KeyFunction::Uid.shard_selector(&[], slots), None);
    }

    #[test]
    fn a_selector_has_at_most_sixteen_ranges_and_covers_all_slots() {
        let slots = SlotCount::default();
        let every_other: Vec<SlotRange> = (0..512).map(|n| SlotRange::one(n * 2)).collect();
        let text = KeyFunction::Uid.shard_selector(&every_other, slots).unwrap();
        assert_eq!(text.matches("shardRange").count(), MAX_SELECTOR_RANGES);
        assert!(text.contains("'0x0000000000000000'"), "{text}");
    }

    #[test]
    fn children_live_with_their_root() {
        let slots = SlotCount::default();
        let root = ObjectKey { uid: "4b1b7a1c", ..ObjectKey::default() };
        let child = ObjectKey { uid: "99f2", root_owner: "4b1b7a1c", ..ObjectKey::default() };
        assert_eq!(KeyFunction::RootOwner.slot_of(root, slots), KeyFunction::RootOwner.slot_of(child, slots));
    }

    #[test]
    fn functions_are_found_by_name() {
        for function in [
            KeyFunction::Uid,
            KeyFunction::Namespace,
            KeyFunction::NamespacedName,
            KeyFunction::RootOwner,
            KeyFunction::User { id: "tenant".into(), version: 3 },
        ] {
            assert_eq!(KeyFunction::named(function.id(), function.version()), function);
        }
    }
}
