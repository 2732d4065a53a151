//! What was applied last, so that an apply that would change nothing is not sent.
//!
//! An apply is in effect if this writer has applied exactly this configuration before (so nothing is to be removed)
//! and the live object still has every field of it. When in doubt the request is sent, and the server decides.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Object, Part};

/// More objects than this are not remembered: each costs about 200 bytes.
const CAPACITY: usize = 500_000;

/// Which write of which object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub path: String,
    pub name: Arc<str>,
    pub part: Part,
}

struct Last {
    print: u64,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What was applied last, by place.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<Place, Last>>);

impl Memory {
    /// Whether applying `body` over `live` would change nothing.
    pub fn in_effect<T: Object>(&self, place: &Place, print: u64, live: &T, body: &Value) -> bool {
        let meta = live.meta();
        let memory = self.0.lock();
        let Some(last) = memory.get(place) else { return false };
        if last.print != print || last.uid != meta.uid || meta.uid.is_none() {
            return false;
        }
        if last.resource_version == meta.resource_version {
            return true;
        }
        drop(memory);
        serde_json::to_value(live).is_ok_and(|live| contains(&live, body))
    }

    pub fn remember(&self, place: Place, print: u64, meta: &ObjectMeta) {
        let mut memory = self.0.lock();
        if memory.len() >= CAPACITY {
            memory.clear();
        }
        let last = Last { print, uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        memory.insert(place, last);
    }

    pub fn forget(&self, path: &str, name: &Arc<str>) {
        let mut memory = self.0.lock();
        for part in [Part::Main, Part::Status] {
            memory.remove(&Place { path: path.to_owned(), name: name.clone(), part });
        }
    }
}

/// A hash of a configuration. Objects print their fields in a fixed order, so equal ones are equal here.
pub(super) fn fingerprint(body: &Value) -> u64 {
    struct Sink(DefaultHasher);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    // Writing a value into a hasher cannot fail.
    let _ = serde_json::to_writer(&mut sink, body);
    sink.0.finish()
}

/// Whether `live` has every field of `wanted`.
///
/// Lists must be of one length: without the schema nobody knows whether a longer list is another manager's addition or
/// an edit that the apply would undo.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| contains(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_contains_what_it_adds_to() {
        let live = json!({"spec": {"replicas": 1, "paused": false, "list": [{"name": "a", "port": 1}]}, "status": {}});
        assert!(contains(&live, &json!({"spec": {"replicas": 1, "list": [{"name": "a"}]}})));
        assert!(contains(&live, &json!({})));
        for wanted in [
            json!({"spec": {"replicas": 2}}),
            json!({"spec": {"list": []}}),
            json!({"spec": {"list": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"missing": null}}),
        ] {
            assert!(!contains(&live, &wanted), "{wanted}");
        }
    }

    #[test]
    fn a_fingerprint_tells_configurations_apart() {
        let print = fingerprint(&json!({"a": 1}));
        assert_eq!(print, fingerprint(&json!({"a": 1})));
        assert_ne!(print, fingerprint(&json!({"a": 2})));
        assert_ne!(print, fingerprint(&json!({"b": 1})));
    }
}
