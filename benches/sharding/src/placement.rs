//! Figures that need no processes: how much moves, how even it is, how large the record gets.

use std::time::Duration;

use anyhow::Result;
use bench_rows::{Goal, Row};
use shoal_objects::Entropy;
use shoal_sharding::{KeyFunction, MAX_RECORD_BYTES, MAX_SELECTOR_RANGES, encode_map};

use crate::group::Group;

const SLOTS: u32 = 1024;

/// Prints the rows.
pub fn run(quick: bool) -> Result<()> {
    joins()?;
    imbalance(if quick { 5 } else { 50 })?;
    rolling_update()?;
    churn(if quick { 100 } else { 1_000 })
}

fn row(what: &str, peer: &str, goal: Goal, measured: f64, unit: &str) -> Result<()> {
    Row { what, peer: peer.to_owned(), goal, measured, unit, any_size: true }.print()
}

/// One replica after the other joins.
fn joins() -> Result<()> {
    let mut group = Group::new(SLOTS)?;
    let (mut worst, mut widest) = (0.0_f64, 0);
    for replicas in 1..=16_u32 {
        group.join(&format!("replica-{replicas:02}"), "1");
        group.settle()?;
        let (moved, _) = group.take_moves();
        let share = SLOTS.div_ceil(replicas);
        if replicas > 1 {
            worst = worst.max(f64::from(moved) / f64::from(share));
        }
        let (most, fewest) = group.spread();
        widest = widest.max(most - fewest);
    }
    row("a join: slots moved / ⌈S/(N+1)⌉, N = 1…15, worst", "–", Goal::AtMost(1.0), worst, "×")?;
    row("a join: most − fewest slots afterwards, worst", "–", Goal::AtMost(1.0), f64::from(widest), "slots")
}

/// Random uids on ten replicas.
fn imbalance(populations: u64) -> Result<()> {
    const REPLICAS: usize = 10;
    const OBJECTS: usize = 20_000;
    let mut group = Group::new(SLOTS)?;
    for replica in 0..REPLICAS {
        group.join(&format!("replica-{replica:02}"), "1");
    }
    group.settle()?;
    let counts = group.map.counts();
    let place: Vec<_> = counts.keys().copied().collect();
    let mut ratios: Vec<f64> = Vec::new();
    for seed in 0..populations {
        let entropy = Entropy::seeded(seed);
        let mut objects = vec![0_u32; place.len()];
        for _ in 0..OBJECTS {
            let slot = KeyFunction::Uid.slot_of_key(&entropy.uid(), group.map.identity.slots);
            let owner = group.map.get(slot).and_then(|assignment| assignment.owner.as_ref());
            if let Some(at) = owner.and_then(|owner| place.iter().position(|id| *id == owner)) {
                objects[at] += 1;
            }
        }
        let most = objects.iter().copied().max().unwrap_or_default();
        ratios.push(f64::from(most) * place.len() as f64 / OBJECTS as f64);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    let worst = ratios.last().copied().unwrap_or_default();
    row("objects, max/mean, N = 10, 20k objects, median", "1.15–1.25", Goal::AtMost(1.07), median, "×")?;
    row("objects, max/mean, N = 10, 20k objects, worst", "1.15–1.25", Goal::AtMost(1.07), worst, "×")
}

/// Every replica is replaced by one of a new revision that comes first (maxSurge 1, maxUnavailable 0).
fn rolling_update() -> Result<()> {
    let (mut most, mut share) = (0, 0.0_f64);
    for replicas in [2, 3, 5, 10, 20] {
        let mut group = Group::new(SLOTS)?;
        for replica in 0..replicas {
            group.join(&format!("old-{replica:02}"), "1");
        }
        group.settle()?;
        group.pass(Duration::from_secs(3_600));
        group.take_moves();
        for replica in 0..replicas {
            group.join(&format!("new-{replica:02}"), "2");
            group.settle()?;
            group.pass(Duration::from_secs(5));
            group.settle()?;
            group.leave(&format!("old-{replica:02}"))?;
            group.settle()?;
            group.pass(Duration::from_secs(5));
        }
        group.pass(Duration::from_secs(120));
        group.settle()?;
        let (moved, often) = group.take_moves();
        most = most.max(often);
        share = share.max(f64::from(moved) / f64::from(SLOTS));
    }
    let what = "rolling update, N = 2…20: moves of the most restless slot";
    row(what, "most objects twice", Goal::AtMost(1.0), f64::from(most), "moves")?;
    row("rolling update, N = 2…20: slots that move", "most twice", Goal::AtMost(1.0), share, "× S")
}

/// Replicas come, leave and crash in any order.
fn churn(changes: u64) -> Result<()> {
    let (mut ranges, mut foreign, mut bytes) = (0, 0.0_f64, 0);
    for (slots, most) in [(SLOTS, 10), (16_384, 40)] {
        let entropy = Entropy::seeded(u64::from(slots));
        let mut group = Group::new(slots)?;
        let mut present: Vec<String> = Vec::new();
        for change in 0..changes / if slots > SLOTS { 10 } else { 1 } {
            let joins = present.len() < 2 || (present.len() < most && entropy.below(2) == 0);
            match (joins, entropy.below(2)) {
                (true, _) => {
                    let name = format!("web-7d9f8b6c5d-{}-{change}", entropy.name_suffix(5));
                    group.join(&name, "1");
                    present.push(name);
                }
                (false, gently) => {
                    let name = present.swap_remove(entropy.below(present.len() as u64) as usize);
                    match gently {
                        0 => group.leave(&name)?,
                        _ => group.crash(&name),
                    }
                }
            }
            group.settle()?;
            // An hour later whatever is not urgent has been done.
            for _ in 0..12 {
                group.pass(Duration::from_secs(300));
                group.settle()?;
            }
            bytes = bytes.max(serde_json::to_vec(&encode_map(&group.map))?.len());
            if slots == SLOTS {
                let (most, through) = group.selectors();
                (ranges, foreign) = (ranges.max(most), foreign.max(through));
            }
        }
    }
    let what = "ranges of a replica's selector an hour after each of many joins and leaves, N ≤ 10";
    row(what, "–", Goal::AtMost(MAX_SELECTOR_RANGES as f64), ranges as f64, "ranges")?;
    let what = "slots beyond its own that a selector lets through for that, worst, of 1024";
    row(what, "all", Goal::AtMost(10.0), foreign, "slots")?;
    let what = "size of the record, up to 16,384 slots and 40 replicas";
    row(what, "–", Goal::AtMost(MAX_RECORD_BYTES as f64 / 1024.0), bytes as f64 / 1024.0, "KiB")
}
