//! The bytes of journal segments and snapshots, which differ only in what their frames mean.
//!
//! A file is a header and frames. A frame holds the records of one group of writes, which becomes durable as a whole:
//! a frame that is followed by another one was synced, so damage in it is never an interrupted write.
//! All checksums begin with the file's salt, so that nothing stored in a value can pass for a frame.
//!
//! ```text
//! header: magic [8] · version u32 · flags u32 · revision u64 · salt u64 · crc32 u32
//! frame:  magic u32 · body length u32 · first u64 · records u32 · body crc32 u32 · crc32 u32 (of the fields before) · body
//! record: kind u8 · created u64 · revision u64 · lengths u32 × 4 · resource · key · meta · value
//! ```
//!
//! A value may be sealed, which the kind tells. Numbers are little-endian. `first` is the revision of the first record in a journal, the frame's number in a snapshot.

use crate::object::{EventKind, Object};
use crate::seal::{Place, Seal, sealed};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Journal,
    Snapshot,
}

/// The version of the format that this code writes and reads.
pub(crate) const VERSION: u32 = 1;
/// Set in the first segment of a store's life: nothing came before it.
pub(crate) const GENESIS: u32 = 1;
/// Length of a file's header.
pub(crate) const HEADER: usize = 36;
/// Length of a frame's header.
pub(crate) const FRAME: usize = 28;
/// The bytes every frame begins with.
pub(crate) const FRAME_MAGIC: [u8; 4] = [0xf7, b'S', b'h', 0x1f];
const RECORD: usize = 33;
/// Added to the kind of a record whose value is sealed.
const SEALED: u8 = 0x80;
/// The largest record; with it a frame's length stays far from overflow.
pub(crate) const MAX_RECORD: usize = 1 << 30;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: FileKind,
    pub flags: u32,
    /// Of a segment the first one it may hold, of a snapshot its own.
    pub revision: u64,
    pub salt: u64,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged(&'static str),
    Version(u32),
}

/// The header of a frame whose own checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub length: usize,
    pub first: u64,
    pub records: u32,
    pub crc: u32,
}

/// A record as it lies in a frame. `kind` is `Created` for all objects of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub kind: EventKind,
    /// The value can be read by whoever sealed it only.
    pub sealed: bool,
    pub created: u64,
    pub revision: u64,
    pub resource: &'a str,
    pub key: &'a str,
    pub meta: &'a [u8],
    pub value: &'a [u8],
}

fn magic(kind: FileKind) -> &'static [u8; 8] {
    match kind {
        FileKind::Journal => b"SHOALJNL",
        FileKind::Snapshot => b"SHOALSNP",
    }
}

impl Header {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(magic(self.kind));
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&self.revision.to_le_bytes());
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header of this kind.
    pub(crate) fn decode(kind: FileKind, bytes: &[u8]) -> Result<Header, BadHeader> {
        let mut input = Input(bytes);
        if input.take(8) != Some(magic(kind)) {
            return Err(BadHeader::Damaged("it does not begin with the mark of such a file"));
        }
        let short = BadHeader::Damaged("the header is cut off");
        let version = input.u32().ok_or(short)?;
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let flags = input.u32().ok_or(short)?;
        let revision = input.u64().ok_or(short)?;
        let salt = input.u64().ok_or(short)?;
        if input.u32().ok_or(short)? != crc32fast::hash(&bytes[..HEADER - 4]) {
            return Err(BadHeader::Damaged("the checksum of the header is wrong"));
        }
        Ok(Header { kind, flags, revision, salt })
    }
}

/// The checksum of some bytes in a file with this salt.
pub(crate) fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Begins a frame in an empty buffer; records follow, then `end_frame`.
pub(crate) fn begin_frame(frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(FRAME, 0);
}

/// Adds a record to a frame. An error says why its value cannot be sealed; the frame is of no use then.
pub(crate) fn push_record(
    frame: &mut Vec<u8>,
    seal: Option<&dyn Seal>,
    kind: EventKind,
    resource: &str,
    object: &Object,
) -> Result<(), String> {
    let place = Place { resource, key: &object.key, revision: object.revision };
    let secret = sealed(seal, kind, place, &object.value)?;
    // What a deleted object was is of no use after a restart, which begins without history.
    let (meta, value) = match (kind, &secret) {
        (EventKind::Deleted, _) => (&[][..], &[][..]),
        (_, Some(secret)) => (&object.meta[..], &secret[..]),
        (EventKind::Created | EventKind::Updated, None) => (&object.meta[..], &object.value[..]),
    };
    frame.reserve(RECORD + resource.len() + object.key.len() + meta.len() + value.len());
    let kind = match kind {
        EventKind::Created => 1,
        EventKind::Updated => 2,
        EventKind::Deleted => 3,
    };
    frame.push(if secret.is_some() { kind | SEALED } else { kind });
    frame.extend_from_slice(&object.created.to_le_bytes());
    frame.extend_from_slice(&object.revision.to_le_bytes());
    let parts = [resource.as_bytes(), object.key.as_bytes(), meta, value];
    for part in parts {
        // Lengths were checked against MAX_RECORD before the write was accepted.
        frame.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    for part in parts {
        frame.extend_from_slice(part);
    }
    Ok(())
}

/// Fills in the header of a frame.
pub(crate) fn end_frame(frame: &mut [u8], salt: u64, first: u64, records: u32) {
    let length = u32::try_from(frame.len() - FRAME).unwrap_or(u32::MAX);
    let crc = checksum(salt, &frame[FRAME..]);
    frame[0..4].copy_from_slice(&FRAME_MAGIC);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&first.to_le_bytes());
    frame[16..20].copy_from_slice(&records.to_le_bytes());
    frame[20..24].copy_from_slice(&crc.to_le_bytes());
    let crc = checksum(salt, &frame[..24]);
    frame[24..28].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the header of a frame; None if it is not one.
pub(crate) fn frame_head(salt: u64, bytes: &[u8]) -> Option<FrameHead> {
    let mut input = Input(bytes);
    if input.take(4)? != FRAME_MAGIC {
        return None;
    }
    let length = input.u32()? as usize;
    let head = FrameHead { length, first: input.u64()?, records: input.u32()?, crc: input.u32()? };
    (input.u32()? == checksum(salt, &bytes[..24])).then_some(head)
}

/// The records of a frame's body, whose checksum is right.
pub(crate) fn records(body: &[u8]) -> Records<'_> {
    Records(Input(body))
}

/// Iterates over the records of a frame; an error is the last item.
pub(crate) struct Records<'a>(Input<'a>);

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let record = self.0.record().ok_or("a record is malformed although its checksum is right");
        if record.is_err() {
            self.0 = Input(&[]);
        }
        Some(record)
    }
}

/// Bytes still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn record(&mut self) -> Option<Record<'a>> {
        let [kind] = *self.take(1)? else { return None };
        let sealed = kind & SEALED != 0;
        let kind = match kind & !SEALED {
            1 => EventKind::Created,
            2 => EventKind::Updated,
            3 if !sealed => EventKind::Deleted,
            _ => return None,
        };
        let created = self.u64()?;
        let revision = self.u64()?;
        let lengths = [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let [resource, key, meta, value] = lengths.map(|length| length as usize);
        Some(Record {
            kind,
            sealed,
            created,
            revision,
            resource: str::from_utf8(self.take(resource)?).ok()?,
            key: str::from_utf8(self.take(key)?).ok()?,
            meta: self.take(meta)?,
            value: self.take(value)?,
        })
    }
}
