//! The caches that a controller reads.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::apply::Object;
use crate::cache::{Informer, Informers, Lister};

/// Name of the index by which owned objects are found.
pub(super) const BY_OWNER: &str = "shoal.dev/owner";

/// Cached readers of the kinds that a controller has to do with. Cheap to clone.
#[derive(Clone)]
pub struct Listers {
    informers: Informers,
    /// A `Lister<T>` for each `T`.
    known: Arc<RwLock<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Listers {
    pub(super) fn new(informers: Informers) -> Listers {
        Listers { informers, known: Arc::default() }
    }

    /// Reads a kind. One that the controller did not name when it was built begins to be watched now, and is empty at
    /// first.
    pub fn of<T: Object>(&self) -> Lister<T> {
        let known =
            self.known.read().get(&TypeId::of::<T>()).and_then(|lister| lister.downcast_ref().cloned());
        known.unwrap_or_else(|| self.add(&self.informers.of::<T>()))
    }

    pub(super) fn add<T: Object>(&self, informer: &Informer<T>) -> Lister<T> {
        let lister = informer.lister();
        self.known.write().insert(TypeId::of::<T>(), Box::new(lister.clone()));
        lister
    }
}
