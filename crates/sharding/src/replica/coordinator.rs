//! What any replica may do for the group: end silent Leases, move slots on, repair the record.
//!
//! The first live replica does it; the others step in one after the other if it does not. That only avoids wasted writes: every
//! step is safe whoever takes it, and however many try at once.

use std::sync::Arc;

use crate::guards::Guard;
use crate::identity::ReplicaId;
use crate::lease::LeaseRecord;
use crate::map::{Defect, Facts, Phase, ShardMap, apply, repair};
use crate::plan::{Plan, Reason, Situation, plan};
use crate::replica::message::{Action, Outcome, Report};
use crate::replica::{Known, Life, Replica};
use crate::time::Moment;

/// What a replica remembers for this.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    /// Something has changed since the last look.
    dirty: bool,
    /// Since when something seems to be left undone.
    waiting_since: Option<Moment>,
    wake_at: Option<Moment>,
    /// A write of the record is under way.
    proposed: Option<Proposed>,
    /// The record must be read before the next write.
    read_until: Option<Moment>,
    next_balance: Moment,
    revoking: Option<Moment>,
    listed: Option<Moment>,
    repair_seen: Moment,
}

/// What a write of the record shall bring about.
#[derive(Debug)]
enum Proposed {
    /// An empty object, to be filled by whoever comes first.
    Empty,
    Record(Arc<ShardMap>),
}

impl Coordinator {
    pub(super) fn look_again(&mut self) {
        self.dirty = true;
    }

    pub(super) fn balance_soon(&mut self, now: Moment) {
        self.next_balance = self.next_balance.min(now);
        self.dirty = true;
    }

    pub(super) fn map_changed(&mut self) {
        self.dirty = true;
        self.waiting_since = None;
        self.wake_at = None;
        self.read_until = None;
    }

    pub(super) fn map_was_read(&mut self) {
        self.read_until = None;
        self.dirty = true;
    }

    pub(super) fn listed(&mut self, began: Moment) {
        self.listed = Some(self.listed.map_or(began, |listed| listed.max(began)));
        self.dirty = true;
    }

    pub(super) fn repair_seen(&mut self, now: Moment) {
        self.repair_seen = now;
    }

    pub(super) fn revoke_again(&self) -> Moment {
        self.revoking.unwrap_or_default()
    }

    pub(super) fn wake_at(&self) -> Moment {
        self.wake_at.unwrap_or(Moment::NEVER)
    }
}

impl Replica {
    fn rank(&self, now: Moment) -> u32 {
        let fingerprint = self.record.fingerprint;
        self.members.rank(&self.id, fingerprint, &self.settings.timers, self.guards, now).min(4)
    }

    /// Ends Leases that have been silent for long enough.
    ///
    /// Whoever could not renew its own Lease knows nothing about the others: the server was away, most likely for all of them. So
    /// they get as long to renew as any replica has; else the first to come back would end everybody else.
    pub(super) fn revoke_silent(&mut self, now: Moment, out: &mut Vec<Action>) {
        if now < self.next_expiry {
            return;
        }
        if self.coordinator.revoking.is_some_and(|until| now < until) {
            self.next_expiry = self.coordinator.revoke_again();
            return;
        }
        self.coordinator.revoking = None;
        let turn = self.settings.timers.retry_period * self.rank(now);
        let chance = match self.resumed {
            resumed if resumed == Moment::default() => resumed,
            resumed => resumed + self.settings.timers.renew_deadline,
        };
        let mut next = Moment::NEVER;
        for (id, member) in self.members.iter().filter(|(id, member)| **id != self.id && !member.revoked) {
            let due = member.expires(&self.settings.timers, self.guards).max(chance) + turn;
            if now < due {
                next = next.min(due);
                continue;
            }
            let longest =
                self.known.as_ref().map_or(self.settings.timers.node_timeout, |k| k.map.longest_lease);
            match (&member.lease, member.absent) {
                (Some(lease), false) => out.push(Action::RevokeLease {
                    uid: lease.uid,
                    resource_version: lease.resource_version,
                    record: lease.record.tombstone(&self.id),
                }),
                _ => out.push(Action::BuryLease(LeaseRecord::tombstone_of(id, &self.id, longest))),
            }
            let again = now + self.settings.timers.retry_period;
            self.coordinator.revoking = Some(again);
            next = next.min(again);
        }
        self.next_expiry = next;
    }

    pub(super) fn revoke_written(
        &mut self,
        id: &ReplicaId,
        outcome: Outcome,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if *id == self.id {
            self.renewing = false;
            return match (self.life, outcome) {
                (Life::Closing, Outcome::Conflict) => out.push(Action::ReadLease(id.clone())),
                // The others find out, now or when the Lease runs out.
                (Life::Closing, _) => self.stop(out),
                _ => {}
            };
        }
        match outcome {
            Outcome::Applied { .. } => {
                self.members.revoked_now(id);
                self.coordinator.balance_soon(now);
                out.push(Action::Report(Report::Revoked(id.clone())));
            }
            Outcome::Conflict | Outcome::NotFound | Outcome::Unknown => {
                out.push(Action::ReadLease(id.clone()));
            }
            Outcome::Throttled { .. } => {}
        }
    }

    /// Deletes tombstones that nothing refers to.
    pub(super) fn clear_away(&self, now: Moment, out: &mut Vec<Action>) {
        let Some(known) = self.known.as_ref().filter(|_| self.rank(now) == 0) else { return };
        let old = self.members.iter().filter(|(id, member)| {
            member.revoked
                && !member.absent
                && now.since(member.changed) > known.map.longest_lease * 2
                && !known.map.names(id)
        });
        out.extend(old.filter_map(|(id, member)| {
            let lease = member.lease.as_ref().filter(|lease| lease.is_tombstone())?;
            Some(Action::DeleteLease { replica: id.clone(), uid: lease.uid })
        }));
    }

    /// Proposes the next record if there is something to do and it is this replica's turn.
    pub(super) fn coordinate(&mut self, now: Moment, out: &mut Vec<Action>) {
        let c = &self.coordinator;
        let woken = c.wake_at.is_some_and(|at| now >= at);
        let reading = c.read_until.is_some_and(|until| now < until);
        if !(c.dirty || woken) || c.proposed.is_some() || c.listed.is_none() || reading {
            return;
        }
        let rank = self.rank(now);
        if rank > 0 {
            let since = *self.coordinator.waiting_since.get_or_insert(now);
            let turn = since + self.settings.timers.retry_period * rank;
            if now < turn {
                self.coordinator.wake_at = Some(turn);
                return;
            }
        }
        self.coordinator.dirty = false;
        self.coordinator.wake_at = None;
        self.coordinator.waiting_since = None;
        if self.damage.is_some() {
            self.propose_repair(out);
        } else if let Some(known) = self.known.take() {
            self.propose_moves(&known, now, out);
            self.known = Some(known);
        }
    }

    fn propose_repair(&mut self, out: &mut Vec<Action>) {
        let Some((defect, resource_version)) = self.damage.clone() else { return };
        if resource_version == 0 {
            self.coordinator.proposed = Some(Proposed::Empty);
            return out.push(Action::CreateMap);
        }
        let floor = if self.guards.on(Guard::RecordFloor) { resource_version } else { 0 };
        let fresh = |floor| {
            let (identity, longest) = (self.settings.identity.clone(), self.settings.timers.node_timeout);
            Arc::new(ShardMap::new(identity, longest, floor))
        };
        let map = match (&self.known, &defect) {
            // A group begins. If others have been at work without a record, it was lost.
            (None, Defect::Empty | Defect::Deleted) if self.members.highest() == (0, 0) => fresh(floor),
            (known, defect) => {
                out.push(Action::Report(Report::Repairing(defect.to_string())));
                let base = known.as_ref().map_or_else(|| fresh(0), |known| known.map.clone());
                Arc::new(repair(&base, floor, &self.members))
            }
        };
        self.coordinator.proposed = Some(Proposed::Record(map.clone()));
        out.push(Action::WriteMap { resource_version, map });
    }

    fn propose_moves(&mut self, known: &Known, now: Moment, out: &mut Vec<Action>) {
        let balance = now >= self.coordinator.next_balance;
        let plan = self.plan(known, balance, now);
        if balance {
            let rebalancing = &self.settings.rebalancing;
            let more = plan.steps.iter().any(|(_, reason)| *reason == Reason::Balance);
            let pause = if more { self.settings.timers.retry_period } else { rebalancing.interval };
            self.coordinator.next_balance = now + pause;
        }
        if let Some(complaint) = &plan.complaint {
            out.push(Action::Report(Report::Algorithm(complaint.to_string())));
        }
        if plan.steps.is_empty() {
            return;
        }
        let Ok(map) = apply(&known.map, &plan.transitions(), &self.facts(known, now)) else { return };
        for (transition, reason) in &plan.steps {
            let slots = transition.slots().len();
            out.push(Action::Report(Report::Proposed { slots, reason: *reason }));
        }
        let map = Arc::new(map);
        self.coordinator.proposed = Some(Proposed::Record(map.clone()));
        out.push(Action::WriteMap { resource_version: known.resource_version, map });
    }

    pub(super) fn plan(&self, known: &Known, balance: bool, now: Moment) -> Plan {
        plan(&Situation {
            map: &known.map,
            facts: self.facts(known, now),
            settings: &self.settings,
            algorithm: &*self.algorithm,
            spec: &self.spec,
            balance,
            phase_since: &|slot| self.stages.phase_since(slot),
        })
    }

    fn facts(&self, known: &Known, now: Moment) -> Facts<'_> {
        let seen = self.coordinator.repair_seen;
        let patient = now >= seen + self.settings.timers.patience(known.map.longest_lease);
        Facts {
            members: &self.members,
            waited_after_repair: patient && self.coordinator.listed.is_some_and(|listed| listed >= seen),
            timers: &self.settings.timers,
            guards: self.guards,
            now,
        }
    }

    pub(super) fn map_written(&mut self, outcome: Outcome, now: Moment, out: &mut Vec<Action>) {
        let Some(proposed) = self.coordinator.proposed.take() else { return };
        match outcome {
            Outcome::Applied { resource_version, .. } => {
                let Proposed::Record(map) = proposed else {
                    return self.damaged(Defect::Empty, resource_version);
                };
                let newer = self.known.as_ref().is_none_or(|known| map.version > known.map.version);
                if newer {
                    self.damage = self.damage.take().filter(|(_, at)| *at > resource_version);
                    self.obey(map, resource_version, now, out);
                }
            }
            Outcome::Throttled { after } => {
                self.coordinator.dirty = true;
                self.coordinator.read_until = Some(now + after);
                self.coordinator.wake_at = Some(now + after);
            }
            Outcome::Conflict | Outcome::NotFound | Outcome::Unknown => {
                let again = now + self.settings.timers.retry_period;
                self.coordinator.dirty = true;
                self.coordinator.read_until = Some(again);
                self.coordinator.wake_at = Some(again);
                out.push(Action::ReadMap);
            }
        }
    }
}

impl ShardMap {
    /// How many slots nobody works on.
    pub fn unowned(&self) -> u32 {
        self.count(&[Phase::Unowned, Phase::Repairing])
    }
}
