//! Membership as one replica sees it: every Lease of the group, and when it last changed on the observer's own clock.

use std::sync::Arc;
use std::time::Duration;

use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::lease::{LeaseObject, LeaseRecord, NodeStatus};
use crate::map::ShardMap;
use crate::settings::Timers;
use crate::slots::{Epoch, Slot, SlotRange};
use crate::time::Moment;

/// The Leases of a group.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// In the order of their ids; there are few.
    members: Vec<(ReplicaId, Member)>,
}

/// One Lease.
#[derive(Clone, Debug)]
pub struct Member {
    /// As last seen; none if only the record names this replica.
    pub lease: Option<Arc<LeaseObject>>,
    /// It is not there any more, by hand or because a tombstone was cleared away.
    pub absent: bool,
    /// When the observer first saw it.
    pub since: Moment,
    /// When the observer last saw it change.
    pub changed: Moment,
    /// The duration to wait for, without drift.
    pub wait: Duration,
    /// It ended by the rules. Never unlearned.
    pub revoked: bool,
}

/// One replica for people and for the layer above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Name and random part.
    pub id: ReplicaId,
    /// Name without the random part.
    pub name: Arc<str>,
    /// Where its metrics are served.
    pub address: Arc<str>,
    /// As the observer sees it.
    pub status: NodeStatus,
    /// Slots that the record gives it.
    pub shards: Vec<SlotRange>,
    /// When the observer last saw it renew, on the observer's clock.
    pub last_seen: Moment,
}

/// What became of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its Lease has not ended, or nothing is known of it.
    Open,
    /// It ended its Lease itself.
    Left,
    /// Others ended its Lease.
    Lost,
}

impl Member {
    fn new(now: Moment) -> Member {
        Member { lease: None, absent: false, since: now, changed: now, wait: Duration::ZERO, revoked: false }
    }

    /// What it says, if that can be trusted.
    pub fn record(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref().filter(|lease| lease.genuine).map(|lease| &lease.record)
    }

    /// When it may be revoked.
    pub fn expires(&self, timers: &Timers, guards: Guards) -> Moment {
        if self.revoked {
            return Moment::NEVER;
        }
        if self.absent && !guards.on(Guard::DeletedLeaseWaits) {
            return self.changed;
        }
        self.changed + if guards.on(Guard::ClockDrift) { timers.patience(self.wait) } else { self.wait }
    }

    /// Whether it can be given slots now.
    fn takes_slots(&self, fingerprint: u64, timers: &Timers, guards: Guards, now: Moment) -> bool {
        !self.absent
            && !self.revoked
            && now < self.expires(timers, guards)
            && self.record().is_some_and(|record| {
                record.status == NodeStatus::Healthy
                    && (record.fingerprint == fingerprint || !guards.on(Guard::Fingerprint))
                    && record.weight > 0
            })
    }
}

impl Members {
    /// A Lease was seen. True if that is news. A repeated or older one does not count as a sign of life.
    pub fn saw(&mut self, lease: &Arc<LeaseObject>, longest: Duration, now: Moment) -> bool {
        let at = self.place(&lease.record.replica, || Member::new(now));
        let member = &mut self.members[at].1;
        let known = member.lease.as_ref();
        if known.is_some_and(|known| lease.resource_version <= known.resource_version) {
            return false;
        }
        let wait = if lease.genuine { lease.record.duration } else { longest };
        // Under another uid, or after an absence, the holder may still count on what was there before.
        let same = known.is_some_and(|known| known.uid == lease.uid) && !member.absent;
        member.wait = if same { wait } else { wait.max(member.wait) };
        member.changed = now;
        member.absent = false;
        member.revoked |= lease.is_tombstone();
        member.lease = Some(lease.clone());
        true
    }

    /// A Lease is gone since that version.
    pub fn missed(&mut self, id: &ReplicaId, resource_version: u64, now: Moment) -> bool {
        let Some(member) = self.find(id).map(|at| &mut self.members[at].1) else { return false };
        let newer = member.lease.as_ref().is_some_and(|lease| lease.resource_version > resource_version);
        if member.absent || newer || member.lease.is_none() {
            return false;
        }
        member.absent = true;
        member.changed = now;
        true
    }

    /// The record names a replica: if its Lease was never seen it is waited for as long as any Lease may last.
    pub fn named(&mut self, id: &ReplicaId, longest: Duration, now: Moment) {
        self.place(id, || Member { absent: true, wait: longest, ..Member::new(now) });
    }

    /// Its Lease was ended by this replica itself.
    pub fn revoked_now(&mut self, id: &ReplicaId) {
        if let Some(at) = self.find(id) {
            self.members[at].1.revoked = true;
        }
    }

    /// Tombstones that nothing refers to are forgotten once they are gone.
    pub fn forget(&mut self, map: &ShardMap) {
        self.members.retain(|(id, member)| !(member.absent && member.revoked) || map.names(id));
    }

    /// One member.
    pub fn get(&self, id: &ReplicaId) -> Option<&Member> {
        self.find(id).map(|at| &self.members[at].1)
    }

    fn find(&self, id: &ReplicaId) -> Option<usize> {
        self.members.iter().position(|(member, _)| member == id)
    }

    /// Where it is, after putting it there if it is new.
    fn place(&mut self, id: &ReplicaId, new: impl FnOnce() -> Member) -> usize {
        self.find(id).unwrap_or_else(|| {
            let at = self.members.partition_point(|(member, _)| member < id);
            self.members.insert(at, (id.clone(), new()));
            at
        })
    }

    /// All of them, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&ReplicaId, &Member)> {
        self.members.iter().map(|(id, member)| (id, member))
    }

    /// Whether its Lease has ended by the rules.
    pub fn is_revoked(&self, id: &ReplicaId) -> bool {
        self.get(id).is_some_and(|member| member.revoked)
    }

    /// What became of a replica, as far as its Lease tells.
    pub fn fate(&self, id: &ReplicaId) -> Fate {
        let Some(member) = self.get(id).filter(|member| member.revoked) else { return Fate::Open };
        let by = member.record().and_then(|record| record.revoked.as_ref()).map(|revoked| &revoked.by);
        if by == Some(id) { Fate::Left } else { Fate::Lost }
    }

    /// Whether the replica has released all these slots in that epoch.
    pub fn has_released(&self, id: &ReplicaId, slots: SlotRange, epoch: Epoch) -> bool {
        self.record(id).is_some_and(|record| record.has_released(slots, epoch))
    }

    /// Whether it can be given slots now.
    pub fn takes_slots(
        &self,
        id: &ReplicaId,
        fingerprint: u64,
        timers: &Timers,
        guards: Guards,
        now: Moment,
    ) -> bool {
        self.get(id).is_some_and(|member| member.takes_slots(fingerprint, timers, guards, now))
    }

    /// How many live members of the same fingerprint come before this one: the first coordinates, the others wait for it.
    pub fn rank(
        &self,
        id: &ReplicaId,
        fingerprint: u64,
        timers: &Timers,
        guards: Guards,
        now: Moment,
    ) -> u32 {
        let live = |member: &Member| {
            !member.absent
                && !member.revoked
                && now < member.expires(timers, guards)
                && member.record().is_some_and(|record| record.fingerprint == fingerprint)
        };
        let before = self.members.iter().take_while(|(member, _)| member != id && member < id);
        before.filter(|(_, member)| live(member)).count() as u32
    }

    /// Whether every member that could still work obeys this version of the record or a later one.
    pub fn all_obey(&self, version: u64) -> bool {
        self.members.iter().all(|(_, member)| {
            member.revoked || (!member.absent && member.record().is_some_and(|record| record.seen >= version))
        })
    }

    /// The highest version and epoch that any Lease speaks of.
    pub fn highest(&self) -> (u64, Epoch) {
        let records = self.members.iter().filter_map(|(_, member)| member.record());
        records.fold((0, 0), |(seen, epoch), record| (seen.max(record.seen), epoch.max(record.epoch)))
    }

    /// The status of a member as seen from here.
    pub fn status(&self, id: &ReplicaId, now: Moment) -> NodeStatus {
        let Some(member) = self.get(id) else { return NodeStatus::Unhealthy };
        let lost = member.absent || member.revoked || now >= member.changed + member.wait;
        member.record().filter(|_| !lost).map_or(NodeStatus::Unhealthy, |record| record.status)
    }

    /// All replicas for people and for the layer above. Ended ones are left out.
    pub fn nodes(&self, map: Option<&ShardMap>, now: Moment) -> Vec<NodeInfo> {
        let live = self.members.iter().filter(|(_, member)| !member.revoked);
        live.map(|(id, member)| NodeInfo {
            id: id.clone(),
            name: member.record().map(|record| record.name.clone()).unwrap_or_default(),
            address: member.record().map(|record| record.address.clone()).unwrap_or_default(),
            status: self.status(id, now),
            shards: map.map(|map| map.slots_of(id)).unwrap_or_default(),
            last_seen: member.changed,
        })
        .collect()
    }

    /// What each slot costs, as far as the Leases tell.
    pub fn loads(&self) -> impl Iterator<Item = (Slot, u32)> {
        self.members
            .iter()
            .filter_map(|(_, member)| member.record())
            .flat_map(|record| record.loads.iter().copied())
    }

    pub(crate) fn record(&self, id: &ReplicaId) -> Option<&LeaseRecord> {
        self.get(id).and_then(Member::record)
    }
}
