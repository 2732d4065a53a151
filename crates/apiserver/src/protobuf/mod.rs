//! Protobuf bodies of built-in kinds, transcoded by the type table.
//!
//! On the wire an object is the prefix `k8s\0` and a `runtime.Unknown` message that names the kind and holds the raw
//! message. What comes out of [`decode_request`] is the JSON of the kind; `decode::conform` must run over it as over
//! any other JSON. [`encode_response`] is the way back, for objects that conform.

mod decode;
mod encode;
pub mod frames;
mod partial;
mod tags;
pub(crate) mod wire;

use std::borrow::Cow;

use shoal_objects::{Map, Value};

use self::wire::Reader;
use crate::builtin;

/// What every body starts with.
const PREFIX: &[u8] = b"k8s\0";

/// How deep messages may be nested.
const MAX_DEPTH: usize = 100;

/// Why a body was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The prefix is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// A length or number reaches beyond the end.
    #[error("unexpected EOF")]
    Truncated,
    /// A number of more than ten bytes.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number that cannot be.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// Groups and worse.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    /// A field of another kind than the type says.
    #[error("proto: wrong wireType = {found} for field {field}")]
    WireType {
        /// The wire type found.
        found: u8,
        /// The JSON name of the field.
        field: String,
    },
    /// Messages in messages without end.
    #[error("exceeded max depth")]
    Depth,
    /// A field that holds JSON holds something else.
    #[error("{0}")]
    Json(String),
    /// A body that is compressed or otherwise encoded.
    #[error("unsupported content encoding {0:?}")]
    Encoding(String),
    /// A kind that is not built in or has no protobuf form.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// As the body says.
        api_version: String,
        /// As the body says.
        kind: String,
    },
}

/// Reads a body: the JSON of the object, with its apiVersion and kind.
pub fn decode_request(body: &[u8]) -> Result<Value, ProtoError> {
    let (api_version, kind, raw) = unwrap(body)?;
    let (api_version, kind) = (api_version.into_owned(), kind.into_owned());
    let Some(id) = type_of(&api_version, &kind) else {
        return Err(ProtoError::UnknownKind { api_version, kind });
    };
    let mut object = decode::message(id, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Whether objects of the kind can be written.
pub fn has_form(api_version: &str, kind: &str) -> bool {
    type_of(api_version, kind).is_some()
}

/// Writes an object that has the shape of its kind, with its envelope. `None` if the kind has no protobuf form.
pub fn encode_response(api_version: &str, kind: &str, object: &Value) -> Option<Vec<u8>> {
    let empty = Map::new();
    let members = object.as_object().unwrap_or(&empty);
    let is_meta = api_version.starts_with("meta.k8s.io/");
    let typed = match kind {
        "PartialObjectMetadata" | "PartialObjectMetadataList" if is_meta => None,
        _ => Some(type_of(api_version, kind)?),
    };
    let mut out = PREFIX.to_vec();
    wire::nested(&mut out, 1, |out| {
        wire::put_bytes(out, 1, api_version.as_bytes());
        wire::put_bytes(out, 2, kind.as_bytes());
    });
    wire::nested(&mut out, 2, |out| match typed {
        Some(id) => encode::message(id, members, out),
        None if kind == "PartialObjectMetadata" => partial::object(members, out),
        None => partial::list(members, out),
    });
    // The real server writes both, empty.
    wire::put_bytes(&mut out, 3, b"");
    wire::put_bytes(&mut out, 4, b"");
    Some(out)
}

/// One event of a watch in protobuf: four bytes of length, then a bare `WatchEvent` around the encoded object.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    wire::put_bytes(&mut out, 1, event_type.as_bytes());
    wire::nested(&mut out, 2, |out| wire::put_bytes(out, 1, object));
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The type of a kind, if it has a protobuf form.
fn type_of(api_version: &str, kind: &str) -> Option<shoal_objects::schema::TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin::type_of(group, version, kind).filter(|id| !tags::of(*id).is_empty())
}

/// Takes the envelope off.
fn unwrap(body: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>, &[u8]), ProtoError> {
    let mut reader = Reader::new(body.strip_prefix(PREFIX).ok_or(ProtoError::NotProtobuf)?);
    let (mut api_version, mut kind, mut raw) = (Cow::Borrowed(""), Cow::Borrowed(""), [].as_slice());
    while let Some((tag, wire_type)) = reader.key()? {
        match tag {
            1 => {
                let mut type_meta = Reader::new(reader.bytes(wire_type, "typeMeta")?);
                while let Some((tag, wire_type)) = type_meta.key()? {
                    match tag {
                        1 => api_version = type_meta.text(wire_type, "apiVersion")?,
                        2 => kind = type_meta.text(wire_type, "kind")?,
                        _ => type_meta.skip(wire_type)?,
                    }
                }
            }
            2 => raw = reader.bytes(wire_type, "raw")?,
            3 => {
                let encoding = reader.text(wire_type, "contentEncoding")?;
                if !encoding.is_empty() {
                    return Err(ProtoError::Encoding(encoding.into_owned()));
                }
            }
            _ => reader.skip(wire_type)?,
        }
    }
    Ok((api_version, kind, raw))
}

#[cfg(test)]
mod tests;
