//! The record as a Kubernetes object's `status`: readable, sealed, at most 64 KiB.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{Identity, ReplicaId};
use crate::key::KeyFunction;
use crate::map::{Assignment, Phase, Run, ShardMap};
use crate::seal::Sealer;
use crate::slots::{SlotCount, SlotRange};

/// A record is never larger.
pub const MAX_RECORD_BYTES: usize = 64 * 1024;

/// `status` of a ShardMap object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardMapStatus {
    /// Name of the group.
    pub group: String,
    /// What the group does.
    pub controller: String,
    /// How many slots.
    pub slots: u32,
    /// From object to key.
    pub key_function: String,
    /// Its version.
    pub key_function_version: u32,
    /// From key to number.
    pub hash: String,
    /// From slots to replicas.
    pub algorithm: String,
    /// No Lease of the group lasts longer.
    pub longest_lease_milliseconds: u64,
    /// Rises by one with every change.
    pub version: u64,
    /// Version of the last repair, 0 for none.
    #[serde(default)]
    pub repaired: u64,
    /// How many slots are nobody's.
    pub unowned: u32,
    /// How many slots are on the move.
    pub moving: u32,
    /// Replicas that own or shall own slots; runs name them by position.
    pub replicas: Vec<String>,
    /// `FIRST-LAST owner=N epoch=N [PHASE] [next=N]`
    pub runs: Vec<String>,
    /// Tells whether somebody edited it by hand.
    pub seal: String,
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub enum Observed {
    /// Made by the rules.
    Valid(Arc<ShardMap>),
    /// Not to be obeyed.
    Damaged(Defect),
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It cannot be read.
    #[error("the record cannot be read: {0}")]
    Unreadable(String),
    /// Somebody edited it.
    #[error("the record was edited by hand: {reason}")]
    Edited {
        /// What does not fit.
        reason: String,
        /// What it says; boxed because it is rare.
        content: Box<ShardMap>,
    },
    /// It does not follow from the one before.
    #[error("the record was set back from version {from} to {to}")]
    SetBack {
        /// The version that was there.
        from: u64,
        /// The version that is there.
        to: u64,
    },
    /// The object is there and says nothing.
    #[error("the record is empty")]
    Empty,
    /// It was deleted.
    #[error("the record was deleted")]
    Deleted,
}

/// At most this many bytes of JSON.
pub(super) fn size_estimate(map: &ShardMap) -> usize {
    // A run is quotes, comma, numbers and words; most have no phase and no next.
    const RUN: usize = "\"16383-16383 owner=123 epoch=\",".len();
    const MOVE: usize = " preparing next=123".len();
    let moving = map.runs.iter().filter(|run| run.assignment.next.is_some()).count();
    let fixed = 640 + map.identity.group.len() + map.identity.controller.len();
    let names: usize = if map.runs.len() > 64 {
        let names: std::collections::BTreeSet<&ReplicaId> = map.named().collect();
        names.into_iter().map(|id| id.as_str().len() + 3).sum()
    } else {
        map.named().map(|id| id.as_str().len() + 3).sum()
    };
    // Epochs begin at resourceVersions, which an old cluster has many of.
    let digits = map.highest_epoch().checked_ilog10().map_or(1, |log| log as usize + 1).max(10);
    fixed + names + map.runs.len() * (RUN + digits) + moving * MOVE
}

/// The record as an object's status.
pub fn encode_map(map: &ShardMap) -> ShardMapStatus {
    let mut names: Vec<&ReplicaId> = map.named().collect();
    names.sort_unstable();
    names.dedup();
    let place: BTreeMap<&ReplicaId, usize> = names.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let run = |run: &Run| {
        let a = &run.assignment;
        let mut text = run.slots.to_string();
        if let Some(owner) = &a.owner {
            text += &format!(" owner={}", place[owner]);
        }
        text += &format!(" epoch={}", a.epoch);
        if a.phase != Phase::Owned {
            text += &format!(" {}", a.phase.name());
        }
        if let Some(next) = &a.next {
            text += &format!(" next={}", place[next]);
        }
        text
    };
    let identity = &map.identity;
    let mut status = ShardMapStatus {
        group: identity.group.clone(),
        controller: identity.controller.clone(),
        slots: identity.slots.get(),
        key_function: identity.key_function.id().to_owned(),
        key_function_version: identity.key_function.version(),
        hash: identity.key_function.hash_name().to_owned(),
        algorithm: identity.algorithm.clone(),
        longest_lease_milliseconds: map.longest_lease.as_millis() as u64,
        version: map.version,
        repaired: map.repaired,
        unowned: map.count(&[Phase::Unowned, Phase::Repairing]),
        moving: map.count(&[Phase::Preparing, Phase::Draining]),
        runs: map.runs.iter().map(run).collect(),
        replicas: names.into_iter().map(ReplicaId::to_string).collect(),
        seal: String::new(),
    };
    status.seal = format!("{:016x}", seal(&status));
    status
}

/// Reads the status of a ShardMap object, if it has one.
pub fn read_map(status: Option<&serde_json::Value>) -> Observed {
    // Conditions are no part of the record.
    let says_nothing = |status: &serde_json::Value| match status.as_object() {
        Some(fields) => fields.keys().all(|field| field == "conditions"),
        None => status.is_null(),
    };
    let Some(status) = status.filter(|status| !says_nothing(status)) else {
        return Observed::Damaged(Defect::Empty);
    };
    match ShardMapStatus::deserialize(status) {
        Ok(status) => decode_map(&status),
        Err(error) => Observed::Damaged(Defect::Unreadable(error.to_string())),
    }
}

/// Reads an object's status. What is wrong is found here, once, and never obeyed.
fn decode_map(status: &ShardMapStatus) -> Observed {
    match read(status) {
        Err(reason) => Observed::Damaged(Defect::Unreadable(reason)),
        Ok(map) => match fault(status, &map) {
            Some(reason) => Observed::Damaged(Defect::Edited { reason, content: Box::new(map) }),
            None => Observed::Valid(Arc::new(map)),
        },
    }
}

/// The most telling fault: what is inconsistent in itself, else a seal that does not fit.
fn fault(status: &ShardMapStatus, map: &ShardMap) -> Option<String> {
    let mut next = 0;
    for run in &map.runs {
        if run.slots.start != next {
            let what = if run.slots.start > next { "missing" } else { "there twice" };
            return Some(format!("slot {} is {what}", next.min(run.slots.start)));
        }
        next = run.slots.end;
        let a = &run.assignment;
        let wanted = match a.phase {
            Phase::Unowned | Phase::Repairing => (false, false),
            Phase::Owned => (true, false),
            Phase::Preparing | Phase::Draining => (true, true),
        };
        if (a.owner.is_some(), a.next.is_some()) != wanted {
            return Some(format!("slots {} cannot be {a}", run.slots));
        }
    }
    if next != status.slots {
        return Some(format!("slots {next} to {} are missing", status.slots));
    }
    (status.seal != format!("{:016x}", seal(status))).then(|| "its seal does not fit its content".to_owned())
}

fn read(status: &ShardMapStatus) -> Result<ShardMap, String> {
    let slots = SlotCount::new(status.slots).map_err(|e| e.to_string())?;
    let key_function = KeyFunction::named(&status.key_function, status.key_function_version);
    if key_function.hash_name() != status.hash || key_function.version() != status.key_function_version {
        return Err(format!("{} does not use hash {}", status.key_function, status.hash));
    }
    let identity = Identity {
        group: status.group.clone(),
        controller: status.controller.clone(),
        slots,
        key_function,
        algorithm: status.algorithm.clone(),
    };
    let replicas: Vec<ReplicaId> = status.replicas.iter().map(|id| ReplicaId::from(id.as_str())).collect();
    let runs =
        status.runs.iter().map(|text| read_run(text, &replicas)).collect::<Result<Vec<Run>, String>>()?;
    if runs.iter().any(|run| run.slots.end > slots.get()) {
        return Err(format!("there are only {} slots", slots.get()));
    }
    Ok(ShardMap {
        fingerprint: identity.fingerprint(),
        identity: Arc::new(identity),
        longest_lease: Duration::from_millis(status.longest_lease_milliseconds),
        version: status.version,
        repaired: status.repaired,
        runs,
    })
}

fn read_run(text: &str, replicas: &[ReplicaId]) -> Result<Run, String> {
    let mut words = text.split(' ');
    let slots: SlotRange = words.next().unwrap_or_default().parse()?;
    let mut assignment = Assignment { owner: None, epoch: 0, phase: Phase::Owned, next: None };
    let replica = |number: &str| {
        let known = number.parse::<usize>().ok().and_then(|at| replicas.get(at)).cloned();
        known.ok_or_else(|| format!("slots {slots}: replica {number} is unknown")).map(Some)
    };
    for word in words {
        match word.split_once('=') {
            Some(("owner", number)) => assignment.owner = replica(number)?,
            Some(("next", number)) => assignment.next = replica(number)?,
            Some(("epoch", number)) => {
                assignment.epoch =
                    number.parse().map_err(|_| format!("slots {slots}: {number:?} is no epoch"))?;
            }
            _ => {
                assignment.phase = [Phase::Unowned, Phase::Preparing, Phase::Draining, Phase::Repairing]
                    .into_iter()
                    .find(|phase| phase.name() == word)
                    .ok_or_else(|| format!("slots {slots}: {word:?} is not known"))?;
            }
        }
    }
    Ok(Run { slots, assignment })
}

fn seal(status: &ShardMapStatus) -> u64 {
    let texts = [&status.group, &status.controller, &status.key_function, &status.hash, &status.algorithm];
    let numbers = [
        u64::from(status.slots),
        u64::from(status.key_function_version),
        status.longest_lease_milliseconds,
        status.version,
        status.repaired,
        status.replicas.len() as u64,
    ];
    let seal = texts.into_iter().fold(Sealer::new("map"), |seal, text| seal.text(text));
    let seal = numbers.into_iter().fold(seal, Sealer::number);
    status.replicas.iter().chain(&status.runs).fold(seal, |seal, text| seal.text(text)).finish()
}
