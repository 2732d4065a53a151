//! One replica as a state machine: events in, actions out, its own clock as an argument.
//!
//! `handle` is the only way in. [`Replica::may_work`] is the gate before every piece of work; it needs nothing but the own Lease's
//! deadline and the own stage of the slot, so that it holds whatever the rest of the world does.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::lease::{LeaseObject, LeaseRecord, NodeStatus};
use crate::map::{Defect, Observed, ShardMap};
use crate::members::{Fate, Members, NodeInfo};
use crate::plan::{Plan, ShardMapSpec};
use crate::settings::Settings;
use crate::slots::{Epoch, Slot, SlotRange};
use crate::time::Moment;

mod coordinator;
mod message;
mod stages;
mod tenure;

pub use message::{Action, Ending, Event, Notice, Outcome, Report};
use stages::Stages;
use tenure::{Renewal, Tenure};

/// One life of one replica.
pub struct Replica {
    id: ReplicaId,
    settings: Arc<Settings>,
    algorithm: Arc<dyn Algorithm>,
    guards: Guards,
    life: Life,
    tenure: Tenure,
    /// What the next renewal says.
    record: LeaseRecord,
    renewing: bool,
    /// The last renewal failed or was not answered; go on as soon as the Lease's version is known.
    rereading: bool,
    next_renewal: Moment,
    /// Something must be told to the others at once.
    urgent: bool,
    fenced: bool,
    /// When this replica last came back after its time had been over.
    resumed: Moment,
    /// Everything was let go because the time for leaving is over.
    hurried: bool,
    healthy: bool,
    members: Members,
    next_expiry: Moment,
    spec: Arc<ShardMapSpec>,
    known: Option<Known>,
    /// Why the record on the server cannot be obeyed, and its version; 0 if there is none.
    damage: Option<(Defect, u64)>,
    stages: Stages,
    coordinator: coordinator::Coordinator,
    next_list: Moment,
}

/// The record that is obeyed.
struct Known {
    resource_version: u64,
    map: Arc<ShardMap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Reads before it says anything.
    Looking,
    /// Waits for its Lease.
    Creating,
    /// Member.
    Running,
    /// Wants to end, at the latest then.
    Leaving(Moment),
    /// Its own Lease is being ended.
    Closing,
    /// Nothing happens any more.
    Over,
}

impl Replica {
    /// A life begins. The id must be new: name and something random.
    pub fn new(
        id: ReplicaId,
        settings: Arc<Settings>,
        algorithm: Arc<dyn Algorithm>,
        guards: Guards,
    ) -> Replica {
        let record = LeaseRecord {
            name: settings.name.clone(),
            address: settings.address.clone(),
            revision: settings.revision.clone(),
            duration: settings.timers.lease_duration,
            status: NodeStatus::Joining,
            fingerprint: settings.identity.fingerprint(),
            weight: settings.weight,
            revoked: None,
            ..LeaseRecord::tombstone_of(&id, &id, Duration::ZERO)
        };
        Replica {
            stages: Stages::new(id.clone(), settings.identity.slots, guards),
            id,
            settings,
            algorithm,
            guards,
            life: Life::Looking,
            tenure: Tenure::default(),
            record,
            renewing: false,
            rereading: false,
            next_renewal: Moment::NEVER,
            urgent: false,
            fenced: false,
            resumed: Moment::default(),
            hurried: false,
            healthy: true,
            members: Members::default(),
            next_expiry: Moment::NEVER,
            spec: Arc::default(),
            known: None,
            damage: None,
            coordinator: coordinator::Coordinator::default(),
            next_list: Moment::default(),
        }
    }

    /// Whether work on a slot may start or go on now, and the fencing token for it.
    pub fn may_work(&self, slot: Slot, now: Moment) -> Option<Epoch> {
        let in_time = now < self.tenure.deadline() || !self.guards.on(Guard::Deadline);
        if !in_time || matches!(self.life, Life::Looking | Life::Creating | Life::Closing | Life::Over) {
            return None;
        }
        self.stages.active(slot)
    }

    /// Work is allowed before this moment, on this replica's clock.
    pub fn deadline(&self) -> Moment {
        self.tenure.deadline()
    }

    /// Its id.
    pub fn id(&self) -> &ReplicaId {
        &self.id
    }

    /// The record it obeys.
    pub fn map(&self) -> Option<&Arc<ShardMap>> {
        self.known.as_ref().map(|known| &known.map)
    }

    /// All replicas as it sees them.
    pub fn nodes(&self, now: Moment) -> Vec<NodeInfo> {
        self.members.nodes(self.map().map(|map| &**map), now)
    }

    /// What became of a replica.
    pub fn fate(&self, id: &ReplicaId) -> Fate {
        self.members.fate(id)
    }

    /// Whether this life is over.
    pub fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// What would move now and why. Changes nothing.
    pub fn explain(&self, now: Moment) -> Option<Plan> {
        let known = self.known.as_ref()?;
        Some(self.plan(known, true, now))
    }

    /// When it wants to be told [`Event::Tick`] at the latest.
    pub fn wake_at(&self) -> Moment {
        let when = |wanted: bool, at: Moment| if wanted { at } else { Moment::NEVER };
        let member = self.tenure.exists() && self.life != Life::Closing;
        let works = member && !self.fenced;
        let leave = if let Life::Leaving(until) = self.life { until } else { Moment::NEVER };
        let times = [
            self.next_list,
            when(works, self.tenure.deadline()),
            when(works, self.next_expiry),
            when(works, self.coordinator.wake_at()),
            when(!self.renewing, self.next_renewal),
            when(!self.hurried, leave),
        ];
        let earliest = times.into_iter().min().unwrap_or(Moment::NEVER);
        when(self.life != Life::Over, earliest)
    }

    /// Something happened; `now` was read from the clock just before.
    pub fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Action>) {
        if self.life == Life::Over {
            return;
        }
        let deadline = self.tenure.deadline();
        match event {
            Event::Lease(lease) => self.saw_lease(&lease, now, out),
            Event::LeaseGone { replica, resource_version } => {
                if replica == self.id {
                    if self.tenure.exists() && resource_version > self.tenure.resource_version {
                        self.end(Ending::LeaseLost, out);
                    }
                } else if self.members.missed(&replica, resource_version, now) {
                    self.expiry_changed(&replica);
                    self.coordinator.look_again();
                }
            }
            Event::Map { resource_version, observed } => self.saw_map(resource_version, observed, now, out),
            Event::MapGone { resource_version } => self.saw_no_map(resource_version, now),
            Event::Spec(spec) => {
                if self.spec != spec {
                    self.spec = spec;
                    self.coordinator.balance_soon(now);
                }
            }
            Event::Listed { began } => self.listed(began, now, out),
            Event::LeaseWritten { renewal, outcome } => self.lease_written(renewal, outcome, now, out),
            Event::MapWritten(outcome) => self.map_written(outcome, now, out),
            Event::RevokeWritten { replica, outcome } => self.revoke_written(&replica, outcome, now, out),
            Event::Warmed { slots, epoch } => self.urgent |= self.stages.warmed(slots, epoch),
            Event::Drained { slots, epoch } => self.urgent |= self.stages.drained(slots, epoch, out),
            Event::Fresh { slots, epoch } => self.stages.fresh(slots, epoch, out),
            Event::Tick => {}
            Event::Settings(settings) => self.reload(&settings, now),
            Event::Leave { until } => self.leave(until, out),
            Event::Health(healthy) => {
                self.urgent |= self.healthy != healthy;
                self.healthy = healthy;
            }
            Event::Loads(mut loads) => {
                loads.truncate(32);
                self.record.loads = loads;
            }
        }
        if self.tenure.deadline() > deadline && now >= deadline && deadline > Moment::default() {
            self.resumed = now;
        }
        self.go_on(now, out);
    }

    /// What is due whatever the event was.
    fn go_on(&mut self, now: Moment, out: &mut Vec<Action>) {
        if self.life == Life::Over {
            return;
        }
        if now >= self.next_list {
            let timers = &self.settings.timers;
            let looking = self.life == Life::Looking;
            self.next_list = now + if looking { timers.retry_period } else { timers.sync_interval };
            out.push(Action::List);
        }
        if !self.tenure.exists() {
            return;
        }
        let in_time = now < self.tenure.deadline();
        if self.fenced == in_time {
            self.fenced = !in_time;
            out.push(if in_time { Action::Resume } else { Action::Fence });
        }
        if let Life::Leaving(until) = self.life
            && self.may_close(until, now, out)
        {
            self.close(out);
        }
        if self.life == Life::Closing {
            if now >= self.next_renewal {
                self.next_renewal = now + self.settings.timers.retry_period;
                self.close_again(out);
            }
            return;
        }
        if !self.renewing && (self.urgent || now >= self.next_renewal) {
            self.renew(now, out);
        }
        if in_time {
            self.revoke_silent(now, out);
            self.coordinate(now, out);
        }
    }

    fn create(&mut self, now: Moment, out: &mut Vec<Action>) {
        self.life = Life::Creating;
        let renewal = self.next_write(now, 0);
        self.record.renewals = renewal.number;
        self.tenure.send(renewal, self.guards, self.settings.timers.lease_duration);
        out.push(Action::CreateLease(self.record.clone()));
    }

    fn renew(&mut self, now: Moment, out: &mut Vec<Action>) {
        self.renewing = true;
        self.rereading = false;
        self.urgent = false;
        self.next_renewal = now + self.settings.timers.retry_period;
        self.coordinator.look_again();
        self.record.status = match (self.life, &self.known) {
            (Life::Leaving(_), _) => NodeStatus::Leaving,
            (_, None) => NodeStatus::Joining,
            _ if self.healthy => NodeStatus::Healthy,
            _ => NodeStatus::Unhealthy,
        };
        if let Some(known) = &self.known {
            self.stages.acknowledge(&mut self.record, &known.map);
        }
        let renewal = self.next_write(now, self.tenure.resource_version);
        self.record.renewals = renewal.number;
        self.record.duration = renewal.duration;
        self.tenure.send(renewal, self.guards, self.settings.timers.lease_duration);
        out.push(Action::RenewLease {
            uid: self.tenure.uid,
            resource_version: self.tenure.resource_version,
            record: self.record.clone(),
        });
    }

    fn next_write(&self, now: Moment, base: u64) -> Renewal {
        let timers = &self.settings.timers;
        let duration = timers.lease_duration.min(self.longest_lease());
        let margin = timers.margin().min(duration);
        Renewal { number: self.record.renewals + 1, sent: now, duration, margin, base }
    }

    /// How long any Lease of the group may last.
    fn longest_lease(&self) -> Duration {
        self.known.as_ref().map_or(self.settings.timers.node_timeout, |known| known.map.longest_lease)
    }

    fn lease_written(&mut self, renewal: u64, outcome: Outcome, now: Moment, out: &mut Vec<Action>) {
        let configured = self.settings.timers.lease_duration;
        let created = self.life != Life::Creating;
        self.renewing = false;
        match outcome {
            Outcome::Applied { uid, resource_version } => {
                self.tenure.applied(renewal, uid, resource_version, self.guards, now, configured);
                if !created {
                    self.life = Life::Running;
                    self.next_renewal = now + self.settings.timers.retry_period;
                    self.urgent = self.known.is_some();
                }
                let lease = LeaseObject { uid, resource_version, record: self.record.clone(), genuine: true };
                self.members.saw(&Arc::new(lease), self.longest_lease(), now);
                self.coordinator.look_again();
                self.close_again(out);
                return;
            }
            Outcome::Unknown if !created => self.end(Ending::NotCreated, out),
            Outcome::Conflict if !created => self.end(Ending::NameTaken, out),
            Outcome::NotFound if created => self.end(Ending::LeaseLost, out),
            Outcome::Conflict => {
                self.tenure.failed(renewal, self.guards, configured);
                // The read tells the version to go on from; until then another try would fail as well.
                self.next_renewal = now + self.settings.timers.retry_period / 4;
                self.rereading = true;
                out.push(Action::ReadLease(self.id.clone()));
            }
            Outcome::Throttled { after } => {
                self.tenure.failed(renewal, self.guards, configured);
                self.next_renewal = now + after.min(self.settings.timers.retry_period);
                if !created {
                    self.end(Ending::NotCreated, out);
                }
            }
            Outcome::NotFound => self.end(Ending::NotCreated, out),
            Outcome::Unknown => {
                self.next_renewal = now + self.settings.timers.retry_period / 8;
                self.rereading = true;
                out.push(Action::ReadLease(self.id.clone()));
            }
        }
        self.close_again(out);
    }

    fn saw_lease(&mut self, lease: &Arc<LeaseObject>, now: Moment, out: &mut Vec<Action>) {
        let id = &lease.record.replica;
        if *id == self.id {
            self.saw_own_lease(lease, now, out);
            return;
        }
        let before = self.members.get(id).and_then(|member| member.lease.clone());
        if !self.members.saw(lease, self.longest_lease(), now) {
            return;
        }
        self.expiry_changed(id);
        let (new, ended) = (&lease.record, self.members.is_revoked(id));
        let old =
            before.as_ref().filter(|before| before.genuine == lease.genuine).map(|before| &before.record);
        let takes_alike = old.is_some_and(|old| {
            (old.status, old.weight, old.fingerprint) == (new.status, new.weight, new.fingerprint)
        });
        let says_alike = old
            .is_some_and(|old| old.seen == new.seen && old.warm == new.warm && old.released == new.released);
        if ended || !takes_alike {
            self.coordinator.balance_soon(now);
        } else if !says_alike {
            self.coordinator.look_again();
        }
    }

    fn saw_own_lease(&mut self, lease: &LeaseObject, now: Moment, out: &mut Vec<Action>) {
        if !self.tenure.exists() {
            return;
        }
        let newer = lease.resource_version > self.tenure.resource_version;
        if newer && lease.uid != self.tenure.uid {
            return self.end(Ending::LeaseLost, out);
        }
        if newer && lease.is_tombstone() {
            let by =
                lease.record.revoked.as_ref().map_or_else(|| self.id.clone(), |revoked| revoked.by.clone());
            return match self.life {
                Life::Closing => self.stop(out),
                _ => self.end(Ending::Revoked(by), out),
            };
        }
        if newer {
            let configured = self.settings.timers.lease_duration;
            let number = lease.record.renewals;
            // What was written by hand may stand where a tombstone was: only a new life is safe.
            if !lease.genuine || !self.tenure.seen(number, lease.resource_version, self.guards, configured) {
                return self.end(Ending::LeaseLost, out);
            }
            if std::mem::take(&mut self.rereading) && !self.renewing {
                self.next_renewal = now;
            }
        }
        self.close_again(out);
    }

    fn expiry_changed(&mut self, id: &ReplicaId) {
        if let Some(member) = self.members.get(id) {
            self.next_expiry = self.next_expiry.min(member.expires(&self.settings.timers, self.guards));
        }
    }

    fn saw_map(&mut self, resource_version: u64, observed: Observed, now: Moment, out: &mut Vec<Action>) {
        let map = match observed {
            Observed::Valid(map) => map,
            Observed::Damaged(defect) => match defect {
                Defect::Edited { content, .. } if !self.guards.on(Guard::Seal) => Arc::new(*content),
                defect => return self.damaged(defect, resource_version),
            },
        };
        if let Some(known) = &mut self.known {
            let newer = resource_version > known.resource_version;
            let obeyed = !self.guards.on(Guard::NeverBack) || map.version > known.map.version;
            if newer && map.version <= known.map.version && self.guards.on(Guard::Seal) {
                if let Some(defect) = known.map.successor_defect(&map) {
                    return self.damaged(defect, resource_version);
                }
                // Only what people ask for has changed.
                known.resource_version = resource_version;
                self.damage = self.damage.take().filter(|(_, at)| *at > resource_version);
                self.coordinator.map_was_read();
                return;
            }
            if resource_version == known.resource_version {
                self.coordinator.map_was_read();
            }
            if !obeyed || (Arc::ptr_eq(&known.map, &map) && !newer) {
                return;
            }
        }
        if let Some(difference) = self.settings.identity.difference(&map.identity)
            && self.guards.on(Guard::Fingerprint)
        {
            return self.end(Ending::Refused(difference), out);
        }
        self.damage = self.damage.take().filter(|(_, at)| *at > resource_version);
        self.obey(map, resource_version, now, out);
    }

    /// From now on this record says what is whose.
    fn obey(&mut self, map: Arc<ShardMap>, resource_version: u64, now: Moment, out: &mut Vec<Action>) {
        for id in map.named() {
            self.members.named(id, map.longest_lease, now);
        }
        if self.known.as_ref().is_none_or(|known| known.map.repaired != map.repaired) {
            self.coordinator.repair_seen(now);
        }
        self.urgent |= self.known.is_none();
        let before = self.known.as_ref().map(|known| &*known.map);
        self.urgent |= self.stages.obey(before, &map, now, out);
        self.record.epoch = self.record.epoch.max(map.highest_epoch());
        self.known = Some(Known { resource_version, map });
        self.coordinator.map_changed();
        self.expiries_changed();
    }

    /// Members were added whose time is not in `next_expiry` yet.
    fn expiries_changed(&mut self) {
        let times = self.members.iter().filter(|(id, _)| **id != self.id);
        let earliest = times.map(|(_, member)| member.expires(&self.settings.timers, self.guards)).min();
        self.next_expiry = earliest.unwrap_or(Moment::NEVER).max(self.coordinator.revoke_again());
    }

    fn damaged(&mut self, defect: Defect, resource_version: u64) {
        if self.known.as_ref().is_none_or(|known| resource_version > known.resource_version) {
            // Who deleted it has not made the empty one.
            let deleted = defect == Defect::Empty && matches!(self.damage, Some((Defect::Deleted, _)));
            self.damage = Some((if deleted { Defect::Deleted } else { defect }, resource_version));
        }
        self.coordinator.map_was_read();
        self.coordinator.look_again();
    }

    fn saw_no_map(&mut self, resource_version: u64, _now: Moment) {
        let newer = self.known.as_ref().is_none_or(|known| resource_version > known.resource_version);
        if newer {
            self.damage = Some((Defect::Deleted, 0));
        }
        self.coordinator.map_was_read();
        self.coordinator.look_again();
    }

    fn listed(&mut self, began: Moment, now: Moment, out: &mut Vec<Action>) {
        self.coordinator.listed(began);
        if self.life == Life::Looking {
            self.create(now, out);
        }
        if let Some(known) = &self.known {
            self.members.forget(&known.map);
            self.clear_away(now, out);
        }
    }

    fn reload(&mut self, settings: &Settings, now: Moment) {
        // What the group must have in common changes only with a new life.
        let identity = self.settings.identity.clone();
        self.settings = Arc::new(Settings { identity, ..settings.clone() });
        self.record.weight = settings.weight;
        self.urgent = self.tenure.exists();
        self.tenure.count(self.guards, self.settings.timers.lease_duration);
        self.coordinator.balance_soon(now);
        self.expiries_changed();
    }

    fn leave(&mut self, until: Moment, out: &mut Vec<Action>) {
        match self.life {
            Life::Running => {
                self.life = Life::Leaving(until);
                self.urgent = true;
            }
            Life::Leaving(before) => self.life = Life::Leaving(before.min(until)),
            Life::Looking | Life::Creating => self.stop(out),
            Life::Closing | Life::Over => {}
        }
    }

    /// Whether nothing is left to do here; past the time, everything is let go.
    fn may_close(&mut self, until: Moment, now: Moment, out: &mut Vec<Action>) -> bool {
        let named = self.known.as_ref().is_some_and(|known| known.map.names(&self.id));
        if now >= until {
            self.hurried = true;
            self.stages.let_go_of_all(out);
        }
        !self.stages.holds_any() && (!named || now >= until)
    }

    /// Ends the own Lease: from here on no work, whether the write succeeds or not.
    fn close(&mut self, out: &mut Vec<Action>) {
        self.life = Life::Closing;
        if !self.renewing {
            self.close_again(out);
        }
    }

    fn close_again(&mut self, out: &mut Vec<Action>) {
        if self.life == Life::Closing && !self.renewing {
            self.renewing = true;
            out.push(Action::RevokeLease {
                uid: self.tenure.uid,
                resource_version: self.tenure.resource_version,
                record: self.record.tombstone(&self.id),
            });
        }
    }

    fn stop(&mut self, out: &mut Vec<Action>) {
        self.life = Life::Over;
        out.push(Action::Stopped);
    }

    /// This life is over: nothing is worked on from here on.
    fn end(&mut self, why: Ending, out: &mut Vec<Action>) {
        self.life = Life::Over;
        out.push(Action::Fence);
        out.push(Action::Restart(why));
    }

    /// Sorted ranges that are worked on, with their epochs.
    pub fn active(&self) -> Vec<(SlotRange, Epoch)> {
        self.stages.active_ranges()
    }

    /// Whether work that was begun on a slot may still be in flight: active or draining.
    pub fn may_be_in_flight(&self, slot: Slot) -> bool {
        self.life != Life::Over && self.life != Life::Closing && self.stages.may_be_in_flight(slot)
    }
}

#[cfg(test)]
mod tests;
