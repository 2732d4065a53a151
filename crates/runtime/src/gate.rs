//! Between trigger and queue, and again before a worker starts: is this object ours?
//!
//! Without sharding every object is. A sharded controller puts a gate here that knows which objects belong to this
//! replica, and that hands each reconcile the fence which stops its writes when the object goes to another replica.

use std::fmt;
use std::sync::Arc;

use crate::ObjectKey;
use crate::apply::Fence;
use crate::cache::Encoded;

/// What a gate says.
#[derive(Clone, Debug)]
pub enum Admission {
    /// Another replica looks after this object.
    Denied,
    /// It is ours. Writes for it are made only as long as the fence, if there is one, permits them.
    Admitted(Option<Fence>),
}

/// Decides by key and metadata which objects are worked on. Cheap to clone; the default admits all.
///
/// The metadata are those of the object that is to be reconciled, or None where the cache does not hold it.
#[derive(Clone)]
pub struct Gate(Arc<Ask>);

type Ask = dyn Fn(&ObjectKey, Option<&Encoded>) -> Admission + Send + Sync;

impl Gate {
    /// A gate that asks `admit` each time.
    pub fn new(admit: impl Fn(&ObjectKey, Option<&Encoded>) -> Admission + Send + Sync + 'static) -> Gate {
        Gate(Arc::new(admit))
    }

    /// Asks.
    pub fn ask(&self, key: &ObjectKey, object: Option<&Encoded>) -> Admission {
        (self.0)(key, object)
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new(|_, _| Admission::Admitted(None))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
