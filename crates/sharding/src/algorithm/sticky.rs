//! `sticky`, the default: everybody keeps what it has, as far as the quotas allow, and neighbours stay or come together.

use crate::algorithm::compact::{compact, is_scattered};
use crate::algorithm::{Algorithm, NOBODY, Request};
use crate::slots::{Slot, SlotRange};

/// Minimal movement: a join moves only what the newcomer gets, a leave only what the leaver had.
#[derive(Clone, Copy, Debug)]
pub struct Sticky;

impl Algorithm for Sticky {
    fn name(&self) -> &str {
        "sticky"
    }

    fn wants_to_move(&self, request: &Request<'_>) -> bool {
        is_scattered(request.current, request.nodes.len())
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        let nodes = request.nodes.len();
        let mut owner: Vec<u16> = request.current.to_vec();
        owner.resize(request.slots.get() as usize, NOBODY);
        let mut pinned = vec![false; owner.len()];
        for (slot, node) in request.pins {
            if let Some(place) = owner.get_mut(*slot as usize) {
                *place = *node;
                pinned[*slot as usize] = true;
            }
        }
        let mut counts = vec![0_u32; nodes];
        for node in &mut owner {
            match counts.get_mut(usize::from(*node)) {
                Some(count) => *count += 1,
                None => *node = NOBODY,
            }
        }
        let quotas = quotas(request, &counts);
        if !request.only_orphans {
            for node in 0..nodes {
                give_up(&mut owner, &pinned, node as u16, counts[node].saturating_sub(quotas[node]));
            }
        }
        fill(&mut owner, request, &quotas);
        // When nothing else has to move: a join stays as cheap as it can be.
        if !request.only_orphans && owner == request.current {
            compact(&mut owner, &pinned, nodes);
        }
        if let Some(loads) = request.loads.filter(|_| !request.only_orphans) {
            swap_by_load(&mut owner, &pinned, loads, request);
        }
        owner
    }
}

/// Slots per node by weight; they add up to all slots. Of equal claims to a remainder the one with more slots wins, so that it keeps them.
pub(super) fn quotas(request: &Request<'_>, counts: &[u32]) -> Vec<u32> {
    let slots = u64::from(request.slots.get());
    let total: u64 = request.nodes.iter().map(|node| u64::from(node.weight)).sum();
    // Without any weight everybody is equal.
    let weight = |at: usize| if total == 0 { 1 } else { u64::from(request.nodes[at].weight) };
    let total = if total == 0 { request.nodes.len() as u64 } else { total };
    let mut quotas: Vec<u32> =
        (0..request.nodes.len()).map(|at| (slots * weight(at) / total.max(1)) as u32).collect();
    let mut left = slots.saturating_sub(quotas.iter().map(|quota| u64::from(*quota)).sum());
    let mut order: Vec<usize> = (0..request.nodes.len()).filter(|at| weight(*at) > 0).collect();
    let remainder = |at: usize| slots * weight(at) % total.max(1);
    let keeps = |at: usize| match request.only_orphans {
        // Who replaces a leaver takes everything that it had.
        true => counts[at],
        false => u32::MAX - counts[at],
    };
    order.sort_by_key(|at| (std::cmp::Reverse(remainder(*at)), keeps(*at), *at));
    for at in order.iter().cycle().take(order.len() * 2) {
        if left == 0 {
            break;
        }
        quotas[*at] += 1;
        left -= 1;
    }
    quotas
}

/// Takes a surplus from a node: whole small ranges first, then a piece beside slots that are free already.
fn give_up(owner: &mut [u16], pinned: &[bool], node: u16, mut surplus: u32) {
    while surplus > 0 {
        let movable = |slot: Slot| owner[slot as usize] == node && !pinned[slot as usize];
        let ranges = crate::slots::ranges_of((0..owner.len() as Slot).filter(|slot| movable(*slot)));
        let Some(smallest) = ranges.into_iter().min_by_key(|range| range.len()) else { return };
        let take = smallest.len().min(surplus);
        let free_before = smallest.start > 0 && owner[smallest.start as usize - 1] == NOBODY;
        let piece = match free_before {
            true => SlotRange { start: smallest.start, end: smallest.start + take },
            false => SlotRange { start: smallest.end - take, end: smallest.end },
        };
        piece.slots().for_each(|slot| owner[slot as usize] = NOBODY);
        surplus -= take;
    }
}

/// Gives free slots to whoever lacks most, beside its own where that is possible.
fn fill(owner: &mut [u16], request: &Request<'_>, quotas: &[u32]) {
    let mut counts = vec![0_u32; quotas.len()];
    for node in owner.iter() {
        if let Some(count) = counts.get_mut(usize::from(*node)) {
            *count += 1;
        }
    }
    let able: Vec<usize> = (0..quotas.len()).filter(|at| request.nodes[*at].weight > 0).collect();
    let able = if able.is_empty() { (0..quotas.len()).collect() } else { able };
    // Who has nothing yet most likely replaces whoever left: it takes all of it, so that nothing moves twice.
    let empty: Vec<usize> =
        able.iter().copied().filter(|at| counts[*at] == 0 && request.only_orphans).collect();
    let able = if empty.is_empty() { able } else { empty };
    let mut last = None;
    loop {
        let free = crate::slots::ranges_of((0..owner.len() as Slot).filter(|s| owner[*s as usize] == NOBODY));
        if free.is_empty() {
            return;
        }
        let lacks = |at: usize| i64::from(quotas[at]) - i64::from(counts[at]);
        // Of equals the one that was just given something: what one node left stays together.
        let rank = |at: &usize| (lacks(*at), last == Some(*at), std::cmp::Reverse(*at));
        let Some(taker) = able.iter().copied().max_by_key(rank) else { return };
        last = Some(taker);
        // Beyond the quota slots are dealt one at a time, which keeps the difference small.
        let want = lacks(taker).max(1) as u32;
        let beside = |range: &SlotRange| {
            let before = range.start > 0 && usize::from(owner[range.start as usize - 1]) == taker;
            let after = owner.get(range.end as usize).is_some_and(|node| usize::from(*node) == taker);
            (before, after)
        };
        let best = |range: &&SlotRange| {
            let (before, after) = beside(range);
            let fits = range.len() <= want;
            // Closing a gap is best, then growing, then a range that need not be cut; larger ones first.
            (before && after && fits, before || after, fits, range.len())
        };
        let Some(range) = free.iter().max_by_key(best) else { return };
        let take = range.len().min(want);
        let piece = match beside(range) {
            (false, true) => SlotRange { start: range.end - take, end: range.end },
            _ => SlotRange { start: range.start, end: range.start + take },
        };
        piece.slots().for_each(|slot| owner[slot as usize] = taker as u16);
        counts[taker] += take;
    }
}

/// Exchanges busy slots of the busiest node for quiet ones of the quietest while that brings them closer. Counts stay.
fn swap_by_load(owner: &mut [u16], pinned: &[bool], loads: &[u32], request: &Request<'_>) {
    let load = |slot: usize| u64::from(loads.get(slot).copied().unwrap_or_default());
    for _ in 0..64 {
        let mut sums = vec![0_u64; request.nodes.len()];
        (0..owner.len()).for_each(|slot| sums[usize::from(owner[slot])] += load(slot));
        let relative = |at: usize| sums[at] as f64 / f64::from(request.nodes[at].weight.max(1));
        let by_load = |a: &usize, b: &usize| relative(*a).total_cmp(&relative(*b));
        let Some(most) = (0..sums.len()).max_by(by_load) else { return };
        let Some(least) = (0..sums.len()).min_by(by_load) else { return };
        let mean = sums.iter().sum::<u64>() as f64 / sums.len() as f64;
        if most == least || (sums[most] as f64) <= mean * (1.0 + request.threshold) {
            return;
        }
        let held: &[u16] = owner;
        let of = |node: usize| {
            (0..held.len()).filter(move |slot| usize::from(held[*slot]) == node && !pinned[*slot])
        };
        let Some(quiet) = of(least).min_by_key(|slot| (load(*slot), *slot)) else { return };
        let gap = sums[most] - sums[least];
        // The exchange must not make the quietest the busiest, or slots would wander for ever.
        let useful = |slot: &usize| load(*slot) > load(quiet) && load(*slot) - load(quiet) < gap;
        let half = gap / 2;
        let Some(busy) =
            of(most).filter(useful).min_by_key(|slot| (load(*slot) - load(quiet)).abs_diff(half))
        else {
            return;
        };
        owner.swap(busy, quiet);
    }
}
