//! Named indexes: from a text that a function makes of an object to the objects.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::encoded::Encoded;
use super::pages::Objects;

/// The texts under which an object is found.
pub type IndexFn = Arc<dyn Fn(&Encoded) -> Vec<String> + Send + Sync>;

/// One index.
pub(crate) struct Index {
    values: IndexFn,
    objects: HashMap<Arc<str>, Objects, RandomState>,
    /// Under which texts each object stands, by its id.
    places: HashMap<u64, Box<[Arc<str>]>>,
}

impl Index {
    pub fn new(values: IndexFn) -> Index {
        Index { values, objects: HashMap::default(), places: HashMap::new() }
    }

    pub fn insert(&mut self, object: &Arc<Encoded>) {
        // The function is the user's. If it panics, this object is not found by it; the cache goes on.
        let values = catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            tracing::error!(key = %object.key(), "an index function panicked");
            Vec::new()
        });
        if values.is_empty() {
            return;
        }
        let places: Vec<Arc<str>> = values
            .iter()
            .map(|value| match self.objects.get_key_value(value.as_str()) {
                Some((known, _)) => known.clone(),
                None => value.as_str().into(),
            })
            .collect();
        for place in &places {
            self.objects.entry(place.clone()).or_default().insert(object.clone());
        }
        self.places.insert(object.id(), places.into());
    }

    pub fn remove(&mut self, object: &Arc<Encoded>) {
        for place in self.places.remove(&object.id()).iter().flatten() {
            let Some(objects) = self.objects.get_mut(place) else {
                continue;
            };
            objects.remove(object.key());
            if objects.is_empty() {
                self.objects.remove(place);
            }
        }
    }

    pub fn get(&self, value: &str) -> Objects {
        self.objects.get(value).cloned().unwrap_or_default()
    }
}

/// An index function: the uids of an object's owners.
pub fn owner_uids(object: &Encoded) -> Vec<String> {
    object.owner_references().iter().map(|owner| owner.uid.to_string()).collect()
}
