//! After much coming and going a node's slots lie scattered, and a selector of few ranges lets slots of others through.
//! Exchanges put them together again: nobody has more or fewer slots than before.

use crate::algorithm::NOBODY;
use crate::slots::{Slot, SlotRange};

/// A selector has this many ranges at most; beyond, slots are put together.
const MOST_RANGES: usize = crate::key::MAX_SELECTOR_RANGES;

/// Once begun, it goes on a little further, so that the next newcomer does not start it again.
const ENOUGH: usize = MOST_RANGES * 3 / 4;

/// The most slots that one call moves.
const MOST_MOVED: u32 = 64;

/// Slots of one node that lie side by side.
#[derive(Clone, Copy)]
struct Piece {
    slots: SlotRange,
    node: u16,
}

/// A piece goes to a node beside it, which gives as many slots where it meets the piece's node elsewhere.
struct Exchange {
    piece: SlotRange,
    from: u16,
    to: u16,
    back: SlotRange,
}

/// Whether somebody has more ranges than a selector can name.
pub(super) fn is_scattered(owner: &[u16], nodes: usize) -> bool {
    counts(&pieces(owner), nodes).into_iter().any(|count| count > MOST_RANGES)
}

/// Exchanges small pieces of whoever has too many.
pub(super) fn compact(owner: &mut [u16], pinned: &[bool], nodes: usize) {
    if !is_scattered(owner, nodes) {
        return;
    }
    let mut left = MOST_MOVED;
    while left > 0 {
        let pieces = pieces(owner);
        let counts = counts(&pieces, nodes);
        let Some(most) = (0..nodes).filter(|node| counts[*node] > ENOUGH).max_by_key(|node| counts[*node])
        else {
            return;
        };
        let Some(exchange) = exchange(&pieces, most as u16, pinned) else { return };
        let Exchange { piece, from, to, back } = exchange;
        piece.slots().for_each(|slot| owner[slot as usize] = to);
        back.slots().for_each(|slot| owner[slot as usize] = from);
        left = left.saturating_sub(piece.len() * 2);
    }
}

fn pieces(owner: &[u16]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (slot, node) in owner.iter().enumerate() {
        match pieces.last_mut().filter(|last| last.node == *node) {
            Some(last) => last.slots.end += 1,
            None => pieces.push(Piece { slots: SlotRange::one(slot as Slot), node: *node }),
        }
    }
    pieces
}

fn counts(pieces: &[Piece], nodes: usize) -> Vec<usize> {
    let mut counts = vec![0; nodes];
    pieces.iter().for_each(|piece| {
        if let Some(count) = counts.get_mut(usize::from(piece.node)) {
            *count += 1;
        }
    });
    counts
}

/// The cheapest exchange that leaves `node` with one range less: closing a gap of the other node comes first, then the smallest piece.
fn exchange(pieces: &[Piece], node: u16, pinned: &[bool]) -> Option<Exchange> {
    let movable = |range: SlotRange| range.slots().all(|slot| !pinned[slot as usize]);
    let beside = |at: usize| {
        let before = at.checked_sub(1).map(|at| pieces[at].node);
        (before, pieces.get(at + 1).map(|piece| piece.node))
    };
    let mut best: Option<((bool, std::cmp::Reverse<u32>), Exchange)> = None;
    for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.node == node) {
        let (before, after) = beside(at);
        let rank = (before == after, std::cmp::Reverse(piece.slots.len()));
        if best.as_ref().is_some_and(|(known, _)| *known >= rank) || !movable(piece.slots) {
            continue;
        }
        let neighbours = [before, after].into_iter().flatten().filter(|to| *to != NOBODY);
        let found = neighbours.filter_map(|to| {
            let back = room(pieces, at, to, &movable)?;
            Some(Exchange { piece: piece.slots, from: node, to, back })
        });
        if let Some(exchange) = found.into_iter().next() {
            best = Some((rank, exchange));
        }
    }
    best.map(|(_, exchange)| exchange)
}

/// Slots of `to` beside another piece of the node that gives piece `at`, as many as it has.
fn room(pieces: &[Piece], at: usize, to: u16, movable: &dyn Fn(SlotRange) -> bool) -> Option<SlotRange> {
    let (wanted, node) = (pieces[at].slots.len(), pieces[at].node);
    (0..pieces.len()).find_map(|place| {
        let Piece { slots, node: owner } = pieces[place];
        // The pieces beside the one that is given away become one with it.
        if owner != to || slots.len() < wanted || place.abs_diff(at) == 1 && slots.len() == wanted {
            return None;
        }
        let is_own =
            |beside: usize| beside != at && pieces.get(beside).is_some_and(|piece| piece.node == node);
        let first = SlotRange { start: slots.start, end: slots.start + wanted };
        let last = SlotRange { start: slots.end - wanted, end: slots.end };
        let before = place > 0 && is_own(place - 1) && movable(first);
        let after = is_own(place + 1) && movable(last);
        before.then_some(first).or(after.then_some(last))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(owner: &[u16], nodes: usize) -> Vec<usize> {
        (0..nodes).map(|node| owner.iter().filter(|at| usize::from(**at) == node).count()).collect()
    }

    fn ranges(owner: &[u16], nodes: usize) -> Vec<usize> {
        counts(&pieces(owner), nodes)
    }

    proptest! {
        #[test]
        fn exchanges_leave_everybody_as_many_slots_in_fewer_ranges(
            lengths in prop::collection::vec((1usize..12, 0u16..6), 60..200),
            pins in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut owner: Vec<u16> =
                lengths.iter().flat_map(|(length, node)| std::iter::repeat_n(*node, *length)).collect();
            let mut pinned = vec![false; owner.len()];
            pins.iter().for_each(|pin| pinned[pin.index(owner.len())] = true);
            let before = owner.clone();
            let began = pieces(&owner).len();
            compact(&mut owner, &pinned, 6);
            prop_assert_eq!(held(&owner, 6), held(&before, 6));
            prop_assert!(pieces(&owner).len() <= began);
            let moved = owner.iter().zip(&before).filter(|(a, b)| a != b).count();
            prop_assert!(moved <= MOST_MOVED as usize * 2, "{} moved", moved);
            prop_assert!((0..owner.len()).all(|slot| !pinned[slot] || owner[slot] == before[slot]));
            prop_assert_eq!(moved == 0, owner == before);
            if moved > 0 {
                prop_assert!(is_scattered(&before, 6) && pieces(&owner).len() < began);
            }
        }
    }

    #[test]
    fn scattered_slots_come_together_in_a_few_rounds_and_then_stay() {
        // The worst there is: every slot beside slots of others.
        let mut owner: Vec<u16> = (0..1024).map(|slot| (slot % 8) as u16).collect();
        let pinned = vec![false; owner.len()];
        let before = held(&owner, 8);
        let mut rounds = 0;
        while is_scattered(&owner, 8) {
            let last = owner.clone();
            compact(&mut owner, &pinned, 8);
            assert_ne!(owner, last, "stuck after {rounds} rounds with {:?}", ranges(&owner, 8));
            rounds += 1;
        }
        assert_eq!(held(&owner, 8), before);
        let last = owner.clone();
        compact(&mut owner, &pinned, 8);
        assert_eq!(owner, last);
    }
}
