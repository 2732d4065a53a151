//! How objects are kept: one buffer per revision that is the watch event, with the object inside.
//!
//! ```text
//! {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7",…},…}}\n
//! └────── event ──────────┘└─ type ────────────────────────────┘
//! ```
//! A watcher gets the buffer as it is, a GET the slice with the object, a list item the object without its type.
//! kind, apiVersion, metadata and resourceVersion come first, so that the revision is spliced in without encoding
//! the rest again, and readers that want metadata only can stop early.

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};
use shoal_store::{Encoded, EventKind};

use crate::index;
use crate::registry::Resource;

/// An encoded object that waits for its revision.
pub struct Draft {
    /// From `{"kind":` to the opening quote of the resourceVersion's value.
    head: Vec<u8>,
    /// From the closing quote to the end of the object.
    tail: Vec<u8>,
    /// Where `,"managedFields":[…]` stands in the tail.
    entries: Range<usize>,
    index: Bytes,
}

const ADDED: &[u8] = b"{\"type\":\"ADDED\",\"object\":";
const MODIFIED: &[u8] = b"{\"type\":\"MODIFIED\",\"object\":";
const DELETED: &[u8] = b"{\"type\":\"DELETED\",\"object\":";
const END: &[u8] = b"}\n";
const VERSION: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
const ENTRIES: &[u8] = b",\"managedFields\":";

fn prefix(kind: EventKind) -> &'static [u8] {
    match kind {
        EventKind::Created => ADDED,
        EventKind::Updated => MODIFIED,
        EventKind::Deleted => DELETED,
    }
}

/// `{"kind":"Pod","apiVersion":"v1",`
fn type_head(kind: &str, api_version: &str) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.extend_from_slice(b"{\"kind\":\"");
    head.extend_from_slice(kind.as_bytes());
    head.extend_from_slice(b"\",\"apiVersion\":\"");
    head.extend_from_slice(api_version.as_bytes());
    head.extend_from_slice(b"\",");
    head
}

/// Length of the type in front of `"metadata"`, to be left out in list items.
pub fn type_length(kind: &str, api_version: &str) -> usize {
    br#"{"kind":"","apiVersion":"","#.len() + kind.len() + api_version.len()
}

/// Encodes an object but for its revision.
pub fn draft(resource: &Resource, object: &Value) -> Draft {
    draft_with(resource, object, "")
}

/// Encodes an object but for its revision, with the text of its `managedFields`.
pub fn draft_with(resource: &Resource, object: &Value, managed_fields: &str) -> Draft {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or(&resource.kind);
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or(&resource.api_version);
    let mut head = type_head(kind, api_version);
    head.extend_from_slice(VERSION);
    let mut tail = Vec::with_capacity(1024 + managed_fields.len());
    tail.push(b'"');
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    // Members are sorted, and so stand the entries.
    write_members(&mut tail, metadata, |key| key <= "managedFields" && key != "resourceVersion");
    let start = tail.len();
    if !managed_fields.is_empty() {
        tail.extend_from_slice(ENTRIES);
        tail.extend_from_slice(managed_fields.as_bytes());
    }
    let entries = start..tail.len();
    write_members(&mut tail, metadata, |key| key > "managedFields" && key != "resourceVersion");
    tail.push(b'}');
    if let Some(members) = object.as_object() {
        write_members(&mut tail, members, |key| !matches!(key, "kind" | "apiVersion" | "metadata"));
    }
    tail.push(b'}');
    Draft { head, tail, entries, index: index::encode(resource, object) }
}

/// Writes `,"key":value` for some members.
fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>, wanted: impl Fn(&str) -> bool) {
    for (key, value) in members {
        if !wanted(key) {
            continue;
        }
        out.push(b',');
        write_json(out, key);
        out.push(b':');
        write_json(out, value);
    }
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing JSON values to memory cannot fail: keys are text and the writer is a vector.
    let _ = serde_json::to_writer(out, value);
}

impl Draft {
    /// A stored object that was edited: its text before and behind the revision. Nothing in the index has changed.
    pub fn edited(head: Vec<u8>, tail: Vec<u8>, index: Bytes) -> Draft {
        Draft { head, tail, entries: 0..0, index }
    }

    /// The finished buffer for this revision.
    pub fn seal(&self, kind: EventKind, revision: u64) -> Encoded {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let event = prefix(kind);
        let size = event.len() + self.head.len() + digits.len() + self.tail.len() + END.len();
        let mut frame = Vec::with_capacity(size);
        for part in [event, &self.head, digits, &self.tail, END] {
            frame.extend_from_slice(part);
        }
        Encoded { value: frame.into(), meta: self.index.clone() }
    }

    /// Whether a stored buffer holds this object, but with these `managedFields`.
    pub fn is_stored_in(&self, frame: &[u8], managed_fields: &str) -> bool {
        let version = |rest: &[u8]| rest.iter().position(|b| *b == b'"').unwrap_or(0);
        let rest = object_slice(frame).strip_prefix(&*self.head).map(|rest| &rest[version(rest)..]);
        let rest = rest.and_then(|rest| rest.strip_prefix(&self.tail[..self.entries.start]));
        let Some(stored) = rest.and_then(|rest| rest.strip_suffix(&self.tail[self.entries.end..])) else {
            return false;
        };
        match managed_fields {
            "" => stored.is_empty(),
            text => stored.strip_prefix(ENTRIES) == Some(text.as_bytes()),
        }
    }
}

/// The object inside a stored buffer.
pub fn object(frame: &Bytes) -> Bytes {
    frame.slice(object_start(frame)..frame.len() - END.len())
}

/// The object inside a stored buffer, borrowed.
pub fn object_slice(frame: &[u8]) -> &[u8] {
    &frame[object_start(frame)..frame.len() - END.len()]
}

fn object_start(frame: &[u8]) -> usize {
    match frame.get(9) {
        Some(b'A') => ADDED.len(),
        Some(b'M') => MODIFIED.len(),
        _ => DELETED.len(),
    }
}

/// The event buffer under another event type; the same buffer when it has that type already.
pub fn event(frame: &Bytes, kind: EventKind) -> Bytes {
    let wanted = prefix(kind);
    if frame.starts_with(wanted) {
        return frame.clone();
    }
    let body = &frame[object_start(frame)..];
    let mut out = Vec::with_capacity(wanted.len() + body.len());
    out.extend_from_slice(wanted);
    out.extend_from_slice(body);
    out.into()
}

/// The object of a stored buffer as it would read at another revision, in a new event.
pub fn event_at(frame: &Bytes, kind: EventKind, revision: u64) -> Bytes {
    let body = &frame[object_start(frame)..];
    let Some(version) = find(body, VERSION).map(|at| at + VERSION.len()) else { return event(frame, kind) };
    let end = version + body[version..].iter().position(|b| *b == b'"').unwrap_or(0);
    let mut digits = itoa::Buffer::new();
    let parts = [prefix(kind), &body[..version], digits.format(revision).as_bytes(), &body[end..]];
    parts.concat().into()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// An event made of an object that is not a stored buffer.
pub fn event_of(kind: &str, object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    write_json(&mut out, object);
    out.extend_from_slice(END);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn sealed(kind: EventKind, revision: u64) -> Bytes {
        let registry = Registry::builtin();
        let resource = registry.find("", "v1", "configmaps").unwrap();
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1", "uid": "u"}});
        draft(resource, &object).seal(kind, revision).value
    }

    #[test]
    fn the_buffer_is_a_watch_event_with_the_object_inside() {
        let frame = sealed(EventKind::Created, 42);
        let event: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], "42");
        let inner: Value = serde_json::from_slice(&object(&frame)).unwrap();
        assert_eq!(inner, event["object"]);
        let item =
            format!("{{{}", std::str::from_utf8(&object(&frame)[type_length("ConfigMap", "v1")..]).unwrap());
        assert!(item.starts_with("{\"metadata\""), "{item}");
    }

    #[test]
    fn a_draft_knows_what_is_stored_already() {
        let registry = Registry::builtin();
        let resource = registry.find("", "v1", "configmaps").unwrap();
        let mut object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
            "metadata": {"labels": {"l": "1"}, "name": "a", "resourceVersion": "1", "uid": "u"}});
        let entries = r#"[{"manager":"m"}]"#;
        let draft = draft_with(resource, &object, entries);
        let frame = draft.seal(EventKind::Updated, 77).value;
        let read: Value = serde_json::from_slice(object_slice(&frame)).unwrap();
        assert_eq!(read["metadata"]["managedFields"], json!([{"manager": "m"}]));
        assert!(draft.is_stored_in(&frame, entries));
        assert!(
            draft_with(resource, &object, "[1]").is_stored_in(&frame, entries),
            "whatever its own entries"
        );
        assert!(!draft.is_stored_in(&frame, "[1]") && !draft.is_stored_in(&frame, ""));
        let bare = draft_with(resource, &object, "");
        assert!(bare.is_stored_in(&bare.seal(EventKind::Created, 1).value, ""));
        object["metadata"]["name"] = "b".into();
        assert!(!draft_with(resource, &object, entries).is_stored_in(&frame, entries));
        object["metadata"]["name"] = "a".into();
        object["data"]["k"] = "w".into();
        assert!(!draft_with(resource, &object, entries).is_stored_in(&frame, entries));
    }

    #[test]
    fn an_event_is_rewritten_to_another_type_and_revision() {
        let frame = sealed(EventKind::Updated, 7);
        assert_eq!(event(&frame, EventKind::Updated).as_ptr(), frame.as_ptr());
        let other: Value = serde_json::from_slice(&event(&frame, EventKind::Created)).unwrap();
        assert_eq!(other["type"], "ADDED");
        let gone: Value = serde_json::from_slice(&event_at(&frame, EventKind::Deleted, 12345)).unwrap();
        assert_eq!(
            (gone["type"].as_str(), gone["object"]["metadata"]["resourceVersion"].as_str()),
            (Some("DELETED"), Some("12345"))
        );
        assert_eq!(gone["object"]["data"]["k"], "v");
    }
}
