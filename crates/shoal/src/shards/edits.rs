//! What people can ask of a group, as pure changes of `spec`, and how far the group has come with it.

use std::collections::BTreeMap;

use shoal_sharding::{Phase, Pin, ReplicaId, ShardMap, ShardMapSpec, Slot, SlotRange, ranges_of};

use super::snapshot::Snapshot;
use super::text::count;

/// A replica by name or id, with its live ids, or an error that lists those there are.
pub fn resolve(snapshot: &Snapshot, name: &str) -> Result<Vec<ReplicaId>, String> {
    let ids: Vec<ReplicaId> = snapshot.called(name).cloned().collect();
    if !ids.is_empty() {
        return Ok(ids);
    }
    let live = snapshot.leases.iter().filter(|lease| !lease.object.is_tombstone());
    let known: Vec<&str> = live.map(|lease| lease.object.record.replica.as_str()).collect();
    Err(match known.is_empty() {
        true => {
            format!("{} has no replicas, so none called {name}; start its controller first", snapshot.group)
        }
        false => format!(
            "{} has no replica called {name}; there are {}: use one of these, or its name",
            snapshot.group,
            known.join(", ")
        ),
    })
}

/// Slots as given on the command line: `5`, `0-127`.
pub fn slots(texts: &[String], map: &ShardMap) -> Result<Vec<SlotRange>, String> {
    let all = map.identity.slots.all();
    texts
        .iter()
        .flat_map(|text| text.split(','))
        .map(|text| {
            let range: SlotRange = text.trim().parse()?;
            match all.common(range) == Some(range) {
                true => Ok(range),
                false => Err(format!(
                    "slots {range} are not there: {} has {}, from 0 to {}",
                    map.identity.group,
                    count(all.len() as usize, "slot"),
                    all.end - 1
                )),
            }
        })
        .collect()
}

/// Replicas by these names get no slots and lose those they have. False if that is so already.
pub fn drain(spec: &mut ShardMapSpec, name: &str) -> bool {
    let new = !spec.cordoned.iter().any(|known| known == name);
    if new {
        spec.cordoned.push(name.to_owned());
    }
    new
}

/// Takes a drain back, whether it was asked for by name or by id. False if there was none.
pub fn undrain(spec: &mut ShardMapSpec, names: &[&str]) -> bool {
    let before = spec.cordoned.len();
    spec.cordoned.retain(|known| !names.contains(&known.as_str()));
    spec.cordoned.len() < before
}

/// Slots belong to a replica from now on; earlier pins of the same slots go.
pub fn pin(spec: &mut ShardMapSpec, slots: &[SlotRange], replica: &str) {
    let mut pins = expanded(spec);
    for slot in slots.iter().flat_map(|range| range.slots()) {
        pins.insert(slot, replica.to_owned());
    }
    compress(spec, &pins);
}

/// Slots are free again; all of them if none are named. How many were pinned.
pub fn unpin(spec: &mut ShardMapSpec, slots: Option<&[SlotRange]>) -> usize {
    let mut pins = expanded(spec);
    let before = pins.len();
    pins.retain(|slot, _| !slots.is_none_or(|slots| slots.iter().any(|range| range.contains(*slot))));
    compress(spec, &pins);
    before - pins.len()
}

/// Later pins win. What cannot be read is dropped, as the core ignores it, too.
fn expanded(spec: &ShardMapSpec) -> BTreeMap<Slot, String> {
    let mut pins = BTreeMap::new();
    for pin in &spec.pins {
        let range = pin.slots.parse::<SlotRange>();
        pins.extend(range.into_iter().flat_map(SlotRange::slots).map(|slot| (slot, pin.replica.clone())));
    }
    pins
}

fn compress(spec: &mut ShardMapSpec, pins: &BTreeMap<Slot, String>) {
    let mut by_replica: BTreeMap<&str, Vec<Slot>> = BTreeMap::new();
    for (slot, replica) in pins {
        by_replica.entry(replica).or_default().push(*slot);
    }
    let ranges = by_replica.into_iter().flat_map(|(replica, slots)| {
        let pin = |range: SlotRange| Pin { slots: range.to_string(), replica: replica.to_owned() };
        ranges_of(slots).into_iter().map(pin).collect::<Vec<_>>()
    });
    spec.pins = ranges.collect();
}

/// What is waited for.
#[derive(Clone, Debug)]
pub enum Goal {
    /// These replicas own nothing and shall own nothing.
    Empty(Vec<ReplicaId>),
    /// One of these replicas owns all these slots.
    At(Vec<SlotRange>, Vec<ReplicaId>),
    /// Every slot has an owner.
    Owned,
}

/// How many slots are still on their way, and a word on them. None are left when the goal is reached.
pub fn left(map: &ShardMap, goal: &Goal) -> (u32, String) {
    let (mut left, mut preparing, mut draining) = (0, 0, 0);
    for run in map.runs() {
        let a = &run.assignment;
        let slots = match goal {
            Goal::Empty(ids) => {
                let names = |id: &Option<ReplicaId>| id.as_ref().is_some_and(|id| ids.contains(id));
                if names(&a.owner) || names(&a.next) { run.slots.len() } else { 0 }
            }
            Goal::At(ranges, ids) => {
                let there = a.phase == Phase::Owned && a.owner.as_ref().is_some_and(|o| ids.contains(o));
                let asked = ranges.iter().filter_map(|range| range.common(run.slots));
                if there { 0 } else { asked.map(SlotRange::len).sum() }
            }
            Goal::Owned => match a.owner {
                Some(_) => 0,
                None => run.slots.len(),
            },
        };
        left += slots;
        match a.phase {
            Phase::Preparing => preparing += slots,
            Phase::Draining => draining += slots,
            _ => {}
        }
    }
    let what = match goal {
        Goal::Empty(_) => "to hand over",
        Goal::At(..) => "to move",
        Goal::Owned => "without an owner",
    };
    (left, format!("{left} {what} ({preparing} warming up, {draining} draining)"))
}

/// Whether anybody else could take the slots of these replicas; the reason if not.
pub fn others_take(snapshot: &Snapshot, leaving: &[ReplicaId]) -> Result<(), String> {
    let view = super::view::view(snapshot);
    let other = |id: &str| !leaving.iter().any(|leaver| leaver.as_str() == id);
    let able =
        view.replicas.iter().any(|r| other(&r.id) && r.status == "Healthy" && !r.drained && r.weight > 0);
    match able {
        true => Ok(()),
        false => Err(format!(
            "nobody else could take the slots of {}: start another replica first; to stop the controller altogether, \
             scale it to 0",
            leaving.iter().map(ReplicaId::as_str).collect::<Vec<_>>().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pins(spec: &ShardMapSpec) -> Vec<(&str, &str)> {
        spec.pins.iter().map(|pin| (pin.slots.as_str(), pin.replica.as_str())).collect()
    }

    fn range(text: &str) -> SlotRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_later_pin_takes_slots_from_an_earlier_one() {
        let mut spec = ShardMapSpec::default();
        pin(&mut spec, &[range("0-9")], "a");
        pin(&mut spec, &[range("4-5")], "b");
        assert_eq!(pins(&spec), [("0-3", "a"), ("6-9", "a"), ("4-5", "b")]);
        assert_eq!(unpin(&mut spec, Some(&[range("3-6")])), 4);
        assert_eq!(pins(&spec), [("0-2", "a"), ("7-9", "a")]);
        assert_eq!(unpin(&mut spec, None), 6);
        assert!(spec.pins.is_empty());
    }

    #[test]
    fn a_drain_is_asked_for_once_and_taken_back_by_name_or_id() {
        let mut spec = ShardMapSpec::default();
        assert!(drain(&mut spec, "web-0"));
        assert!(!drain(&mut spec, "web-0"));
        assert!(!undrain(&mut spec, &["web-1"]));
        assert!(undrain(&mut spec, &["web-1", "web-0"]));
        assert!(spec.cordoned.is_empty());
    }

    proptest! {
        #[test]
        fn the_last_pin_of_a_slot_is_the_one_that_counts(
            asked in proptest::collection::vec((0_u32..64, 1_u32..16, 0_usize..3), 0..12),
        ) {
            let names = ["a", "b", "c"];
            let mut spec = ShardMapSpec::default();
            let mut model = BTreeMap::new();
            for (start, length, replica) in asked {
                let slots = SlotRange { start, end: start + length };
                pin(&mut spec, &[slots], names[replica]);
                model.extend(slots.slots().map(|slot| (slot, names[replica].to_owned())));
            }
            prop_assert_eq!(expanded(&spec), model);
        }
    }
}
