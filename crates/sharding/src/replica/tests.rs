use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::algorithm::Sticky;
use crate::identity::Identity;
use crate::key::KeyFunction;
use crate::lease::LeaseObject;
use crate::map::{Phase, encode_map};
use crate::settings::{Rebalancing, Timers};
use crate::slots::SlotCount;

/// One replica and the answers it would get from a server without faults.
struct Bench {
    replica: Replica,
    now: Moment,
    revision: u64,
    map: Option<(u64, Arc<ShardMap>)>,
    lease: Option<LeaseObject>,
    /// Answers are held back.
    silent: bool,
    log: Vec<Action>,
}

fn settings(algorithm: &str) -> Arc<Settings> {
    let identity = Identity {
        group: "web".into(),
        controller: "test".into(),
        slots: SlotCount::new(8).unwrap(),
        key_function: KeyFunction::Uid,
        algorithm: algorithm.into(),
    };
    Arc::new(Settings {
        identity: Arc::new(identity),
        name: "web-0".into(),
        address: "10.0.0.1:8080".into(),
        revision: "1".into(),
        weight: 100,
        timers: Timers::default(),
        rebalancing: Rebalancing::default(),
    })
}

impl Bench {
    fn new() -> Bench {
        let replica = Replica::new("m".into(), settings("sticky"), Arc::new(Sticky), Guards::default());
        let now = Moment::from_micros(1_000_000_000);
        Bench { replica, now, revision: 10, map: None, lease: None, silent: false, log: Vec::new() }
    }

    fn tell(&mut self, event: Event) {
        let mut out = Vec::new();
        self.replica.handle(event, self.now, &mut out);
        for action in out {
            self.log.push(action.clone());
            if !self.silent {
                self.answer(action);
            }
        }
    }

    fn applied(&mut self) -> Outcome {
        self.revision += 1;
        Outcome::Applied { uid: 1, resource_version: self.revision }
    }

    fn answer(&mut self, action: Action) {
        match action {
            Action::List => {
                let event = match &self.map {
                    Some((version, map)) => {
                        Event::Map { resource_version: *version, observed: Observed::Valid(map.clone()) }
                    }
                    None => Event::MapGone { resource_version: self.revision },
                };
                self.tell(event);
                self.tell(Event::Listed { began: self.now });
            }
            Action::CreateLease(record) | Action::RenewLease { record, .. } => {
                let (renewal, outcome) = (record.renewals, self.applied());
                let resource_version = self.revision;
                self.lease = Some(LeaseObject { uid: 1, resource_version, record, genuine: true });
                self.tell(Event::LeaseWritten { renewal, outcome });
            }
            Action::CreateMap => {
                let outcome = self.applied();
                self.tell(Event::MapWritten(outcome));
            }
            Action::WriteMap { map, .. } => {
                let outcome = self.applied();
                self.map = Some((self.revision, map));
                self.tell(Event::MapWritten(outcome));
            }
            Action::RevokeLease { record, .. } | Action::BuryLease(record) => {
                let (replica, outcome) = (record.replica, self.applied());
                self.tell(Event::RevokeWritten { replica, outcome });
            }
            Action::Barrier { slots, epoch } => self.tell(Event::Fresh { slots, epoch }),
            Action::Drain { slots, epoch } => self.tell(Event::Drained { slots, epoch }),
            Action::Warm { slots, epoch } => self.tell(Event::Warmed { slots, epoch }),
            _ => {}
        }
    }

    fn wait(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.replica.wake_at() <= until {
            self.now = self.replica.wake_at().max(self.now + Duration::from_micros(1));
            self.tell(Event::Tick);
        }
        self.now = until;
    }

    fn running() -> Bench {
        let mut bench = Bench::new();
        bench.tell(Event::Tick);
        bench.wait(1);
        bench
    }

    fn other(&mut self, id: &str, change: impl FnOnce(&mut LeaseRecord)) -> Event {
        let mut record = self.lease.as_ref().unwrap().record.clone();
        record.replica = id.into();
        record.name = id.into();
        record.warm.clear();
        record.released.clear();
        change(&mut record);
        self.revision += 1;
        Event::Lease(Arc::new(LeaseObject { uid: 2, resource_version: self.revision, record, genuine: true }))
    }

    fn works(&self) -> usize {
        (0..8).filter(|slot| self.replica.may_work(*slot, self.now).is_some()).count()
    }

    fn ended(&self) -> Option<&Ending> {
        self.log.iter().find_map(|action| if let Action::Restart(why) = action { Some(why) } else { None })
    }
}

#[test]
fn the_first_replica_creates_the_record_and_works_on_everything() {
    let bench = Bench::running();
    assert_eq!(bench.works(), 8);
    let [(slots, epoch)] = bench.replica.active()[..] else { panic!("{:?}", bench.replica.active()) };
    assert_eq!(slots, SlotRange { start: 0, end: 8 });
    assert!(epoch > 1 && epoch <= bench.revision, "{epoch}: epochs begin where the server's versions are");
    let nodes = bench.replica.nodes(bench.now);
    assert_eq!((nodes.len(), nodes[0].status, &*nodes[0].address), (1, NodeStatus::Healthy, "10.0.0.1:8080"));
    assert_eq!(nodes[0].shards, [SlotRange { start: 0, end: 8 }]);
}

#[test]
fn gained_is_told_before_the_first_work_and_lost_after_the_last() {
    let bench = Bench::running();
    let at = |find: fn(&Action) -> bool| bench.log.iter().position(find).unwrap();
    let gained = at(|action| matches!(action, Action::Notify(Notice::Gained { .. })));
    assert!(gained < at(|action| matches!(action, Action::Activate { .. })));
    let mut bench = bench;
    bench.log.clear();
    bench.tell(Event::Leave { until: bench.now });
    bench.wait(5);
    let at = |find: fn(&Action) -> bool| bench.log.iter().position(find).unwrap();
    let lost = at(|action| matches!(action, Action::Notify(Notice::Lost { .. })));
    assert!(at(|action| matches!(action, Action::Drain { .. })) < lost);
    assert!(lost < at(|action| matches!(action, Action::Stopped)));
}

#[test]
fn a_replica_that_cannot_renew_stops_before_its_lease_ends_and_goes_on_if_it_was_not_missed() {
    let mut bench = Bench::running();
    bench.silent = true;
    bench.wait(8);
    assert_eq!(bench.works(), 8);
    bench.wait(4);
    assert_eq!(bench.works(), 0, "renewDeadline 10s has passed");
    assert!(bench.log.iter().any(|action| matches!(action, Action::Fence)));
    bench.silent = false;
    let renewals = bench.log.iter().rev().find_map(|action| match action {
        Action::RenewLease { record, .. } => Some(record.renewals),
        _ => None,
    });
    bench.tell(Event::LeaseWritten { renewal: renewals.unwrap(), outcome: Outcome::Conflict });
    bench.tell(Event::Tick);
    bench.wait(3);
    assert_eq!(bench.works(), 8);
}

#[test]
fn a_suspended_machine_has_no_right_to_work_when_it_wakes() {
    let mut bench = Bench::running();
    bench.now = bench.now + Duration::from_secs(3600);
    assert_eq!(bench.works(), 0);
}

#[test]
fn a_deleted_replaced_or_edited_lease_ends_this_life_at_once() {
    let changes: [fn(&mut Bench) -> Event; 4] = [
        |bench| Event::LeaseGone { replica: "m".into(), resource_version: bench.revision + 1 },
        |bench| bench.own_lease(|lease| lease.uid = 9),
        |bench| bench.own_lease(|lease| lease.genuine = false),
        |bench| bench.own_lease(|lease| lease.record = lease.record.tombstone(&"z".into())),
    ];
    for change in changes {
        let mut bench = Bench::running();
        let event = change(&mut bench);
        bench.tell(event);
        assert_eq!(bench.works(), 0);
        assert!(bench.ended().is_some() && bench.replica.is_over());
    }
}

impl Bench {
    fn own_lease(&mut self, change: impl FnOnce(&mut LeaseObject)) -> Event {
        let mut lease = self.lease.clone().unwrap();
        self.revision += 1;
        lease.resource_version = self.revision;
        change(&mut lease);
        Event::Lease(Arc::new(lease))
    }
}

#[test]
fn half_of_the_slots_are_handed_to_a_newcomer_step_by_step() {
    let mut bench = Bench::running();
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    let phases = |bench: &Bench, phase| bench.replica.map().unwrap().count(&[phase]);
    assert_eq!(
        (phases(&bench, Phase::Preparing), bench.works()),
        (4, 8),
        "the owner works on while the next warms"
    );
    let moving = bench.replica.map().unwrap().runs().iter().find(|run| run.assignment.next.is_some());
    let (slots, epoch) = moving.map(|run| (run.slots, run.assignment.epoch)).unwrap();
    let warm = bench.other("n", |record| record.warm = vec![(slots, epoch)]);
    bench.tell(warm);
    bench.wait(3);
    let map = bench.replica.map().unwrap();
    assert_eq!(map.slots_of(&"n".into()), [slots]);
    assert_eq!(map.get(slots.start).unwrap().epoch, epoch + 1);
    assert_eq!(bench.works(), 4);
}

#[test]
fn a_silent_replica_is_waited_for_in_full_then_revoked_then_replaced() {
    let mut bench = Bench::running();
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    let revoked = |bench: &Bench| bench.log.iter().any(|action| matches!(action, Action::RevokeLease { .. }));
    bench.wait(15);
    assert!(!revoked(&bench), "15s of Lease and 1 % of drift have not passed");
    bench.wait(1);
    assert!(revoked(&bench));
}

#[test]
fn a_deleted_lease_is_waited_for_and_buried() {
    let mut bench = Bench::running();
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    bench.wait(10);
    bench.tell(Event::LeaseGone { replica: "n".into(), resource_version: bench.revision + 1 });
    let buried = |bench: &Bench| bench.log.iter().any(|action| matches!(action, Action::BuryLease(_)));
    bench.wait(15);
    assert!(!buried(&bench), "the wait begins anew with the deletion");
    bench.wait(1);
    assert!(buried(&bench));
}

#[test]
fn a_renewal_repeated_by_the_watch_is_no_sign_of_life() {
    let mut bench = Bench::running();
    let joined = bench.other("n", |_| {});
    bench.tell(joined.clone());
    for _ in 0..7 {
        bench.wait(2);
        bench.tell(joined.clone());
    }
    bench.wait(2);
    assert!(bench.log.iter().any(|action| matches!(action, Action::RevokeLease { .. })));
}

#[test]
fn a_group_that_computes_slots_differently_refuses_the_replica() {
    let foreign = Arc::new(ShardMap::new(settings("hash").identity.clone(), Duration::from_secs(60), 0));
    let mut bench = Bench::new();
    bench.map = Some((5, foreign));
    bench.tell(Event::Tick);
    let why = bench.ended().unwrap().to_string();
    assert!(why.contains("algorithm is hash, here sticky") && why.contains("shoal shards migrate"), "{why}");
}

#[test]
fn a_record_edited_by_hand_is_replaced_and_everything_let_go_first() {
    let mut bench = Bench::running();
    let mut status = encode_map(bench.replica.map().unwrap());
    status.runs[0] = status.runs[0].replace("epoch=1", "epoch=9");
    bench.revision += 1;
    let edited = bench.revision;
    bench.tell(Event::Map {
        resource_version: bench.revision,
        observed: crate::map::read_map(serde_json::to_value(&status).ok().as_ref()),
    });
    assert_eq!(bench.works(), 0);
    let reported = bench.log.iter().any(|action| {
        matches!(action, Action::Report(Report::Repairing(reason)) if reason.contains("edited by hand"))
    });
    assert!(reported);
    bench.wait(59);
    assert_eq!(bench.works(), 0, "a Lease that nobody knows of may last for nodeTimeout 60s");
    bench.wait(15);
    assert_eq!(bench.works(), 8);
    assert!(bench.replica.may_work(0, bench.now) > Some(edited));
}

#[test]
fn an_older_record_that_comes_late_is_ignored() {
    let mut bench = Bench::running();
    let map = bench.map.clone().unwrap();
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    let version = bench.replica.map().unwrap().version;
    bench.tell(Event::Map { resource_version: map.0, observed: Observed::Valid(map.1) });
    assert_eq!(bench.replica.map().unwrap().version, version);
}

#[test]
fn what_would_move_is_explained() {
    let mut bench = Bench::running();
    bench.silent = true;
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    assert_eq!(bench.replica.explain(bench.now).unwrap().to_string(), "prepare 4-7 for n: balance\n");
}

#[test]
fn cordoned_replicas_are_emptied_and_pins_are_obeyed() {
    let mut bench = Bench::running();
    bench.silent = true;
    let joined = bench.other("n", |_| {});
    bench.tell(joined);
    let spec = |json: &str| Event::Spec(Arc::new(serde_json::from_str(json).unwrap()));
    bench.tell(spec(r#"{"cordoned": ["web-0"]}"#));
    let plan = bench.replica.explain(bench.now).unwrap().to_string();
    assert_eq!(plan, "prepare 0-7 for n: the owner leaves, is unwell or cordoned\n");
    bench.tell(spec(r#"{"pins": [{"slots": "0-1", "replica": "n"}]}"#));
    let plan = bench.replica.explain(bench.now).unwrap().to_string();
    assert!(plan.contains("prepare 0-1 for n: pinned"), "{plan}");
}

#[test]
fn nothing_that_arrives_in_any_order_makes_it_panic() {
    let mut bench = Bench::new();
    let slots = SlotRange { start: 5, end: 5000 };
    for event in [
        Event::Warmed { slots, epoch: 1 },
        Event::Drained { slots, epoch: u64::MAX },
        Event::Fresh { slots, epoch: 0 },
        Event::MapWritten(Outcome::Unknown),
        Event::LeaseWritten { renewal: 99, outcome: Outcome::NotFound },
        Event::Leave { until: Moment::NEVER },
        Event::Health(false),
        Event::Loads(vec![(u32::MAX, u32::MAX); 100]),
    ] {
        bench.tell(event);
    }
    assert_eq!(bench.replica.may_work(u32::MAX, bench.now), None);
}

/// How often another's Lease was ended.
fn revocations(bench: &Bench) -> usize {
    bench.log.iter().filter(|action| matches!(action, Action::RevokeLease { .. })).count()
}

#[test]
fn whoever_comes_back_first_after_an_outage_does_not_end_the_others() {
    let mut bench = Bench::running();
    let other = bench.other("z", |_| {});
    bench.tell(other);
    // Nobody reaches the server for longer than a Lease lasts.
    bench.silent = true;
    bench.wait(20);
    bench.silent = false;
    bench.replica.renewing = false;
    bench.wait(4);
    assert!(bench.works() > 0, "this one is back");
    assert_eq!(revocations(&bench), 0, "the other was out as well");
    let back = bench.other("z", |record| record.renewals += 1);
    bench.tell(back);
    bench.wait(14);
    assert_eq!(revocations(&bench), 0, "it came back");
    bench.wait(4);
    assert_eq!(revocations(&bench), 1, "silence without an outage is still an end");
}

#[test]
fn a_replica_that_does_not_come_back_after_an_outage_is_ended_within_a_lease() {
    let mut bench = Bench::running();
    let other = bench.other("z", |_| {});
    bench.tell(other);
    bench.silent = true;
    bench.wait(20);
    bench.silent = false;
    bench.replica.renewing = false;
    bench.wait(15);
    assert_eq!(revocations(&bench), 1);
}
