//! Every order of events, in a small scope: three replicas, two slots, the real transition function.
//!
//! Time is abstract here: that a revoked replica has stopped before (`Tenure`, and the simulator's business) is the one
//! assumption. What is left is all that views, acknowledgements and compare-and-swap can do, with every view as old as it likes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use shoal_sharding::{
    Epoch, Facts, Guard, Guards, Identity, KeyFunction, LeaseObject, LeaseRecord, Members, Moment,
    NodeStatus, Phase, ReplicaId, ShardMap, SlotCount, SlotRange, Timers, Transition, apply, encode_map,
};

const REPLICAS: usize = 3;
const SLOTS: u32 = 2;

/// What one replica does with one slot. It begins to work as soon as it may, and tells of a release at once: whatever takes longer
/// only takes possibilities away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Active(Epoch),
    /// Told to drain; work may be in flight.
    Draining(Epoch),
    Released(Epoch),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Replica {
    /// The version of the record it obeys.
    view: usize,
    stages: [Stage; SLOTS as usize],
    /// What its Lease says was released, by slot: readers may have an old one, so it is never taken back.
    told: [Epoch; SLOTS as usize],
    revoked: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// Every version that was ever stored; the last one is current.
    history: Vec<usize>,
    replicas: [Replica; REPLICAS],
}

/// What the Leases say: releases by slot, and whether they were revoked.
type Leases = [([Epoch; SLOTS as usize], bool); REPLICAS];

struct Explorer {
    guards: Guards,
    ids: Vec<ReplicaId>,
    /// All records met, numbered; a world refers to them by number.
    maps: Vec<Arc<ShardMap>>,
    numbers: HashMap<String, usize>,
    /// What can follow a record, given what the Leases say.
    follow: HashMap<(usize, Leases), Vec<usize>>,
    /// How far histories go.
    versions: u64,
    /// How many of the slots move.
    moving: u32,
    timers: Timers,
}

impl Explorer {
    fn new(guards: Guards, versions: u64, moving: u32) -> Explorer {
        Explorer {
            guards,
            ids: ["a", "b", "c"].into_iter().map(ReplicaId::from).collect(),
            maps: Vec::new(),
            numbers: HashMap::new(),
            follow: HashMap::new(),
            versions,
            moving,
            timers: Timers::default(),
        }
    }

    fn number(&mut self, map: ShardMap) -> usize {
        let text = serde_json::to_string(&encode_map(&map)).unwrap();
        *self.numbers.entry(text).or_insert_with(|| {
            self.maps.push(Arc::new(map));
            self.maps.len() - 1
        })
    }

    fn start(&mut self) -> World {
        let identity = Identity {
            group: "g".into(),
            controller: "c".into(),
            slots: SlotCount::new(SLOTS).unwrap(),
            key_function: KeyFunction::Uid,
            algorithm: "sticky".into(),
        };
        let first = self.number(ShardMap::new(Arc::new(identity), Duration::from_secs(60), 0));
        let replica = Replica {
            view: 0,
            stages: [Stage::Idle; SLOTS as usize],
            told: [0; SLOTS as usize],
            revoked: false,
        };
        World { history: vec![first], replicas: std::array::from_fn(|_| replica.clone()) }
    }

    /// What anybody can read from the Leases. Older readings say less, and never anything else.
    fn members(&self, world: &World) -> Members {
        let mut members = Members::default();
        for (id, replica) in self.ids.iter().zip(&world.replicas) {
            let released = (0..SLOTS)
                .map(|slot| (SlotRange::one(slot), replica.told[slot as usize]))
                .collect::<Vec<_>>();
            let mut record = LeaseRecord {
                status: NodeStatus::Healthy,
                weight: 100,
                released,
                revoked: None,
                ..LeaseRecord::tombstone_of(id, id, Duration::from_secs(15))
            };
            if replica.revoked {
                record = record.tombstone(id);
            }
            let lease = LeaseObject { uid: 1, resource_version: 1, record, genuine: true };
            members.saw(&Arc::new(lease), Duration::from_secs(60), Moment::default());
        }
        members
    }

    fn successors(&mut self, world: &World) -> Vec<World> {
        let mut next = Vec::new();
        for at in 0..REPLICAS {
            self.replica_steps(world, at, &mut next);
        }
        self.record_steps(world, &mut next);
        next
    }

    fn replica_steps(&mut self, world: &World, at: usize, next: &mut Vec<World>) {
        let replica = &world.replicas[at];
        let mut with = |change: &dyn Fn(&mut Replica)| {
            let mut world = world.clone();
            change(&mut world.replicas[at]);
            next.push(world);
        };
        if replica.revoked {
            return;
        }
        // It may be told any later version, or with the guard off any version at all.
        for view in 0..world.history.len() {
            if view > replica.view || (!self.guards.on(Guard::NeverBack) && view != replica.view) {
                let map = &self.maps[world.history[view]];
                let stages = std::array::from_fn(|slot| {
                    self.obey(map, &self.ids[at], slot as u32, replica.stages[slot])
                });
                with(&|replica| (replica.view, replica.stages) = (view, stages));
            }
        }
        for slot in 0..SLOTS as usize {
            if let Stage::Draining(epoch) = replica.stages[slot] {
                with(&|replica| {
                    replica.stages[slot] = Stage::Released(epoch);
                    replica.told[slot] = epoch;
                });
            }
        }
        // Its time is over: it has stopped, and only then somebody revokes its Lease.
        with(&|replica| {
            replica.revoked = true;
            replica.stages = [Stage::Idle; SLOTS as usize];
        });
    }

    fn obey(&self, map: &ShardMap, id: &ReplicaId, slot: u32, stage: Stage) -> Stage {
        let a = map.get(slot).unwrap();
        if a.owner.as_ref() != Some(id) {
            return Stage::Idle;
        }
        let released = if let Stage::Released(epoch) = stage { epoch } else { 0 };
        match (a.phase, stage) {
            (Phase::Draining, Stage::Active(_)) => Stage::Draining(a.epoch),
            (Phase::Draining, Stage::Draining(epoch) | Stage::Released(epoch)) if epoch == a.epoch => stage,
            (Phase::Draining, Stage::Draining(_)) => Stage::Draining(a.epoch),
            (Phase::Draining, _) => Stage::Released(a.epoch),
            (_, Stage::Active(epoch)) if epoch == a.epoch => stage,
            _ if a.epoch > released || !self.guards.on(Guard::NeverBack) => Stage::Active(a.epoch),
            _ => stage,
        }
    }

    /// Anybody may propose anything from any view; only the current version can be replaced.
    fn record_steps(&mut self, world: &World, next: &mut Vec<World>) {
        let current = *world.history.last().unwrap();
        let leases = world.replicas.each_ref().map(|replica| (replica.told, replica.revoked));
        let followers = match self.follow.get(&(current, leases)) {
            Some(followers) => followers.clone(),
            None => {
                let made = self.proposals(current, &self.members(world));
                let followers: Vec<usize> = made.into_iter().map(|map| self.number(map)).collect();
                self.follow.insert((current, leases), followers.clone());
                followers
            }
        };
        for number in followers {
            let mut world = world.clone();
            world.history.push(number);
            next.push(world);
        }
    }

    fn proposals(&self, current: usize, members: &Members) -> Vec<ShardMap> {
        let current = &self.maps[current];
        if current.version >= self.versions {
            return Vec::new();
        }
        let (guards, now) = (self.guards, Moment::default());
        let facts = Facts { members, waited_after_repair: false, timers: &self.timers, guards, now };
        let mut made = Vec::new();
        for slot in 0..self.moving {
            let slots = SlotRange::one(slot);
            let mut tries = vec![
                Transition::Drain { slots },
                Transition::Complete { slots },
                Transition::Cancel { slots },
                Transition::Assign { slots, to: None },
            ];
            for id in &self.ids {
                tries.push(Transition::Assign { slots, to: Some(id.clone()) });
                tries.push(Transition::Prepare { slots, next: id.clone() });
                tries.push(Transition::Retarget { slots, next: id.clone() });
            }
            made.extend(
                tries.into_iter().filter_map(|transition| apply(current, &[transition], &facts).ok()),
            );
        }
        made
    }

    /// Two replicas that could both work on a slot.
    fn overlap(world: &World) -> Option<(u32, usize, usize)> {
        (0..SLOTS).find_map(|slot| {
            let works = |at: &usize| {
                matches!(world.replicas[*at].stages[slot as usize], Stage::Active(_) | Stage::Draining(_))
            };
            let mut busy = (0..REPLICAS).filter(works);
            busy.next().zip(busy.next()).map(|(first, second)| (slot, first, second))
        })
    }

    /// All worlds that can be reached, breadth first, or the first overlap.
    fn explore(&mut self, most: usize) -> Result<usize, (u32, usize, usize)> {
        let start = self.start();
        let mut seen = HashSet::from([start.clone()]);
        let mut queue = VecDeque::from([start]);
        while let Some(world) = queue.pop_front() {
            if let Some(overlap) = Explorer::overlap(&world) {
                return Err(overlap);
            }
            for next in self.successors(&world) {
                if seen.len() < most && seen.insert(next.clone()) {
                    queue.push_back(next);
                }
            }
        }
        Ok(seen.len())
    }
}

#[test]
fn no_order_of_events_gives_a_slot_two_workers() {
    let worlds = Explorer::new(Guards::default(), 4, SLOTS).explore(usize::MAX).expect("nobody overlaps");
    assert!(worlds > 10_000, "{worlds}");
}

#[test]
fn a_longer_history_does_not_either() {
    let worlds = Explorer::new(Guards::default(), 8, SLOTS).explore(100_000).expect("nobody overlaps");
    assert_eq!(worlds, 100_000);
}

#[test]
fn without_a_guard_an_overlap_is_found() {
    for guard in [Guard::ReleaseFirst, Guard::NeverBack] {
        let found = Explorer::new(Guards::without(guard), 6, 1).explore(200_000);
        assert!(found.is_err(), "{}", guard.name());
    }
}
