//! The objects of an informer as a type.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::decoded::Decoded;
use super::encoded::Encoded;
use super::stats::Stats;
use crate::key::ObjectKey;
use crate::watch::Revision;

/// An object that does not have the shape of its type, so that typed readers do not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which object.
    pub key: ObjectKey,
    /// Which version of it.
    pub version: Revision,
    /// What is wrong and where, without the values that stand there.
    pub problem: String,
}

/// Decodes to `K` and remembers.
pub(crate) struct View<K> {
    decoded: Decoded<K>,
    malformed: Mutex<BTreeMap<u64, Malformed>>,
    stats: Arc<Stats>,
}

impl<K: DeserializeOwned + Send + Sync + 'static> View<K> {
    pub fn new(capacity: usize, stats: Arc<Stats>) -> View<K> {
        View { decoded: Decoded::new(capacity), malformed: Mutex::default(), stats }
    }

    /// The object as `K`; `None` if it does not have that shape, which is told once. What is decoded is kept.
    pub fn decode(&self, object: &Arc<Encoded>) -> Option<Arc<K>> {
        if let Some(known) = object.form() {
            return Some(known);
        }
        let decoded = self.decode_once(object)?;
        self.decoded.insert(object, decoded.clone());
        Some(decoded)
    }

    /// The same, without keeping it.
    pub fn decode_once(&self, object: &Encoded) -> Option<Arc<K>> {
        if self.malformed.lock().contains_key(&object.id()) {
            return None;
        }
        Stats::count(&self.stats.decoded);
        match object.decode::<K>() {
            Ok(decoded) => Some(Arc::new(decoded)),
            Err(error) => {
                self.report(object, &error);
                None
            }
        }
    }

    fn report(&self, object: &Encoded, error: &serde_json::Error) {
        let malformed = Malformed {
            key: object.key().clone(),
            version: object.resource_version().clone(),
            problem: describe(error),
        };
        let mut known = self.malformed.lock();
        if known.contains_key(&object.id()) {
            return;
        }
        Stats::count(&self.stats.malformed);
        let kind = std::any::type_name::<K>();
        tracing::warn!(key = %malformed.key, kind, problem = malformed.problem, "an object does not have the shape of its type");
        known.insert(object.id(), malformed);
    }

    pub fn forget(&self, id: u64) {
        self.malformed.lock().remove(&id);
    }

    /// Decoded forms that nobody has read since the last time are let go.
    pub fn sweep(&self) {
        self.decoded.sweep();
    }

    pub fn malformed(&self) -> Vec<Malformed> {
        let mut all: Vec<Malformed> = self.malformed.lock().values().cloned().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    pub fn decoded_len(&self) -> usize {
        self.decoded.len()
    }
}

/// What serde says, unless it quotes a value: that may be a secret.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("missing field") {
        return text;
    }
    format!("a value of another type or form than expected, at column {}", error.column())
}
