//! Applies that change little: the stored text is edited, and nothing becomes a JSON value.
//!
//! That is right for an object that is known to be valid and to give no warning, and for edits that need no look at the
//! rest of it: [`edits`](crate::kinds::edits) says which these are. Nobody else must want to see the object. Everything
//! else goes the long way, which leads to the same bytes.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_objects::managed_fields::{self, KUBECTL, LAST_APPLIED, Reach, Writer};
use shoal_objects::outline::Outline;
use shoal_store::{EventKind, Object, Precondition, WriteError};

use crate::admission;
use crate::encode;
use crate::handlers::create::Written;
use crate::handlers::{Call, ownership};
use crate::kinds::edits;
use crate::registry::{Conversion, Resource};
use crate::status::{Failure, Outcome};

/// Revisions that share a place; the oldest goes.
const WAYS: usize = 4;
const PLACES: usize = 4096;

/// Revisions whose objects were found valid, without any warning, by this process: at most 128 KiB, and none before the
/// first of them.
#[derive(Default)]
pub struct Proven(Mutex<Vec<[u64; WAYS]>>);

impl Proven {
    /// Notes an object that the rules have just accepted.
    pub fn accepted(&self, call: &Call<'_>, object: &Object) {
        if concerns(&call.target.resource) && call.warnings.lock().is_empty() {
            self.insert(object.revision);
        }
    }

    /// Notes an object that is the older one but for what no edit is about.
    pub fn carried(&self, old: u64, new: u64) {
        if self.contains(old) {
            self.insert(new);
        }
    }

    fn contains(&self, revision: u64) -> bool {
        self.0.lock().get(place(revision)).is_some_and(|ways| ways.contains(&revision))
    }

    fn insert(&self, revision: u64) {
        let mut places = self.0.lock();
        if places.is_empty() {
            places.resize(PLACES, Default::default());
        }
        if let Some(ways) = places.get_mut(place(revision)) {
            ways.rotate_right(1);
            ways[0] = revision;
        }
    }
}

fn place(revision: u64) -> usize {
    (revision % PLACES as u64) as usize
}

fn concerns(resource: &Resource) -> bool {
    resource.custom.is_none()
        && matches!(resource.conversion, Conversion::None)
        && edits::has_free_fields(&resource.group, &resource.plural)
}

/// Applies a configuration by editing what is stored, which nobody else wants to see. `None`: not that simple.
pub async fn edited(call: &Call<'_>, stored: &Arc<Object>) -> Option<Outcome<Written>> {
    let resource = &*call.target.resource;
    let server = call.server;
    if !call.target.subresource.is_empty() || !concerns(resource) || !server.proven.contains(stored.revision)
    {
        return None;
    }
    let object = encode::object_slice(&stored.value);
    if object.len() + call.body.len() > edits::MAX_BYTES || admission::has_pod_policy(call).await {
        return None;
    }
    let draft = {
        let (object, config) = (std::str::from_utf8(object).ok()?, std::str::from_utf8(&call.body).ok()?);
        let (object, config) = (Outline::read(object)?, Outline::read(config)?);
        if !is_plain(&object) {
            return None;
        }
        let manager = ownership::manager(call);
        if manager == KUBECTL && has_last_applied(&object) {
            return None;
        }
        let writer = Writer {
            manager: &manager,
            api_version: &resource.api_version,
            subresource: "",
            reach: if resource.traits.status { Reach::Body } else { Reach::Whole },
            now: server.clock.now(),
            schema: ownership::schema(resource),
            convert: &|_, _| None,
        };
        let found =
            managed_fields::edits(&writer, &object, &config, resource.traits.generation, edits::KNOWLEDGE)?;
        if found.is_empty() {
            return Some(Ok(Written::Stored(stored.clone())));
        }
        let (head, tail) = found.apply()?;
        encode::Draft::edited(head, tail, stored.meta.clone())
    };
    let seal = |revision, _| draft.seal(EventKind::Updated, revision);
    let precondition = Precondition::Revision(stored.revision);
    match server.store.put(&resource.table, &stored.key, precondition, seal).await {
        Ok(object) => {
            server.proven.carried(stored.revision, object.revision);
            Some(Ok(Written::Stored(object)))
        }
        Err(WriteError::Unavailable(why)) => Some(Err(Failure::unavailable(&why))),
        // Others were faster.
        Err(_) => None,
    }
}

/// Neither on its way out nor closed to changes.
fn is_plain(object: &Outline<'_>) -> bool {
    let metadata = object.member(object.root(), "metadata");
    metadata.is_some_and(|metadata| object.member(metadata, "deletionTimestamp").is_none())
        && object.member(object.root(), "immutable").is_none()
}

fn has_last_applied(object: &Outline<'_>) -> bool {
    let metadata = object.member(object.root(), "metadata");
    let annotations = metadata.and_then(|metadata| object.member(metadata, "annotations"));
    annotations.is_some_and(|annotations| object.member(annotations, LAST_APPLIED).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revision_of_a_place_is_forgotten() {
        let proven = Proven::default();
        let apart = PLACES as u64;
        assert!(!proven.contains(1));
        for n in 0..5 {
            proven.insert(7 + n * apart);
        }
        let known: Vec<u64> = (0..9).filter(|n| proven.contains(7 + n * apart)).collect();
        assert_eq!(known, [1, 2, 3, 4]);
        proven.carried(7, 9);
        assert!(!proven.contains(9), "what was forgotten proves nothing");
        proven.carried(7 + apart, 9);
        assert!(proven.contains(9));
    }
}
