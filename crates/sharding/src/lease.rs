//! The Lease of one replica: membership, acknowledgements, and the tombstone that ends it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::ReplicaId;
use crate::seal::Sealer;
use crate::slots::{Epoch, Slot, SlotRange};

/// What a replica says about itself; an observer may know better ([`crate::Members`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeStatus {
    /// Started, without a record yet.
    #[default]
    Joining,
    /// Takes slots.
    Healthy,
    /// Fails its own health check, or has not been heard of: its slots go elsewhere.
    Unhealthy,
    /// Is shutting down: its slots go elsewhere.
    Leaving,
}

/// The end of a Lease. It stays behind as a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Who ended it: another replica after waiting, or its holder when leaving.
    pub by: ReplicaId,
}

/// Slots at the epoch that an acknowledgement is about.
pub type Acknowledged = (SlotRange, Epoch);

/// The content of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Whose it is.
    pub replica: ReplicaId,
    /// Name without the random part, for people.
    pub name: Arc<str>,
    /// Where its metrics are served, for people.
    pub address: Arc<str>,
    /// Template it was made from: while two revisions live, a rolling update is under way.
    pub revision: Arc<str>,
    /// How long it lasts after a renewal.
    pub duration: Duration,
    /// Counts the writes of its holder.
    pub renewals: u64,
    /// Its holder's own view.
    pub status: NodeStatus,
    /// What its holder computes slots with.
    pub fingerprint: u64,
    /// Its share of the slots, 100 being one.
    pub weight: u32,
    /// The version of the record that it obeys: nothing that an older one gave it is still worked on.
    pub seen: u64,
    /// The highest epoch that it has seen.
    pub epoch: Epoch,
    /// Slots it is ready to take over.
    pub warm: Vec<Acknowledged>,
    /// Slots it will never work on again in that epoch.
    pub released: Vec<Acknowledged>,
    /// Its busiest slots and their cost.
    pub loads: Vec<(Slot, u32)>,
    /// Set when it has ended.
    pub revoked: Option<Revoked>,
}

impl LeaseRecord {
    /// The tombstone of this Lease.
    pub fn tombstone(&self, by: &ReplicaId) -> LeaseRecord {
        LeaseRecord {
            renewals: self.renewals + 1,
            warm: Vec::new(),
            released: Vec::new(),
            loads: Vec::new(),
            revoked: Some(Revoked { by: by.clone() }),
            ..self.clone()
        }
    }

    /// The tombstone of a Lease that does not exist any more.
    pub fn tombstone_of(replica: &ReplicaId, by: &ReplicaId, duration: Duration) -> LeaseRecord {
        LeaseRecord {
            replica: replica.clone(),
            name: "".into(),
            address: "".into(),
            revision: "".into(),
            duration,
            renewals: 0,
            status: NodeStatus::Unhealthy,
            fingerprint: 0,
            weight: 0,
            seen: 0,
            epoch: 0,
            warm: Vec::new(),
            released: Vec::new(),
            loads: Vec::new(),
            revoked: Some(Revoked { by: by.clone() }),
        }
    }

    /// Whether all these slots were released in that epoch.
    pub fn has_released(&self, slots: SlotRange, epoch: Epoch) -> bool {
        covers(&self.released, slots, epoch)
    }

    /// Whether all these slots are warm for that epoch.
    pub fn is_warm(&self, slots: SlotRange, epoch: Epoch) -> bool {
        covers(&self.warm, slots, epoch)
    }

    fn seal(&self) -> u64 {
        let mut seal = Sealer::new("lease")
            .text(self.replica.as_str())
            .text(&self.name)
            .text(&self.address)
            .text(&self.revision)
            .number(self.duration.as_millis() as u64)
            .number(self.renewals)
            .number(self.status as u64)
            .number(self.fingerprint)
            .number(u64::from(self.weight))
            .number(self.seen)
            .number(self.epoch);
        for (range, epoch) in self.warm.iter().chain(&self.released) {
            seal = seal.number(u64::from(range.start) << 32 | u64::from(range.end)).number(*epoch);
        }
        for (slot, cost) in &self.loads {
            seal = seal.number(u64::from(*slot) << 32 | u64::from(*cost));
        }
        seal = seal.number(self.warm.len() as u64);
        self.revoked.as_ref().map_or(seal, |revoked| seal.text(revoked.by.as_str())).finish()
    }
}

fn covers(acknowledged: &[Acknowledged], slots: SlotRange, epoch: Epoch) -> bool {
    let mut next = slots.start;
    for (range, at) in acknowledged {
        if *at == epoch && range.contains(next) {
            next = range.end;
        }
    }
    next >= slots.end
}

/// A Lease as it was read.
#[derive(Clone, Debug)]
pub struct LeaseObject {
    /// `metadata.uid`, as a number that stands for it: another uid is another Lease.
    pub uid: u64,
    /// `metadata.resourceVersion`: a decimal number that grows, as Kubernetes promises.
    pub resource_version: u64,
    /// What it says.
    pub record: LeaseRecord,
    /// False if somebody edited it by hand: then only its existence counts.
    pub genuine: bool,
}

impl LeaseObject {
    /// Whether it has ended, by the rules.
    pub fn is_tombstone(&self) -> bool {
        self.genuine && self.record.revoked.is_some()
    }
}

/// The form of [`LeaseRecord`] in the Lease's annotation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotation {
    replica: String,
    name: String,
    address: String,
    revision: String,
    duration_milliseconds: u64,
    renewals: u64,
    status: NodeStatus,
    fingerprint: String,
    weight: u32,
    seen: u64,
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warm: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    released: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    loads: Vec<(Slot, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_by: Option<String>,
    seal: String,
}

/// The annotation of a Lease that holds its record as JSON. `spec` of the Lease repeats holder and duration for people.
pub const LEASE_ANNOTATION: &str = "sharding.shoal.dev/replica";

/// The text of the annotation.
pub fn encode_lease(record: &LeaseRecord) -> String {
    let list = |list: &[Acknowledged]| list.iter().map(|(range, epoch)| format!("{range}@{epoch}")).collect();
    let annotation = Annotation {
        replica: record.replica.to_string(),
        name: record.name.to_string(),
        address: record.address.to_string(),
        revision: record.revision.to_string(),
        duration_milliseconds: record.duration.as_millis() as u64,
        renewals: record.renewals,
        status: record.status,
        fingerprint: format!("{:016x}", record.fingerprint),
        weight: record.weight,
        seen: record.seen,
        epoch: record.epoch,
        warm: list(&record.warm),
        released: list(&record.released),
        loads: record.loads.clone(),
        revoked_by: record.revoked.as_ref().map(|revoked| revoked.by.to_string()),
        seal: format!("{:016x}", record.seal()),
    };
    serde_json::to_string(&annotation).unwrap_or_default()
}

/// Reads a Lease named `name`. What is edited or unreadable is not genuine; its existence still counts.
pub fn decode_lease(name: &str, annotation: Option<&str>) -> (LeaseRecord, bool) {
    let id = ReplicaId::from(name);
    let read =
        annotation.and_then(|text| serde_json::from_str::<Annotation>(text).ok()).and_then(from_annotation);
    match read {
        Some((record, seal)) => {
            let genuine = record.replica == id && record.seal() == seal;
            (LeaseRecord { replica: id, ..record }, genuine)
        }
        None => {
            let unknown = LeaseRecord::tombstone_of(&id, &id, Duration::ZERO);
            (LeaseRecord { revoked: None, ..unknown }, false)
        }
    }
}

fn from_annotation(read: Annotation) -> Option<(LeaseRecord, u64)> {
    let list = |list: &[String]| -> Option<Vec<Acknowledged>> {
        list.iter()
            .map(|text| {
                let (range, epoch) = text.split_once('@')?;
                Some((range.parse().ok()?, epoch.parse().ok()?))
            })
            .collect()
    };
    let record = LeaseRecord {
        warm: list(&read.warm)?,
        released: list(&read.released)?,
        replica: ReplicaId::new(read.replica),
        name: read.name.into(),
        address: read.address.into(),
        revision: read.revision.into(),
        duration: Duration::from_millis(read.duration_milliseconds),
        renewals: read.renewals,
        status: read.status,
        fingerprint: u64::from_str_radix(&read.fingerprint, 16).ok()?,
        weight: read.weight,
        seen: read.seen,
        epoch: read.epoch,
        loads: read.loads,
        revoked: read.revoked_by.map(|by| Revoked { by: ReplicaId::new(by) }),
    };
    Some((record, u64::from_str_radix(&read.seal, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LeaseRecord {
        LeaseRecord {
            duration: Duration::from_secs(15),
            status: NodeStatus::Healthy,
            warm: vec![(SlotRange { start: 0, end: 4 }, 7), (SlotRange { start: 4, end: 9 }, 7)],
            released: vec![(SlotRange::one(12), 3)],
            loads: vec![(3, 900)],
            revoked: None,
            ..LeaseRecord::tombstone_of(&"web-x1".into(), &"".into(), Duration::ZERO)
        }
    }

    #[test]
    fn a_lease_reads_what_it_wrote() {
        for record in [record(), record().tombstone(&"web-y2".into())] {
            assert_eq!(decode_lease("web-x1", Some(&encode_lease(&record))), (record, true));
        }
    }

    #[test]
    fn a_lease_edited_by_hand_is_not_genuine() {
        let text = encode_lease(&record());
        for (from, to) in [("12@3", "13@3"), ("15000", "1000"), ("Healthy", "Leaving"), ("900", "901")] {
            assert!(text.contains(from), "{text}");
            assert!(!decode_lease("web-x1", Some(&text.replace(from, to))).1, "{from}");
        }
        assert!(!decode_lease("web-other", Some(&text)).1);
        for nonsense in [None, Some(""), Some("{}"), Some("[[[[")] {
            assert!(!decode_lease("web-x1", nonsense).1);
        }
    }

    #[test]
    fn acknowledgements_cover_neighbours_of_one_epoch_only() {
        let record = record();
        assert!(record.is_warm(SlotRange { start: 1, end: 9 }, 7));
        assert!(!record.is_warm(SlotRange { start: 1, end: 10 }, 7));
        assert!(!record.is_warm(SlotRange { start: 1, end: 3 }, 8));
        assert!(record.has_released(SlotRange::one(12), 3));
    }
}
