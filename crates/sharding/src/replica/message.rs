//! What a replica is told and what it wants done. The binding turns one into the other with a Kubernetes client.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::ReplicaId;
use crate::lease::{LeaseObject, LeaseRecord};
use crate::map::{Observed, ShardMap};
use crate::plan::{Reason, ShardMapSpec};
use crate::settings::Settings;
use crate::slots::{Epoch, Slot, SlotRange};
use crate::time::Moment;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Applied {
        /// Of the object.
        uid: u64,
        /// After the write.
        resource_version: u64,
    },
    /// Certainly not done: the object is another one by now (409).
    Conflict,
    /// Certainly not done: the object is gone (404).
    NotFound,
    /// Certainly not done: try again later (429).
    Throttled {
        /// When.
        after: Duration,
    },
    /// Nobody knows: it may be done, or be done later.
    Unknown,
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// A Lease of the group was seen: by watch, list or read.
    Lease(Arc<LeaseObject>),
    /// A Lease is gone since that version.
    LeaseGone {
        /// Whose.
        replica: ReplicaId,
        /// Of the deletion or of the list without it.
        resource_version: u64,
    },
    /// The record was seen.
    Map {
        /// Of the object.
        resource_version: u64,
        /// What it says.
        observed: Observed,
    },
    /// There is no record since that version.
    MapGone {
        /// Of the deletion or of the list without it.
        resource_version: u64,
    },
    /// What people ask for.
    Spec(Arc<ShardMapSpec>),
    /// Every Lease and the record were read consistently and told by the events before this one.
    Listed {
        /// When the read was sent.
        began: Moment,
    },
    /// A write of the own Lease has ended.
    LeaseWritten {
        /// Which: `renewals` of the record.
        renewal: u64,
        /// How.
        outcome: Outcome,
    },
    /// A write of the record has ended.
    MapWritten(Outcome),
    /// A revocation has ended.
    RevokeWritten {
        /// Whose Lease.
        replica: ReplicaId,
        /// How.
        outcome: Outcome,
    },
    /// Watches and caches for these slots are ready.
    Warmed {
        /// Which.
        slots: SlotRange,
        /// In which epoch it was asked for.
        epoch: Epoch,
    },
    /// Nothing is in flight on these slots and nothing new is taken.
    Drained {
        /// Which.
        slots: SlotRange,
        /// In which epoch it was asked for.
        epoch: Epoch,
    },
    /// A consistent list of everything the reconciler reads is in the cache, and the keys are in the queue.
    Fresh {
        /// Which.
        slots: SlotRange,
        /// In which epoch it was asked for.
        epoch: Epoch,
    },
    /// Time has passed.
    Tick,
    /// Settings were reloaded.
    Settings(Arc<Settings>),
    /// The process wants to end.
    Leave {
        /// Until then slots are handed over one by one; afterwards everything is let go at once.
        until: Moment,
    },
    /// The own health check.
    Health(bool),
    /// What the busiest slots cost.
    Loads(Vec<(Slot, u32)>),
}

/// What a replica wants done.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read all Leases and the record consistently.
    List,
    /// Create the own Lease; never replaces one.
    CreateLease(LeaseRecord),
    /// Replace the own Lease in exactly this version.
    RenewLease {
        /// Of the Lease.
        uid: u64,
        /// To be replaced.
        resource_version: u64,
        /// The new content.
        record: LeaseRecord,
    },
    /// End a Lease in exactly this version.
    RevokeLease {
        /// Of the Lease.
        uid: u64,
        /// To be replaced.
        resource_version: u64,
        /// The tombstone.
        record: LeaseRecord,
    },
    /// Put a tombstone where a Lease was deleted; never replaces one.
    BuryLease(LeaseRecord),
    /// Clear a tombstone away.
    DeleteLease {
        /// Whose.
        replica: ReplicaId,
        /// Of the Lease.
        uid: u64,
    },
    /// Read a Lease consistently.
    ReadLease(ReplicaId),
    /// Read the record consistently.
    ReadMap,
    /// Create an empty record; never replaces one. It is filled by [`Action::WriteMap`]: a create that reaches the server very late
    /// can then do no harm.
    CreateMap,
    /// Replace the record in exactly this version.
    WriteMap {
        /// To be replaced.
        resource_version: u64,
        /// The new content.
        map: Arc<ShardMap>,
    },
    /// Open watches for these slots, then tell [`Event::Warmed`].
    Warm {
        /// Which.
        slots: SlotRange,
        /// To be told back.
        epoch: Epoch,
    },
    /// The slots are not expected any more: close what was opened for them.
    Cool {
        /// Which.
        slots: SlotRange,
    },
    /// Take no new keys of these slots, await what is in flight, then tell [`Event::Drained`].
    Drain {
        /// Which.
        slots: SlotRange,
        /// To be told back.
        epoch: Epoch,
    },
    /// These slots are lost: stop everything at once.
    Abort {
        /// Which.
        slots: SlotRange,
    },
    /// Read these slots anew and consistently, for every kind the reconciler reads; then tell [`Event::Fresh`].
    Barrier {
        /// Which.
        slots: SlotRange,
        /// To be told back.
        epoch: Epoch,
    },
    /// Work may begin.
    Activate {
        /// Which.
        slots: SlotRange,
        /// The fencing token.
        epoch: Epoch,
    },
    /// The deadline has passed: stop everything that is in flight, within the margin.
    Fence,
    /// The Lease was renewed after all: go on, with all keys queued anew.
    Resume,
    /// Tell the layer above.
    Notify(Notice),
    /// Tell people, as an event on the record.
    Report(Report),
    /// This life is over; begin a new one with a new id.
    Restart(Ending),
    /// Done: the process may end.
    Stopped,
}

/// A change for the layer above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Slots came; before their first work.
    Gained {
        /// Which.
        slots: SlotRange,
        /// The fencing token.
        epoch: Epoch,
    },
    /// Slots went; after their last work.
    Lost {
        /// Which.
        slots: SlotRange,
        /// The fencing token they had.
        epoch: Epoch,
    },
    /// Slots changed hands anywhere.
    Reassigned {
        /// Which.
        slots: SlotRange,
        /// From whom.
        from: Option<ReplicaId>,
        /// To whom.
        to: Option<ReplicaId>,
    },
}

/// Something people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A change of the record is on its way.
    Proposed {
        /// How many slots.
        slots: u32,
        /// Why.
        reason: Reason,
    },
    /// The record cannot be obeyed and is being repaired.
    Repairing(String),
    /// The algorithm is not usable.
    Algorithm(String),
    /// A silent replica was ended.
    Revoked(ReplicaId),
}

/// Why a life is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// Others ended it.
    #[error("the Lease was revoked by {0}")]
    Revoked(ReplicaId),
    /// Somebody deleted or replaced it.
    #[error("the Lease was deleted or replaced by hand")]
    LeaseLost,
    /// The name is taken.
    #[error("a Lease of this name exists: two replicas have one identity")]
    NameTaken,
    /// Nobody knows whether the Lease was created.
    #[error("the Lease could not be created")]
    NotCreated,
    /// The group computes slots differently.
    #[error("refused by the group: {0}; to change it, drain all replicas and run `shoal shards migrate`")]
    Refused(String),
}
