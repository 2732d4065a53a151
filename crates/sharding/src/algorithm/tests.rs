use proptest::prelude::*;

use super::*;
use crate::slots::ranges_of;

fn nodes(count: usize) -> Vec<Node> {
    (0..count).map(|n| Node { id: ReplicaId::new(format!("web-{n:03}")), weight: 100 }).collect()
}

fn run(algorithm: &dyn Algorithm, nodes: &[Node], slots: u32, current: &[u16]) -> Vec<u16> {
    place(algorithm, &Request::fresh(nodes, SlotCount::new(slots).unwrap(), current)).unwrap()
}

fn counts(nodes: usize, assignment: &[u16]) -> Vec<usize> {
    (0..nodes).map(|node| assignment.iter().filter(|n| usize::from(**n) == node).count()).collect()
}

fn fresh(slots: u32) -> Vec<u16> {
    vec![NOBODY; slots as usize]
}

fn moved(before: &[u16], after: &[u16]) -> usize {
    before.iter().zip(after).filter(|(a, b)| a != b).count()
}

#[test]
fn every_algorithm_uses_every_node_and_none_twice() {
    let registry = Registry::default();
    for name in ["sticky", "hash", "consistent-hash", "rendezvous"] {
        let algorithm = registry.get(name).unwrap();
        for (slots, n) in [(16, 3), (1024, 10), (64, 1)] {
            let counts = counts(n, &run(&*algorithm, &nodes(n), slots, &fresh(slots)));
            assert!(counts.iter().all(|count| *count > 0), "{name} {slots} {counts:?}");
            assert_eq!(counts.iter().sum::<usize>(), slots as usize);
        }
        assert_eq!(run(&*algorithm, &[], 16, &fresh(16)), fresh(16), "no nodes is no error");
    }
}

#[test]
fn the_slot_of_a_key_does_not_depend_on_who_is_there() {
    let registry = Registry::default();
    let slots = SlotCount::default();
    for name in ["sticky", "hash", "consistent-hash", "rendezvous"] {
        let algorithm = registry.get(name).unwrap();
        let shard = algorithm.shard_of("default/web", slots);
        assert!(algorithm.validate(shard, "default/web", slots));
        assert!(!algorithm.validate(shard + 1, "default/web", slots));
        assert!(!algorithm.validate(u32::MAX, "default/web", slots));
    }
}

#[test]
fn the_shards_of_all_nodes_are_all_shards() {
    let (nodes, slots) = (nodes(3), SlotCount::new(16).unwrap());
    let all: usize = nodes.iter().map(|node| Sticky.shards_of(&node.id, &nodes, slots).len()).sum();
    assert_eq!(all, 16);
    assert!(Sticky.shards_of(&"stranger".into(), &nodes, slots).is_empty());
}

#[test]
fn an_unknown_algorithm_is_refused_with_what_there_is() {
    let refused = Registry::default().get("consistenthash").err().unwrap().to_string();
    assert!(refused.contains("consistent-hash, hash, rendezvous, sticky"), "{refused}");
}

#[test]
fn a_ring_moves_little_and_modulo_almost_everything() {
    let (before, after) = (nodes(10), nodes(11));
    let share = |algorithm: &dyn Algorithm| {
        let old = run(algorithm, &before, 1024, &fresh(1024));
        moved(&old, &run(algorithm, &after, 1024, &old))
    };
    assert!(share(&Sticky) <= 94);
    assert!(share(&Rendezvous) < 140);
    assert!(share(&ConsistentHash::default()) < 350);
    assert!(share(&Modulo) > 800);
}

#[test]
fn weights_are_shares() {
    let mut nodes = nodes(3);
    nodes[2].weight = 200;
    for algorithm in [&Sticky as &dyn Algorithm, &Rendezvous, &ConsistentHash::default()] {
        let counts = counts(3, &run(algorithm, &nodes, 1024, &fresh(1024)));
        assert!(counts[2].abs_diff(512) < 60, "{} {counts:?}", algorithm.name());
    }
}

#[test]
fn ranges_must_neither_overlap_nor_leave_gaps() {
    let slots = SlotCount::new(4).unwrap();
    let range = |start: &str, end: &str, shard| KeyRange { start: start.into(), end: end.into(), shard };
    let good = KeyRanges::new(vec![range("m", "", 1), range("", "m", 0)], slots).unwrap();
    assert_eq!(good.shard_of("a", slots), 0);
    assert_eq!(good.shard_of("m", slots), 1, "the start is in, the end is not");
    let refused = |ranges| KeyRanges::new(ranges, slots).err();
    assert_eq!(refused(vec![]), Some(BadRanges::None));
    assert!(matches!(refused(vec![range("a", "", 0)]), Some(BadRanges::Gap { .. })));
    assert!(matches!(refused(vec![range("", "m", 0)]), Some(BadRanges::Gap { .. })));
    assert!(matches!(refused(vec![range("", "m", 0), range("n", "", 1)]), Some(BadRanges::Gap { .. })));
    assert!(matches!(refused(vec![range("", "n", 0), range("m", "", 1)]), Some(BadRanges::Overlap { .. })));
    assert!(matches!(refused(vec![range("", "", 0), range("m", "", 1)]), Some(BadRanges::Overlap { .. })));
    assert!(matches!(refused(vec![range("", "", 9)]), Some(BadRanges::NoSuchShard { .. })));
    assert!(matches!(
        refused(vec![range("", "b", 0), range("b", "a", 1), range("b", "", 2)]),
        Some(BadRanges::Empty { .. })
    ));
}

struct Broken(fn(&Request<'_>) -> Vec<u16>);

impl Algorithm for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        (self.0)(request)
    }
}

#[test]
fn algorithms_that_panic_or_return_nonsense_are_refused() {
    let nodes = nodes(2);
    let slots = SlotCount::new(8).unwrap();
    let current = fresh(8);
    let refused = |f| place(&Broken(f), &Request::fresh(&nodes, slots, &current)).unwrap_err().to_string();
    assert!(refused(|_| panic!("no")).contains("panicked"));
    assert!(refused(|_| vec![0; 7]).contains("7 of 8 slots"));
    assert!(refused(|_| vec![2; 8]).contains("slot 0 has no node"));
    assert!(refused(|_| vec![NOBODY; 8]).contains("has no node"));
    let mut registry = Registry::default();
    registry.register(Arc::new(Broken(|_| vec![]))).unwrap();
    assert!(registry.get("broken").is_ok());
    assert!(registry.register(Arc::new(Sticky)).is_err());
}

#[test]
fn busy_slots_are_spread_by_measured_load() {
    let nodes = nodes(2);
    let slots = SlotCount::new(16).unwrap();
    let current: Vec<u16> = (0..16).map(|slot| u16::from(slot >= 8)).collect();
    let loads: Vec<u32> = (0..16).map(|slot| if slot < 4 { 100 } else { 1 }).collect();
    let request = Request { loads: Some(&loads), ..Request::fresh(&nodes, slots, &current) };
    let after = place(&Sticky, &request).unwrap();
    let sum = |node: u16| -> u32 { (0..16).filter(|s| after[*s] == node).map(|s| loads[s]).sum() };
    assert!(sum(0).abs_diff(sum(1)) < 50, "{} {}", sum(0), sum(1));
    assert!(moved(&current, &after) <= 4);
    let again = place(&Sticky, &Request { current: &after, ..request }).unwrap();
    assert_eq!(moved(&after, &again), 0, "slots do not wander");
}

#[test]
fn pins_are_obeyed_and_counted() {
    let nodes = nodes(2);
    let slots = SlotCount::new(16).unwrap();
    let current: Vec<u16> = vec![0; 16];
    let pins = [(3, 1), (5, 0)];
    let after = place(&Sticky, &Request { pins: &pins, ..Request::fresh(&nodes, slots, &current) }).unwrap();
    assert_eq!((after[3], after[5]), (1, 0));
    assert_eq!(counts(2, &after), [8, 8]);
}

#[test]
fn objects_are_spread_within_seven_percent_over_ten_replicas() {
    let slots = SlotCount::default();
    let assignment = run(&Sticky, &nodes(10), 1024, &fresh(1024));
    let mut worst: f64 = 0.0;
    for seed in 0..8_u64 {
        let mut per_node = [0_u32; 10];
        for object in 0..20_000_u64 {
            let (a, b) = (mixed(seed << 32 | object), mixed(object << 20 | seed));
            let uid = format!(
                "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
                a >> 32,
                a & 0xffff,
                b & 0xfff,
                b >> 52,
                b >> 8 & 0xffff_ffff_ffff
            );
            per_node[usize::from(assignment[crate::KeyFunction::Uid.slot_of_key(&uid, slots) as usize])] += 1;
        }
        worst = worst.max(f64::from(*per_node.iter().max().unwrap()) / 2000.0);
    }
    assert!(worst <= 1.07, "{worst}");
}

/// Years of joins and leaves scatter slots all the same; then selectors take in some slots more (`key` tests that).
#[test]
fn growing_to_eight_and_back_leaves_everybody_few_ranges() {
    let everyone = nodes(8);
    let mut current = vec![NOBODY; 1024];
    for present in (1..=8_usize).chain((1..8).rev()) {
        // The last one leaves: what it had belongs to nobody.
        current.iter_mut().filter(|node| usize::from(**node) >= present).for_each(|node| *node = NOBODY);
        current = run(&Sticky, &everyone[..present], 1024, &current);
        for at in 0..present as u16 {
            let ranges = ranges_of((0..1024).filter(|slot| current[*slot as usize] == at));
            assert!(ranges.len() <= 16, "{} ranges with {present} replicas", ranges.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_join_moves_its_share_a_leave_its_own_and_all_stay_even(
        slots in prop::sample::select(vec![32_u32, 256, 1024]),
        start in 1_usize..8,
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..24),
    ) {
        let everyone = nodes(40);
        let mut present: Vec<usize> = (0..start).collect();
        let mut newest = start;
        let named = |present: &[usize]| present.iter().map(|n| everyone[*n].clone()).collect::<Vec<_>>();
        let mut by_name: Vec<Option<usize>> = vec![None; slots as usize];
        let place_again = |present: &[usize], by_name: &mut Vec<Option<usize>>| {
            let current: Vec<u16> = by_name
                .iter()
                .map(|n| n.and_then(|n| present.iter().position(|p| *p == n)).map_or(NOBODY, |at| at as u16))
                .collect();
            let after = run(&Sticky, &named(present), slots, &current);
            let before = by_name.clone();
            *by_name = after.iter().map(|at| Some(present[usize::from(*at)])).collect();
            (before, after)
        };
        place_again(&present, &mut by_name);
        for (join, which) in steps {
            let leaver = if join && newest < 40 || present.len() == 1 {
                if newest >= 40 { continue }
                present.push(newest);
                newest += 1;
                None
            } else {
                Some(present.remove(which.index(present.len())))
            };
            let (before, after) = place_again(&present, &mut by_name);
            let counts = counts(present.len(), &after);
            let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
            prop_assert!(most - least <= 1, "{counts:?}");
            let moves = before.iter().zip(&by_name).filter(|(a, b)| a != b).count();
            match leaver {
                None => prop_assert!(moves <= (slots as usize).div_ceil(present.len()), "{moves}"),
                Some(leaver) => {
                    let only_its_own = before.iter().zip(&by_name).all(|(a, b)| a == b || *a == Some(leaver));
                    prop_assert!(only_its_own);
                }
            }
        }
    }
}
