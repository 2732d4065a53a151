//! One version of an object: its metadata read, its body still encoded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use shoal_objects::Timestamp;
use shoal_objects::selector::LabelSelector;

use super::decoded::Forms;
use super::siblings::{Interner, Owner, Siblings};
use crate::key::ObjectKey;
use crate::watch::{Record, Revision};

/// One version of an object, as the cache holds it. Never changes.
pub struct Encoded {
    key: ObjectKey,
    siblings: Arc<Siblings>,
    uid: Uid,
    version: Revision,
    generation: i64,
    /// In microseconds; [`STAYS`] for objects whose deletion nobody asked for.
    deletion: i64,
    body: Box<[u8]>,
    /// Length of the body when unpacked; 0 for one that is not packed.
    unpacked: u32,
    /// The last list in which it was seen, and in the uppermost bit whether it was read lately.
    seen: AtomicU32,
    /// Unique in this process.
    id: u64,
    forms: Forms,
}

const STAYS: i64 = i64::MIN;
const READ: u32 = 1 << 31;
/// Buffers larger than this are not kept for the next object.
const KEPT_SCRATCH: usize = 256 << 10;

/// A uid: 16 bytes for those that are UUIDs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Uid {
    /// In the canonical form of 36 characters.
    Uuid([u8; 16]),
    /// Some other text.
    Text(Box<str>),
}

impl Encoded {
    /// Keeps what is worth keeping of an object that came. `transform` may change the encoded body.
    pub(crate) fn new(
        key: ObjectKey,
        record: &Record,
        interner: &mut Interner,
        transform: Option<&dyn Fn(Vec<u8>) -> Vec<u8>>,
    ) -> Encoded {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let siblings = interner.siblings(record);
        let mut bare = Vec::with_capacity(record.encoded_len());
        record.write_bare(&mut bare);
        if let Some(transform) = transform {
            bare = transform(bare);
        }
        let body = siblings.kind.packing.pack(&bare);
        Encoded {
            key,
            uid: Uid::parse(&record.uid()),
            version: record.revision(),
            generation: record.generation(),
            deletion: deletion(&record.deletion_timestamp()),
            body: body.bytes,
            unpacked: body.unpacked,
            siblings,
            seen: AtomicU32::new(0),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            forms: Forms::default(),
        }
    }

    /// An object of which only the key is known.
    #[cfg(test)]
    pub(super) fn bare(key: ObjectKey) -> Encoded {
        Encoded::labelled(key, &serde_json::Value::Null)
    }

    /// An object of which only key and labels are known.
    #[cfg(test)]
    pub(super) fn labelled(key: ObjectKey, labels: &serde_json::Value) -> Encoded {
        let object = serde_json::json!({"metadata": {"labels": labels}}).to_string();
        let record = Record::of(&object);
        let kind = super::siblings::KindShared {
            prefix: "{".into(),
            packing: super::pack::Packing::new(super::pack::Compression::None),
        };
        Encoded::new(key, &record, &mut Interner::new(Arc::new(kind)), None)
    }

    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Empty for kinds without namespaces.
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Unique within the namespace.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Which of the objects that had this name over time.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// This version.
    pub fn resource_version(&self) -> &Revision {
        &self.version
    }

    /// How often the specification was changed; 0 where nobody counts.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// When deletion was asked for.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.is_deleting().then_some(Timestamp(self.deletion))
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion != STAYS
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = &self.siblings.labels;
        let place = labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&labels[place].1)
    }

    /// All labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.siblings.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether a selector means this object.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }

    /// The owners.
    pub fn owner_references(&self) -> &[Owner] {
        &self.siblings.owners
    }

    /// The owner that controls this object.
    pub fn controller(&self) -> Option<&Owner> {
        self.siblings.owners.iter().find(|owner| owner.controller)
    }

    /// What must be done before the object may go.
    pub fn finalizers(&self) -> &[Arc<str>] {
        &self.siblings.finalizers
    }

    /// The annotations. Looked up in the body at each call: they are read seldom and are often large.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            annotations: Option<BTreeMap<String, String>>,
        }
        let object: Option<Object> = serde_json::from_slice(&self.json()).ok();
        object.and_then(|object| object.metadata.annotations).unwrap_or_default()
    }

    /// The object as JSON, without what is trimmed.
    pub fn json(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        self.write_json(&mut whole);
        whole
    }

    fn write_json(&self, whole: &mut Vec<u8>) {
        let kind = &self.siblings.kind;
        kind.packing.unpack(&self.body, self.unpacked, whole, &kind.prefix);
    }

    /// Decodes the object. Prefer the lister, which remembers what it decoded.
    pub fn decode<K: DeserializeOwned>(&self) -> serde_json::Result<K> {
        thread_local! {
            static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        let mut whole = SCRATCH.take();
        whole.clear();
        self.write_json(&mut whole);
        // One look at all bytes is cheaper than one at each text.
        let decoded = match std::str::from_utf8(&whole) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(&whole),
        };
        if whole.capacity() <= KEPT_SCRATCH {
            SCRATCH.set(whole);
        }
        decoded
    }

    /// How many bytes the body takes in memory.
    pub fn held_bytes(&self) -> usize {
        self.body.len()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn forms(&self) -> &Forms {
        &self.forms
    }

    /// What was decoded of this object, if it is still here. Counts as a read.
    pub(super) fn form<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let form = self.forms.get()?;
        if self.seen.load(Ordering::Relaxed) & READ == 0 {
            self.seen.fetch_or(READ, Ordering::Relaxed);
        }
        Some(form)
    }

    /// Takes the mark of a read away; whether there was one.
    pub(super) fn take_mark(&self) -> bool {
        self.seen.fetch_and(!READ, Ordering::Relaxed) & READ != 0
    }

    /// This list has shown the object.
    pub(super) fn see(&self, list: u32) {
        self.seen.store(list & !READ, Ordering::Relaxed);
    }

    /// Whether this list has shown the object.
    pub(super) fn was_seen(&self, list: u32) -> bool {
        self.seen.load(Ordering::Relaxed) & !READ == list & !READ
    }
}

impl fmt::Debug for Encoded {
    // Without the body: it may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.version)
    }
}

impl Uid {
    /// Reads a uid.
    pub fn parse(text: &str) -> Uid {
        parse_uuid(text).map_or_else(|| Uid::Text(text.into()), Uid::Uuid)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Uid::Text(text) if text.is_empty())
    }
}

fn deletion(text: &str) -> i64 {
    // Almost all objects have none, and making an error takes time.
    if text.is_empty() {
        return STAYS;
    }
    text.parse().map_or(STAYS, |at: jiff::Timestamp| at.as_microsecond())
}

/// The 16 bytes, if the text is exactly what printing them gives.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 || [8, 13, 18, 23].iter().any(|dash| text[*dash] != b'-') {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    let mut digits = text.iter().enumerate().filter(|(place, _)| ![8, 13, 18, 23].contains(place));
    for byte in &mut bytes {
        let (high, low) = (digits.next()?, digits.next()?);
        *byte = digit(*high.1)? << 4 | digit(*low.1)?;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Text(text) => f.write_str(text),
            Uid::Uuid(bytes) => {
                for (place, byte) in bytes.iter().enumerate() {
                    if [4, 6, 8, 10].contains(&place) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        *self == Uid::parse(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_print_as_they_were_read() {
        for text in [
            "0123abcd-ffff-4000-8000-00000000000f",
            "0123ABCD-ffff-4000-8000-00000000000f",
            "",
            "x",
            "0123abcd-ffff-4000-8000-00000000000-",
            "0123abcd-ffff-4000-8000-0000000000ß",
        ] {
            assert_eq!(Uid::parse(text).to_string(), text);
        }
        assert!(matches!(Uid::parse("0123abcd-ffff-4000-8000-00000000000f"), Uid::Uuid(_)));
    }
}
