use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::guards::Guards;
use crate::key::KeyFunction;
use crate::lease::{LeaseObject, LeaseRecord, NodeStatus};
use crate::members::Members;
use crate::settings::Timers;
use crate::slots::SlotCount;
use crate::time::Moment;

const LONGEST: Duration = Duration::from_secs(60);

fn identity(slots: u32) -> Identity {
    Identity {
        group: "web".into(),
        controller: "apps/v1 Deployment".into(),
        slots: SlotCount::new(slots).unwrap(),
        key_function: KeyFunction::Uid,
        algorithm: "sticky".into(),
    }
}

fn new_map(slots: u32) -> ShardMap {
    ShardMap::new(Arc::new(identity(slots)), LONGEST, 0)
}

fn lease(id: &str, version: u64, change: impl FnOnce(&mut LeaseRecord)) -> Arc<LeaseObject> {
    let mut record = LeaseRecord {
        status: NodeStatus::Healthy,
        fingerprint: identity(8).fingerprint(),
        weight: 100,
        revoked: None,
        ..LeaseRecord::tombstone_of(&id.into(), &"".into(), Duration::from_secs(15))
    };
    change(&mut record);
    Arc::new(LeaseObject { uid: 1, resource_version: version, record, genuine: true })
}

fn members(leases: impl IntoIterator<Item = Arc<LeaseObject>>) -> Members {
    let mut members = Members::default();
    for lease in leases {
        members.saw(&lease, LONGEST, Moment::default());
    }
    members
}

fn step(map: &ShardMap, members: &Members, transition: Transition) -> Result<ShardMap, Refusal> {
    let timers = Timers::default();
    let (guards, now) = (Guards::default(), Moment::default());
    apply(map, &[transition], &Facts { members, waited_after_repair: true, timers: &timers, guards, now })
}

fn range(start: u32, end: u32) -> SlotRange {
    SlotRange { start, end }
}

fn owned_by_a(slots: u32) -> ShardMap {
    let assign = Transition::Assign { slots: range(0, slots), to: Some("a".into()) };
    step(&new_map(slots), &Members::default(), assign).unwrap()
}

fn prepared(slots: SlotRange) -> ShardMap {
    step(&owned_by_a(8), &Members::default(), Transition::Prepare { slots, next: "b".into() }).unwrap()
}

#[test]
fn a_planned_move_takes_its_phases_in_order_and_raises_the_epoch() {
    let slots = range(2, 5);
    let nobody = Members::default();
    let map = prepared(slots);
    assert!(matches!(step(&map, &nobody, Transition::Complete { slots }), Err(Refusal::WrongPhase { .. })));
    let map = step(&map, &nobody, Transition::Drain { slots }).unwrap();
    let refused = step(&map, &nobody, Transition::Complete { slots }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "slots 2-4 belong to a, whose Lease is not revoked and who has not released them"
    );
    let released = members([lease("a", 5, |record| record.released = vec![(range(0, 8), 1)])]);
    let map = step(&map, &released, Transition::Complete { slots }).unwrap();
    assert_eq!(map.get(3).unwrap().to_string(), "owned b epoch 2");
    assert_eq!(map.get(1).unwrap().to_string(), "owned a epoch 1");
    assert_eq!((map.version, map.runs().len()), (5, 3));
}

#[test]
fn a_release_of_another_epoch_counts_for_nothing() {
    let slots = range(0, 8);
    let map = step(&prepared(slots), &Members::default(), Transition::Drain { slots }).unwrap();
    let old = members([lease("a", 5, |record| record.released = vec![(slots, 0)])]);
    assert!(matches!(step(&map, &old, Transition::Complete { slots }), Err(Refusal::StillOwned { .. })));
}

#[test]
fn a_cancelled_drain_raises_the_epoch_and_a_cancelled_preparation_does_not() {
    let slots = range(0, 8);
    let nobody = Members::default();
    let map = prepared(slots);
    let kept = step(&map, &nobody, Transition::Cancel { slots }).unwrap();
    assert_eq!(kept.get(0).unwrap().to_string(), "owned a epoch 1");
    let map = step(&map, &nobody, Transition::Drain { slots }).unwrap();
    let kept = step(&map, &nobody, Transition::Cancel { slots }).unwrap();
    assert_eq!(kept.get(0).unwrap().to_string(), "owned a epoch 2");
}

#[test]
fn slots_of_a_silent_replica_move_only_after_its_lease_was_revoked() {
    let map = owned_by_a(8);
    let take = Transition::Assign { slots: range(0, 8), to: Some("b".into()) };
    let silent = members([lease("a", 5, |_| {})]);
    assert!(matches!(step(&map, &silent, take.clone()), Err(Refusal::StillOwned { .. })));
    let ended = members([lease("a", 6, |record| *record = record.tombstone(&"b".into()))]);
    assert_eq!(step(&map, &ended, take).unwrap().get(0).unwrap().to_string(), "owned b epoch 2");
    let back = Transition::Assign { slots: range(0, 8), to: Some("a".into()) };
    assert!(matches!(step(&map, &ended, back), Err(Refusal::Ended { .. })));
}

#[test]
fn nobody_gets_a_slot_after_a_repair_before_everybody_has_let_go() {
    let live = |seen| lease("a", seen, |record| record.seen = seen);
    let map = repair(&owned_by_a(8), 70, &members([live(2)]));
    assert_eq!(map.count(&[Phase::Repairing]), 8);
    assert_eq!(
        (map.highest_epoch(), map.version),
        (71, 71),
        "above what was in the object before, whoever saw it"
    );
    let slots = range(0, 8);
    let assign = Transition::Assign { slots, to: Some("a".into()) };
    assert!(step(&map, &members([live(2)]), assign).is_err());
    let recover = Transition::Recover { slots };
    assert_eq!(step(&map, &members([live(2)]), recover.clone()), Err(Refusal::Unconfirmed(slots)));
    let mut gone = members([live(2)]);
    gone.missed(&"a".into(), 9, Moment::default());
    assert!(step(&map, &gone, recover.clone()).is_err(), "a deleted Lease confirms nothing");
    assert_eq!(step(&map, &members([live(map.version)]), recover).unwrap().unowned(), 8);
}

#[test]
fn nonsense_is_refused() {
    let map = owned_by_a(8);
    let nobody = Members::default();
    for slots in [range(3, 3), range(5, 2), range(4, 9), range(0, u32::MAX)] {
        assert_eq!(step(&map, &nobody, Transition::Drain { slots }), Err(Refusal::NoSuchSlots(slots)));
    }
    let itself = Transition::Prepare { slots: range(0, 8), next: "a".into() };
    assert!(matches!(step(&map, &nobody, itself), Err(Refusal::WrongPhase { .. })));
}

#[test]
fn a_record_that_would_not_fit_is_refused() {
    let mut map = owned_by_a(16_384);
    let steps: Vec<Transition> = (0..8192)
        .map(|slot| Transition::Prepare { slots: range(slot * 2, slot * 2 + 1), next: "b".into() })
        .collect();
    let timers = Timers::default();
    let facts = Facts {
        members: &Members::default(),
        waited_after_repair: true,
        timers: &timers,
        guards: Guards::default(),
        now: Moment::default(),
    };
    assert!(matches!(apply(&map, &steps, &facts), Err(Refusal::TooLarge(_))));
    map = apply(&map, &steps[..400], &facts).unwrap();
    let bytes = serde_json::to_string(&encode_map(&map)).unwrap().len();
    assert!(bytes <= MAX_RECORD_BYTES, "{bytes}");
}

#[test]
fn a_thousand_pieces_fit_however_far_epochs_have_counted() {
    let owners: Vec<ReplicaId> =
        (0..10).map(|n| ReplicaId::new(format!("controller-7d9f8b6c5-{n:05}-x1y2z"))).collect();
    let steps: Vec<Transition> = (0..1024)
        .map(|piece| Transition::Assign {
            slots: range(piece * 16, piece * 16 + 16),
            to: Some(owners[piece as usize % 10].clone()),
        })
        .collect();
    let timers = Timers::default();
    let facts = Facts {
        members: &Members::default(),
        waited_after_repair: true,
        timers: &timers,
        guards: Guards::default(),
        now: Moment::default(),
    };
    for floor in [0, u64::MAX / 4] {
        let map = ShardMap::new(Arc::new(identity(16_384)), LONGEST, floor);
        let map = apply(&map, &steps, &facts).unwrap();
        let bytes = serde_json::to_string(&encode_map(&map)).unwrap().len();
        assert!(bytes <= MAX_RECORD_BYTES && bytes <= document::size_estimate(&map), "{bytes}");
    }
}

fn read_back(status: &ShardMapStatus) -> Result<Arc<ShardMap>, Defect> {
    match read_map(Some(&serde_json::to_value(status).unwrap())) {
        Observed::Valid(map) => Ok(map),
        Observed::Damaged(defect) => Err(defect),
    }
}

#[test]
fn a_record_reads_what_it_wrote() {
    let slots = range(2, 5);
    for map in [new_map(8), owned_by_a(8), prepared(slots), repair(&owned_by_a(8), 0, &Members::default())] {
        let json = serde_json::to_string(&encode_map(&map)).unwrap();
        let status: ShardMapStatus = serde_json::from_str(&json).unwrap();
        assert_eq!(*read_back(&status).unwrap(), map, "{json}");
    }
    assert_eq!(encode_map(&prepared(slots)).runs[1], "2-4 owner=0 epoch=1 preparing next=1");
}

#[test]
fn a_record_edited_by_hand_is_found_with_the_reason() {
    let good = encode_map(&prepared(range(2, 5)));
    let reason = |edit: fn(&mut ShardMapStatus)| {
        let mut status = good.clone();
        edit(&mut status);
        read_back(&status).unwrap_err().to_string()
    };
    assert!(reason(|s| s.runs[0] = "0-1 owner=7 epoch=1".into()).contains("replica 7 is unknown"));
    assert!(reason(|s| s.runs[0] = "0-1 owner=0 epoch=0".into()).contains("seal"));
    assert!(reason(|s| drop(s.runs.remove(0))).contains("slot 0 is missing"));
    assert!(reason(|s| drop(s.runs.pop())).contains("are missing"));
    assert!(reason(|s| s.runs.push("7 owner=0 epoch=1".into())).contains("there twice"));
    assert!(reason(|s| s.runs[0] = "0-1 epoch=1 draining".into()).contains("cannot be"));
    assert!(reason(|s| s.slots = 7).contains("power of two"));
    assert!(reason(|s| s.hash = "md5".into()).contains("hash md5"));
    assert!(reason(|s| s.version = 99).contains("seal"));
    for nonsense in ["", "x", "0-1 epoch=-1", "0-1 owner=", "0-99999 epoch=1", "0-7 epoch=1 sideways"] {
        let mut status = good.clone();
        status.runs = vec![nonsense.into()];
        assert!(read_back(&status).is_err(), "{nonsense}");
    }
}

#[test]
fn a_record_that_was_set_back_or_forked_is_no_successor() {
    let (old, new) = (owned_by_a(8), prepared(range(0, 8)));
    assert!(old.successor_defect(&new).is_none());
    assert!(new.successor_defect(&new.clone()).is_none());
    assert!(new.successor_defect(&old).is_some());
    let forked =
        step(&old, &Members::default(), Transition::Prepare { slots: range(0, 4), next: "c".into() });
    assert!(new.successor_defect(&forked.unwrap()).is_some());
}

#[test]
fn another_number_of_slots_needs_everybody_gone() {
    let old = owned_by_a(8);
    let wanted = Arc::new(identity(16));
    let refused = migrate(&old, &wanted, &members([lease("a", 5, |_| {})])).unwrap_err();
    assert!(
        refused.contains("slots is 16, here 8") && refused.contains("scale the controller to 0"),
        "{refused}"
    );
    assert!(migrate(&old, &wanted, &Members::default()).unwrap_err().contains("owns slots"));
    let ended = members([lease("a", 6, |record| *record = record.tombstone(&"b".into()))]);
    let new = migrate(&old, &wanted, &ended).unwrap();
    assert_eq!((new.identity.slots.get(), new.unowned()), (16, 16));
    assert!(new.highest_epoch() > old.highest_epoch());
}

proptest! {
    #[test]
    fn whatever_is_applied_epochs_never_fall_and_every_slot_stays(
        steps in prop::collection::vec((0_u8..7, 0_u32..8, 1_u32..5, 0_u8..3), 1..60),
    ) {
        let ids: [ReplicaId; 3] = ["a".into(), "b".into(), "c".into()];
        let released = |id: &ReplicaId| lease(id.as_str(), 5, |record| {
            record.released = (0..40).map(|epoch| (range(0, 8), epoch)).collect();
            record.seen = u64::MAX;
        });
        let members = members(ids.iter().map(released));
        let mut map = new_map(8);
        for (kind, start, len, who) in steps {
            let slots = range(start, (start + len).min(8));
            let id = ids[usize::from(who)].clone();
            let transition = match kind {
                0 => Transition::Assign { slots, to: Some(id) },
                1 => Transition::Prepare { slots, next: id },
                2 => Transition::Drain { slots },
                3 => Transition::Complete { slots },
                4 => Transition::Retarget { slots, next: id },
                5 => Transition::Cancel { slots },
                _ => Transition::Recover { slots },
            };
            let Ok(next) = step(&map, &members, transition) else { continue };
            for slot in 0..8 {
                let (before, after) = (map.get(slot).unwrap(), next.get(slot).unwrap());
                prop_assert!(after.epoch >= before.epoch);
                prop_assert!(after.owner == before.owner || after.epoch > before.epoch);
            }
            prop_assert_eq!(next.version, map.version + 1);
            prop_assert_eq!(&*read_back(&encode_map(&next)).unwrap(), &next);
            map = next;
        }
    }
}

#[test]
fn an_object_without_a_record_is_empty_and_nonsense_is_unreadable() {
    let empty = [None, Some(json!(null)), Some(json!({})), Some(json!({"conditions": []}))];
    for status in empty {
        let observed = read_map(status.as_ref());
        assert!(matches!(observed, Observed::Damaged(Defect::Empty)), "{status:?}: {observed:?}");
    }
    for status in [json!("text"), json!([]), json!({"slots": 8}), json!({"slots": "many"})] {
        let observed = read_map(Some(&status));
        assert!(matches!(observed, Observed::Damaged(Defect::Unreadable(_))), "{status}: {observed:?}");
    }
    let status = serde_json::to_value(encode_map(&owned_by_a(8))).unwrap();
    assert!(matches!(read_map(Some(&status)), Observed::Valid(_)));
}
