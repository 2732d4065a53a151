//! `migrate`: another number of slots, key function or algorithm, when nobody can be at work any more.
//!
//! The rules are the core's. What is done here is what a replica would do: wait for silent Leases in full on the own clock, then
//! end them in exactly the version that was waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_objects::Timestamp;
use shoal_sharding::{
    Guards, Identity, KeyFunction, LeaseRecord, Members, Moment, Registry, ReplicaId, ShardMap, SlotCount,
    Timers, migrate,
};

use super::snapshot::Snapshot;
use super::text::age;

/// What shall be different.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Change {
    /// The new number of slots, a power of two
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    /// The new key function: uid, namespace, namespaced-name, root-owner, or one of yours with --custom
    #[arg(long, value_name = "NAME")]
    pub key_function: Option<String>,
    /// The version of a key function of yours
    #[arg(long, value_name = "N", requires = "key_function")]
    pub key_function_version: Option<u32>,
    /// The new algorithm: sticky, hash, consistent-hash, rendezvous, range, or one of yours with --custom
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<String>,
    /// Accept names that only your controller knows
    #[arg(long)]
    pub custom: bool,
}

/// What the group shall have in common from now on.
pub fn changed(old: &Identity, change: &Change) -> Result<Identity, String> {
    let mut new = old.clone();
    if let Some(slots) = change.slots {
        new.slots = SlotCount::new(slots).map_err(|e| e.to_string())?;
    }
    if let Some(name) = &change.key_function {
        let version = change.key_function_version.unwrap_or(1);
        new.key_function = KeyFunction::named(name, version);
        let own = matches!(new.key_function, KeyFunction::User { .. });
        if own && !change.custom {
            return Err(format!(
                "the key function {name:?} is not known; there are uid, namespace, namespaced-name and root-owner; if it is \
                 one of yours, add --custom"
            ));
        }
    }
    if let Some(name) = &change.algorithm {
        let known = name == "range" || Registry::default().get(name).is_ok();
        if !known && !change.custom {
            return Err(format!(
                "the algorithm {name:?} is not known; there are sticky, hash, consistent-hash, rendezvous and range; if it \
                 is one of yours, add --custom"
            ));
        }
        new.algorithm.clone_from(name);
    }
    match old.difference(&new) {
        Some(_) => Ok(new),
        None => Err(format!(
            "{} is like that already: {} slots by {}, {}; say what to change with --slots, --key-function or --algorithm",
            old.group,
            old.slots.get(),
            old.key_function.id(),
            old.algorithm
        )),
    }
}

/// Somebody who waits for the Leases of a group to end, on a clock of its own.
pub struct Vigil {
    id: ReplicaId,
    members: Members,
    timers: Timers,
    /// The first version of each Lease that was seen.
    first: BTreeMap<ReplicaId, u64>,
}

/// What a vigil finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody can be at work any more.
    Clear,
    /// A replica lives: it has renewed its Lease meanwhile.
    Alive(ReplicaId),
    /// These Leases can be ended: the tombstone, and the version that was waited for if there is one.
    Silent(Vec<(LeaseRecord, Option<u64>)>),
    /// Not yet: the longest wait that is left, and for whom.
    Waiting(Duration, ReplicaId),
}

impl Vigil {
    /// Begins. The id says who ended the Leases.
    pub fn new(id: ReplicaId) -> Vigil {
        Vigil { id, members: Members::default(), timers: Timers::default(), first: BTreeMap::new() }
    }

    /// Looks at the group at a moment of the own clock.
    pub fn look(&mut self, snapshot: &Snapshot, map: &ShardMap, now: Moment) -> Found {
        for id in map.named() {
            self.members.named(id, map.longest_lease, now);
        }
        let known: Vec<ReplicaId> = self.members.iter().map(|(id, _)| id.clone()).collect();
        for id in known {
            if !snapshot.leases.iter().any(|lease| lease.object.record.replica == id) {
                self.members.missed(&id, u64::MAX, now);
            }
        }
        for lease in &snapshot.leases {
            let (id, version) = (&lease.object.record.replica, lease.object.resource_version);
            self.members.saw(&lease.object, map.longest_lease, now);
            let first = *self.first.entry(id.clone()).or_insert(version);
            if version > first && !lease.object.is_tombstone() {
                return Found::Alive(id.clone());
            }
        }
        let mut silent = Vec::new();
        let mut wait: Option<(Duration, ReplicaId)> = None;
        for (id, member) in self.members.iter().filter(|(_, member)| !member.revoked) {
            let left = member.expires(&self.timers, Guards::default()).since(now);
            if !left.is_zero() {
                wait = wait.max(Some((left, id.clone())));
                continue;
            }
            silent.push(match (&member.lease, member.absent) {
                (Some(lease), false) => (lease.record.tombstone(&self.id), Some(lease.resource_version)),
                _ => (LeaseRecord::tombstone_of(id, &self.id, map.longest_lease), None),
            });
        }
        match (silent.is_empty(), wait) {
            (false, _) => Found::Silent(silent),
            (true, Some((left, id))) => Found::Waiting(left, id),
            (true, None) => Found::Clear,
        }
    }

    /// The record with the new settings, by the core's rules.
    pub fn switch(&self, map: &ShardMap, identity: &Arc<Identity>) -> Result<ShardMap, String> {
        migrate(map, identity, &self.members)
    }
}

/// When somebody last wrote a Lease, so last could have worked, by the server's clock.
pub fn last_sign(snapshot: &Snapshot) -> Option<Timestamp> {
    snapshot.leases.iter().filter_map(|lease| lease.renewed.max(lease.written)).max()
}

/// The gap in words.
pub fn gap(from: Option<Timestamp>, switched: Timestamp, until: Option<Timestamp>, now: Timestamp) -> String {
    let between = |a: Timestamp, b: Timestamp| {
        age(Duration::from_micros(b.0.saturating_sub(a.0).try_into().unwrap_or_default()))
    };
    let from = from.unwrap_or(switched);
    match until {
        Some(until) => format!(
            "nobody worked for {}: stopped {from}, switched {} later, every slot has an owner since {until}",
            between(from, until),
            between(from, switched)
        ),
        None => format!(
            "nobody has worked for {} so far: stopped {from}, switched {} later; start the controller with the new settings",
            between(from, now),
            between(from, switched)
        ),
    }
}
