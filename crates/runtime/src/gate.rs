//! Between trigger and queue, and again before a worker starts: is this object ours?
//!
//! Without sharding every object is. A sharded controller puts a gate here that knows which objects belong to this
//! replica, and that hands each reconcile the fence which stops its writes when the object goes to another replica.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;

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

/// The part that some work belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The object's slot.
    pub slot: u32,
    /// Grows with every change of the slot's owner: a fencing token for systems outside the cluster.
    pub epoch: u64,
    /// The label by which objects of this slot are found, on objects that the work creates.
    pub label: Arc<str>,
}

/// Work that was let in. While this is held, the work counts as in flight: drop it after the work.
#[derive(Default)]
pub struct Entry {
    /// Stops the writes of this work when it is not ours any more.
    pub fence: Option<Fence>,
    /// What it belongs to.
    pub shard: Option<Shard>,
    /// Cancelled when the work must end now.
    pub lost: Option<CancellationToken>,
    /// Told of the end of the work.
    pub guard: Option<Box<dyn Any + Send + Sync>>,
    /// Counts work that failed.
    pub failures: Option<Counter>,
}

impl Entry {
    /// Waits until the work must end at once.
    pub async fn lost(&self) {
        match &self.lost {
            Some(lost) => lost.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// Decides by key and metadata which objects are worked on. Cheap to clone; the default admits all.
///
/// The metadata are those of the object that is to be reconciled, or None where the cache does not hold it.
#[derive(Clone)]
pub struct Gate {
    ask: Arc<Ask>,
    enter: Option<Arc<Enter>>,
}

type Ask = dyn Fn(&ObjectKey, Option<&Encoded>) -> Admission + Send + Sync;
type Enter = dyn Fn(&ObjectKey, Option<&Encoded>) -> Option<Entry> + Send + Sync;

impl Gate {
    /// A gate that asks `admit` each time.
    pub fn new(admit: impl Fn(&ObjectKey, Option<&Encoded>) -> Admission + Send + Sync + 'static) -> Gate {
        Gate { ask: Arc::new(admit), enter: None }
    }

    /// The same gate; when work is about to begin, `enter` is asked instead and keeps count of it.
    #[must_use]
    pub fn entered_by(
        self,
        enter: impl Fn(&ObjectKey, Option<&Encoded>) -> Option<Entry> + Send + Sync + 'static,
    ) -> Gate {
        Gate { enter: Some(Arc::new(enter)), ..self }
    }

    /// A gate that admits what this one and `inner` admit. Work enters by `inner`.
    #[must_use]
    pub fn before(self, inner: Gate) -> Gate {
        let (first, second) = (self.ask.clone(), inner.ask.clone());
        let gate = Gate::new(move |key, object| match first(key, object) {
            Admission::Denied => Admission::Denied,
            Admission::Admitted(_) => second(key, object),
        });
        gate.entered_by(move |key, object| match (self.ask)(key, object) {
            Admission::Denied => None,
            Admission::Admitted(_) => inner.enter(key, object),
        })
    }

    /// Asks.
    pub fn ask(&self, key: &ObjectKey, object: Option<&Encoded>) -> Admission {
        (self.ask)(key, object)
    }

    /// Asks when the work is about to begin. None if it must not.
    pub fn enter(&self, key: &ObjectKey, object: Option<&Encoded>) -> Option<Entry> {
        match &self.enter {
            Some(enter) => enter(key, object),
            None => match self.ask(key, object) {
                Admission::Denied => None,
                Admission::Admitted(fence) => Some(Entry { fence, ..Entry::default() }),
            },
        }
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
