//! The few values of an object that selectors look at, in one small buffer beside the encoded object, so that
//! lists and watches never parse bodies.
//!
//! Layout: uid, number of labels, label keys and values, then one value per selectable field of the kind.
//! Every text is preceded by its length (u16, little endian); longer texts are cut, which no valid label, uid or
//! selectable field reaches.

use bytes::Bytes;
use serde_json::Value;

use crate::kinds::fields;
use crate::registry::Resource;

/// A view into an encoded index.
#[derive(Clone, Copy)]
pub struct Index<'a>(&'a [u8]);

/// Builds the index of an object.
pub fn encode(resource: &Resource, object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(96);
    let metadata = object.get("metadata");
    text(&mut out, metadata.and_then(|m| m.get("uid")).and_then(Value::as_str).unwrap_or_default());
    let labels = metadata.and_then(|m| m.get("labels")).and_then(Value::as_object);
    let count = labels.map_or(0, |l| l.len().min(usize::from(u16::MAX)));
    out.extend_from_slice(&(count as u16).to_le_bytes());
    for (key, value) in labels.into_iter().flatten().take(count) {
        text(&mut out, key);
        text(&mut out, value.as_str().unwrap_or_default());
    }
    for field in resource.fields {
        text(&mut out, &fields::value(object, field));
    }
    out.shrink_to_fit();
    out.into()
}

fn text(out: &mut Vec<u8>, value: &str) {
    let bytes = &value.as_bytes()[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> Index<'a> {
    /// Looks at the index beside a stored object.
    pub fn new(bytes: &'a [u8]) -> Index<'a> {
        Index(bytes)
    }

    /// The object's uid.
    pub fn uid(self) -> &'a str {
        take(self.0).0
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        let (_, rest) = take(self.0);
        let (count, mut rest) = number(rest);
        for _ in 0..count {
            let (k, after) = take(rest);
            let (v, after) = take(after);
            if k == key {
                return Some(v);
            }
            rest = after;
        }
        None
    }

    /// The value of the kind's nth selectable field.
    pub fn field(self, position: usize) -> &'a str {
        let (_, rest) = take(self.0);
        let (count, mut rest) = number(rest);
        for _ in 0..usize::from(count) * 2 + position {
            rest = take(rest).1;
        }
        take(rest).0
    }
}

fn number(bytes: &[u8]) -> (u16, &[u8]) {
    match bytes {
        [a, b, rest @ ..] => (u16::from_le_bytes([*a, *b]), rest),
        _ => (0, &[]),
    }
}

fn take(bytes: &[u8]) -> (&str, &[u8]) {
    let (length, rest) = number(bytes);
    let (value, rest) = rest.split_at_checked(usize::from(length)).unwrap_or((&[], &[]));
    (std::str::from_utf8(value).unwrap_or_default(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    #[test]
    fn the_index_answers_for_uid_labels_and_fields() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"uid": "u-1", "labels": {"app": "web", "tier": ""}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let bytes = encode(pods, &pod);
        let index = Index::new(&bytes);
        assert_eq!(index.uid(), "u-1");
        assert_eq!(
            (index.label("app"), index.label("tier"), index.label("x")),
            (Some("web"), Some(""), None)
        );
        let at = |name: &str| index.field(pods.fields.iter().position(|f| *f == name).unwrap());
        assert_eq!((at("spec.nodeName"), at("status.phase")), ("n1", "Running"));
    }

    #[test]
    fn a_damaged_index_gives_empty_answers() {
        for bytes in [&[][..], &[1], &[255, 255, 0], &[0, 0, 9, 0, 1, 0]] {
            let index = Index::new(bytes);
            assert_eq!((index.uid(), index.label("a"), index.field(3)), ("", None, ""));
        }
    }
}
