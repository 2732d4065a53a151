//! A model of the API server: objects with versions, compare-and-swap, and enough history to be stale with.

use std::sync::Arc;

use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::lease::{LeaseObject, LeaseRecord};
use crate::map::{Defect, Observed, ShardMap};
use crate::replica::{Event, Outcome};

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    CreateLease(LeaseRecord),
    UpdateLease { uid: u64, resource_version: u64, record: LeaseRecord },
    DeleteLease { replica: ReplicaId, uid: u64 },
    ReadLease(ReplicaId),
    CreateMap,
    WriteMap { resource_version: u64, map: Arc<ShardMap> },
    ReadMap,
    List,
}

/// What a write changed, to be told to every watch.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Lease(Arc<LeaseObject>),
    LeaseGone(ReplicaId, u64),
    Map(u64, Observed),
    MapGone(u64),
}

impl Change {
    pub(super) fn event(&self) -> Event {
        match self {
            Change::Lease(lease) => Event::Lease(lease.clone()),
            Change::LeaseGone(replica, version) => {
                Event::LeaseGone { replica: replica.clone(), resource_version: *version }
            }
            Change::Map(version, observed) => {
                Event::Map { resource_version: *version, observed: observed.clone() }
            }
            Change::MapGone(version) => Event::MapGone { resource_version: *version },
        }
    }
}

pub(super) struct Server {
    pub(super) revision: u64,
    pub(super) leases: Vec<Arc<LeaseObject>>,
    /// Earlier versions, for stale lists.
    old_leases: Vec<Arc<LeaseObject>>,
    pub(super) deleted: Vec<(ReplicaId, u64)>,
    pub(super) map: Option<(u64, Observed)>,
    pub(super) maps: Vec<(u64, Arc<ShardMap>)>,
    pub(super) map_gone: u64,
    guards: Guards,
}

impl Server {
    pub(super) fn new(guards: Guards) -> Server {
        Server {
            revision: 1,
            leases: Vec::new(),
            old_leases: Vec::new(),
            deleted: Vec::new(),
            map: None,
            maps: Vec::new(),
            map_gone: 1,
            guards,
        }
    }

    pub(super) fn lease(&self, id: &ReplicaId) -> Option<&Arc<LeaseObject>> {
        self.leases.iter().find(|lease| lease.record.replica == *id)
    }

    /// Carries a write out, or not.
    pub(super) fn write(&mut self, request: &Request) -> (Outcome, Option<Change>) {
        match request {
            Request::CreateLease(record) => match self.lease(&record.replica) {
                Some(_) => (Outcome::Conflict, None),
                None => self.put_lease(None, record.clone(), true),
            },
            Request::UpdateLease { uid, resource_version, record } => {
                let Some(at) = self.leases.iter().position(|lease| lease.record.replica == record.replica)
                else {
                    return (Outcome::NotFound, None);
                };
                let found = &self.leases[at];
                let guard = match record.revoked {
                    None => Guard::RenewPrecondition,
                    Some(_) => Guard::RevokePrecondition,
                };
                let same = found.uid == *uid && found.resource_version == *resource_version;
                if !same && self.guards.on(guard) {
                    return (Outcome::Conflict, None);
                }
                self.put_lease(Some(at), record.clone(), true)
            }
            Request::DeleteLease { replica, uid } => {
                match self
                    .leases
                    .iter()
                    .position(|lease| lease.record.replica == *replica && lease.uid == *uid)
                {
                    Some(at) => self.delete_lease(at),
                    None => (Outcome::NotFound, None),
                }
            }
            Request::CreateMap if self.map.is_some() => (Outcome::Conflict, None),
            Request::CreateMap => {
                self.revision += 1;
                self.put_map(Observed::Damaged(Defect::Empty))
            }
            Request::WriteMap { resource_version, map } => {
                let found = self.map.as_ref().map(|(version, _)| *version);
                if found != Some(*resource_version) && self.guards.on(Guard::MapPrecondition) {
                    return (Outcome::Conflict, None);
                }
                self.revision += 1;
                self.maps.push((self.revision, map.clone()));
                self.put_map(Observed::Valid(map.clone()))
            }
            Request::ReadLease(_) | Request::ReadMap | Request::List => (Outcome::Conflict, None),
        }
    }

    pub(super) fn put_lease(
        &mut self,
        at: Option<usize>,
        record: LeaseRecord,
        genuine: bool,
    ) -> (Outcome, Option<Change>) {
        self.revision += 1;
        let uid = at.map_or(self.revision, |at| self.leases[at].uid);
        let lease = Arc::new(LeaseObject { uid, resource_version: self.revision, record, genuine });
        match at {
            Some(at) => {
                if self.old_leases.len() >= 16 {
                    self.old_leases.remove(0);
                }
                self.old_leases.push(std::mem::replace(&mut self.leases[at], lease.clone()));
            }
            None => self.leases.push(lease.clone()),
        }
        (Outcome::Applied { uid, resource_version: self.revision }, Some(Change::Lease(lease)))
    }

    pub(super) fn delete_lease(&mut self, at: usize) -> (Outcome, Option<Change>) {
        self.revision += 1;
        let gone = self.leases.swap_remove(at);
        let id = gone.record.replica.clone();
        self.deleted.push((id.clone(), self.revision));
        let outcome = Outcome::Applied { uid: gone.uid, resource_version: self.revision };
        (outcome, Some(Change::LeaseGone(id, self.revision)))
    }

    /// The revision must have been raised before.
    pub(super) fn put_map(&mut self, observed: Observed) -> (Outcome, Option<Change>) {
        let version = self.revision;
        self.map = Some((version, observed.clone()));
        (Outcome::Applied { uid: 1, resource_version: version }, Some(Change::Map(version, observed)))
    }

    pub(super) fn read_map(&self) -> Event {
        match &self.map {
            Some((version, observed)) => {
                Event::Map { resource_version: *version, observed: observed.clone() }
            }
            None => Event::MapGone { resource_version: self.map_gone },
        }
    }

    pub(super) fn read_lease(&self, id: &ReplicaId) -> Event {
        match self.lease(id) {
            Some(lease) => Event::Lease(lease.clone()),
            None => Event::LeaseGone { replica: id.clone(), resource_version: self.revision },
        }
    }

    /// Everything there is; if stale, as it was at some moment before, for each object on its own.
    pub(super) fn list(&self, stale: Option<u64>) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::with_capacity(self.leases.len() + 2);
        match stale {
            Some(chance) if !self.maps.is_empty() => {
                let back = (chance % 4).min(self.maps.len() as u64 - 1) as usize;
                let (version, map) = &self.maps[self.maps.len() - 1 - back];
                events
                    .push(Event::Map { resource_version: *version, observed: Observed::Valid(map.clone()) });
                events.extend(self.old_leases.iter().map(|lease| Event::Lease(lease.clone())));
            }
            _ => events.push(self.read_map()),
        }
        if stale.is_none() {
            events.extend(self.leases.iter().map(|lease| Event::Lease(lease.clone())));
            let gone = self.deleted.iter().filter(|(id, _)| self.lease(id).is_none());
            events.extend(
                gone.map(|(id, version)| Event::LeaseGone {
                    replica: id.clone(),
                    resource_version: *version,
                }),
            );
        }
        events
    }
}
