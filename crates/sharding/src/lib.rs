//! The core of sharding: who works on which objects, without ever two at once, and without any IO.
//!
//! ```text
//! object ─ key ─▶ slot            a pure function of fields that never change        key, slots
//! slot ─ record ─▶ owner, epoch   one object, changed by compare-and-swap only       map
//! replica ─ Lease ─▶ deadline     work stops before anybody else may start           lease, members, replica
//! members ─ algorithm ─▶ moves    sticky, paced, explained                           algorithm, plan
//! ```
//!
//! [`Replica`] is the whole protocol as a state machine: [`Event`]s in, [`Action`]s out, the own clock as an argument.
//! A binding carries the actions out with a Kubernetes client; the simulator carries them out on a model of one, with every fault it can think of.
//! `docs/sharding.md` explains the protocol and what it assumes.

pub mod algorithm;
mod guards;
mod identity;
mod key;
mod lease;
mod map;
mod members;
mod plan;
mod replica;
mod seal;
mod settings;
#[cfg(any(test, feature = "simulator"))]
pub mod simulator;
mod slots;
mod time;

pub use algorithm::{Algorithm, BadAlgorithm, Registry};
pub use guards::{Guard, Guards};
pub use identity::{Identity, ReplicaId};
pub use key::{KeyFunction, MAX_SELECTOR_RANGES, ObjectKey, SelectorField, fnv1a64};
pub use lease::{
    Acknowledged, LEASE_ANNOTATION, LeaseObject, LeaseRecord, NodeStatus, Revoked, decode_lease, encode_lease,
};
pub use map::{
    Assignment, Defect, Facts, MAX_RECORD_BYTES, Observed, Phase, Refusal, Run, ShardMap, ShardMapStatus,
    Transition, apply, encode_map, migrate, read_map, repair,
};
pub use members::{Fate, Member, Members, NodeInfo};
pub use plan::{Pin, Plan, Reason, ShardMapSpec, Situation, plan};
pub use replica::{Action, Ending, Event, Notice, Outcome, Replica, Report};
pub use settings::{BadSetting, Rebalancing, Settings, Timers};
pub use slots::{BadSlotCount, Epoch, Slot, SlotCount, SlotRange, at_most, ranges_of};
pub use time::Moment;
