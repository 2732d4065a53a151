//! The bytes of protobuf: numbers, lengths and field keys.

use std::borrow::Cow;

use super::ProtoError;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Field numbers are below 2^29.
const MAX_TAG: u64 = (1 << 29) - 1;

/// Reads a message from front to back.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the start of a message.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// The number and wire type of the next field, or `None` at the end.
    #[inline]
    pub fn key(&mut self) -> Result<Option<(u32, u8)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let (tag, wire_type) = (key >> 3, (key & 7) as u8);
        if tag == 0 || tag > MAX_TAG {
            return Err(ProtoError::Tag(tag));
        }
        Ok(Some((tag as u32, wire_type)))
    }

    /// Passes over the key of the next field if it is one more of the same.
    pub fn repeats(&mut self, tag: u32, wire_type: u8) -> bool {
        let mut ahead = Reader { rest: self.rest };
        let same = matches!(ahead.key(), Ok(Some(key)) if key == (tag, wire_type));
        if same {
            self.rest = ahead.rest;
        }
        same
    }

    /// A number of any width: seven bits a byte, lowest first.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, ProtoError> {
        // Most keys, lengths and numbers are small.
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { ProtoError::Overflow } else { ProtoError::Truncated })
    }

    /// A number field.
    pub fn number(&mut self, wire_type: u8, field: &str) -> Result<u64, ProtoError> {
        expect(wire_type, VARINT, field)?;
        self.varint()
    }

    /// A floating point field.
    pub fn double(&mut self, wire_type: u8, field: &str) -> Result<f64, ProtoError> {
        expect(wire_type, FIXED64, field)?;
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// The content of a field that has a length: text, bytes, or another message.
    #[inline]
    pub fn bytes(&mut self, wire_type: u8, field: &str) -> Result<&'a [u8], ProtoError> {
        expect(wire_type, BYTES, field)?;
        let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A text field. What is not UTF-8 is replaced, as it would be when Go writes it as JSON.
    pub fn text(&mut self, wire_type: u8, field: &str) -> Result<Cow<'a, str>, ProtoError> {
        Ok(lossy(self.bytes(wire_type, field)?))
    }

    /// Passes over a field that nobody knows.
    pub fn skip(&mut self, wire_type: u8) -> Result<(), ProtoError> {
        match wire_type {
            VARINT => self.varint().map(|_| ()),
            FIXED64 => self.advance(8),
            BYTES => self.bytes(wire_type, "").map(|_| ()),
            FIXED32 => self.advance(4),
            other => Err(ProtoError::IllegalWireType(other)),
        }
    }

    /// Whether numbers of a list come one by one or packed into one field.
    pub fn is_packed(wire_type: u8) -> bool {
        wire_type == BYTES
    }

    /// Nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn advance(&mut self, count: usize) -> Result<(), ProtoError> {
        self.rest = self.rest.get(count..).ok_or(ProtoError::Truncated)?;
        Ok(())
    }
}

/// Text as it is, unless it is not UTF-8. Checking first is much faster than looking for what to replace.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[inline]
fn expect(found: u8, wanted: u8, field: &str) -> Result<(), ProtoError> {
    if found == wanted { Ok(()) } else { Err(unexpected(found, field)) }
}

#[cold]
fn unexpected(found: u8, field: &str) -> ProtoError {
    match found {
        VARINT | FIXED64 | BYTES | FIXED32 => ProtoError::WireType { found, field: field.to_owned() },
        _ => ProtoError::IllegalWireType(found),
    }
}

/// Writes a number field. Negative ones take ten bytes.
pub fn put_number(out: &mut Vec<u8>, tag: u32, value: i64) {
    put_varint(out, u64::from(tag) << 3 | u64::from(VARINT));
    put_varint(out, value as u64);
}

/// Writes a floating point field.
pub fn put_double(out: &mut Vec<u8>, tag: u32, value: f64) {
    put_varint(out, u64::from(tag) << 3 | u64::from(FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a text or bytes field.
pub fn put_bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    put_varint(out, u64::from(tag) << 3 | u64::from(BYTES));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a field that holds a message.
pub fn nested(out: &mut Vec<u8>, tag: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(tag) << 3 | u64::from(BYTES));
    let start = out.len();
    write(out);
    // The length stands before the message but is only known now.
    let end = out.len();
    put_varint(out, (end - start) as u64);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
