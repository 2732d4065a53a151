//! A group on paper: the planner and the rules of the record, with replicas that acknowledge at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use shoal_sharding::algorithm::Sticky;
use shoal_sharding::{
    Facts, Guards, Identity, KeyFunction, LeaseObject, LeaseRecord, Members, Moment, NodeStatus, Phase,
    Rebalancing, ReplicaId, Settings, ShardMap, ShardMapSpec, Situation, SlotCount, Timers, apply, plan,
};

/// Replicas, their record, and how often each slot has moved.
pub struct Group {
    pub map: ShardMap,
    settings: Settings,
    leases: BTreeMap<ReplicaId, LeaseRecord>,
    members: Members,
    version: u64,
    now: Moment,
    /// How often each slot got another owner.
    pub moves: Vec<u32>,
    /// When what the record says about a slot last changed.
    since: Vec<Moment>,
}

/// Rounds after which a group that does not come to rest is given up.
const ROUNDS: u32 = 10_000;

impl Group {
    /// A group without replicas.
    pub fn new(slots: u32) -> Result<Group> {
        let identity = Arc::new(Identity {
            group: "bench".to_owned(),
            controller: "bench".to_owned(),
            slots: SlotCount::new(slots)?,
            key_function: KeyFunction::Uid,
            algorithm: "sticky".to_owned(),
        });
        let settings = Settings {
            identity: identity.clone(),
            name: "bench".into(),
            address: "".into(),
            revision: "".into(),
            weight: 100,
            timers: Timers::default(),
            rebalancing: Rebalancing { threshold: 0.0, ..Rebalancing::default() },
        };
        Ok(Group {
            map: ShardMap::new(identity, Duration::from_secs(60), 0),
            settings,
            leases: BTreeMap::new(),
            members: Members::default(),
            version: 0,
            now: Moment::from_micros(1),
            moves: vec![0; slots as usize],
            since: vec![Moment::default(); slots as usize],
        })
    }

    /// A replica joins.
    pub fn join(&mut self, name: &str, revision: &str) {
        let id = ReplicaId::from(name);
        let record = LeaseRecord {
            name: name.into(),
            revision: revision.into(),
            status: NodeStatus::Healthy,
            fingerprint: self.map.fingerprint(),
            weight: 100,
            revoked: None,
            ..LeaseRecord::tombstone_of(&id, &id, self.settings.timers.lease_duration)
        };
        self.tell(record);
    }

    /// A replica shuts down: it hands everything over, then ends its Lease.
    pub fn leave(&mut self, name: &str) -> Result<()> {
        let id = ReplicaId::from(name);
        let record = self.leases.get(&id).ok_or_else(|| anyhow!("{name} is not there"))?;
        self.tell(LeaseRecord { status: NodeStatus::Leaving, ..record.clone() });
        self.settle()?;
        self.crash(name);
        Ok(())
    }

    /// A replica's Lease is revoked.
    pub fn crash(&mut self, name: &str) {
        let id = ReplicaId::from(name);
        if let Some(record) = self.leases.remove(&id) {
            self.tell(record.tombstone(&id));
            self.leases.remove(&id);
        }
    }

    /// Time passes, and everybody renews.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for record in self.leases.values().cloned().collect::<Vec<_>>() {
            self.tell(record);
        }
    }

    fn tell(&mut self, record: LeaseRecord) {
        self.version += 1;
        let lease =
            LeaseObject { uid: 1, resource_version: self.version, record: record.clone(), genuine: true };
        self.members.saw(&Arc::new(lease), self.map.longest_lease, self.now);
        self.leases.insert(record.replica.clone(), record);
    }

    /// Rounds of the coordinator until nothing is left to do; the replicas acknowledge at once.
    pub fn settle(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            self.acknowledge();
            let facts = Facts {
                members: &self.members,
                waited_after_repair: true,
                timers: &self.settings.timers,
                guards: Guards::default(),
                now: self.now,
            };
            let situation = Situation {
                map: &self.map,
                facts,
                settings: &self.settings,
                algorithm: &Sticky,
                spec: &ShardMapSpec::default(),
                balance: true,
                phase_since: &|slot| self.since[slot as usize],
            };
            let plan = plan(&situation);
            if plan.steps.is_empty() {
                return Ok(());
            }
            let next = apply(&self.map, &plan.transitions(), &facts)?;
            for slot in self.map.identity.slots.all().slots() {
                let owner = |map: &ShardMap| map.get(slot).and_then(|assignment| assignment.owner.clone());
                let (before, after) = (owner(&self.map), owner(&next));
                if self.map.get(slot) != next.get(slot) {
                    self.since[slot as usize] = self.now;
                }
                self.moves[slot as usize] +=
                    u32::from(before != after && after.is_some() && before.is_some());
            }
            self.map = next;
        }
        bail!("the group does not come to rest")
    }

    fn acknowledge(&mut self) {
        let mut changed = self.leases.clone();
        for record in changed.values_mut() {
            record.warm.clear();
            record.released.clear();
        }
        for run in self.map.runs() {
            let a = &run.assignment;
            let who = match a.phase {
                Phase::Preparing => a.next.as_ref(),
                Phase::Draining => a.owner.as_ref(),
                _ => None,
            };
            if let Some(record) = who.and_then(|id| changed.get_mut(id)) {
                let list = if a.phase == Phase::Preparing { &mut record.warm } else { &mut record.released };
                list.push((run.slots, a.epoch));
            }
        }
        for (id, record) in changed {
            if self.leases.get(&id) != Some(&record) {
                self.tell(record);
            }
        }
    }

    /// Slots of the replica with the most and of the one with the fewest.
    pub fn spread(&self) -> (u32, u32) {
        let counts = self.map.counts();
        let of = |id: &ReplicaId| counts.get(id).copied().unwrap_or_default();
        let all: Vec<u32> = self.leases.keys().map(of).collect();
        (all.iter().copied().max().unwrap_or_default(), all.iter().copied().min().unwrap_or_default())
    }

    /// The largest number of ranges in the selector that a replica asks the server with, and the largest number of foreign slots that one
    /// lets through.
    pub fn selectors(&self) -> (usize, f64) {
        let (mut ranges, mut foreign) = (0, 0.0_f64);
        let slots = self.map.identity.slots;
        for id in self.leases.keys() {
            let own = self.map.slots_of(id);
            let Some(selector) = KeyFunction::Uid.shard_selector(&own, slots) else { continue };
            let bounds: Vec<f64> = selector.split("0x").skip(1).filter_map(bound).collect();
            let share: f64 = bounds.chunks(2).map(|pair| pair[1] - pair[0]).sum();
            let held: u32 = own.iter().map(|range| range.len()).sum();
            ranges = ranges.max(bounds.len() / 2);
            foreign = foreign.max(share * f64::from(slots.get()) - f64::from(held));
        }
        (ranges, foreign)
    }

    /// Forgets how often slots have moved; returns how many moved and how often the most restless one did.
    pub fn take_moves(&mut self) -> (u32, u32) {
        let moves = std::mem::take(&mut self.moves);
        self.moves = vec![0; moves.len()];
        (moves.iter().map(|count| (*count).min(1)).sum(), moves.into_iter().max().unwrap_or_default())
    }
}

/// A bound of a selector as a share of all hashes.
fn bound(text: &str) -> Option<f64> {
    let digits = text.split('\'').next()?;
    Some(u128::from_str_radix(digits, 16).ok()? as f64 / 2_f64.powi(64))
}
