//! The proof: from what every replica wrote down, that no object had two at once and none was left alone. Pure.

use std::collections::BTreeMap;
use std::fmt;

use shoal_sharding::Slot;

use super::trail::{Fact, Micros, Span};

/// Two on one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two processes worked on a slot at the same time.
    Overlap(Span, Span),
    /// Somebody began work with an older token than somebody before.
    OldEpoch(Span, Span),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, a, b) = match self {
            Violation::Overlap(a, b) => ("two at once", a, b),
            Violation::OldEpoch(a, b) => ("an old epoch after a new one", a, b),
        };
        let span = |s: &Span| {
            format!(
                "replica {} on object {} with epoch {} from {} to {}",
                s.replica, s.key, s.epoch, s.start, s.end
            )
        };
        write!(f, "slot {}: {what}: {}; {}", a.slot, span(a), span(b))
    }
}

/// Everything that is wrong with who worked when. Looks at slots, of which an object has only one, so it is stricter than
/// objects alone: work of two processes on one slot must not touch in time, and epochs must not fall.
pub fn violations(spans: &[Span]) -> Vec<Violation> {
    let mut by_slot: BTreeMap<Slot, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        by_slot.entry(span.slot).or_default().push(span);
    }
    let mut found = Vec::new();
    for spans in by_slot.values_mut() {
        spans.sort_by_key(|span| (span.start, span.end));
        // Of each process the span that lasts longest so far.
        let mut lasting: Vec<&Span> = Vec::new();
        let mut newest: Option<&Span> = None;
        for span in spans.iter().copied() {
            let others =
                lasting.iter().filter(|other| other.replica != span.replica && other.end > span.start);
            found.extend(others.map(|other| Violation::Overlap(**other, *span)));
            match lasting.iter_mut().find(|other| other.replica == span.replica) {
                Some(own) if own.end < span.end => *own = span,
                Some(_) => {}
                None => lasting.push(span),
            }
            match newest {
                Some(before) if before.epoch > span.epoch => found.push(Violation::OldEpoch(*before, *span)),
                _ => newest = Some(span),
            }
        }
    }
    found
}

/// Somebody changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub key: u32,
    /// What it says since then; grows with every change of the object.
    pub content: u64,
    /// When the server had stored it.
    pub at: Micros,
}

/// How long a change had to wait, without times of outage; none if nobody ever looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The change.
    pub change: Change,
    /// Until somebody began to work on it.
    pub after: Option<Micros>,
}

/// For each change, when somebody who saw it began to work. While the API server is out nobody can know, so that time is left out.
pub fn reactions(spans: &[Span], changes: &[Change], outages: &[(Micros, Micros)]) -> Vec<Reaction> {
    let mut by_key: BTreeMap<u32, Vec<(Micros, u64)>> = BTreeMap::new();
    for span in spans {
        if let Some(seen) = span.seen {
            by_key.entry(span.key).or_default().push((span.start, seen));
        }
    }
    by_key.values_mut().for_each(|spans| spans.sort_unstable());
    let react = |change: &Change| {
        let spans = by_key.get(&change.key).map(Vec::as_slice).unwrap_or_default();
        // A later state contains the earlier one.
        let first = spans.iter().find(|(_, seen)| *seen >= change.content).map(|(start, _)| *start);
        Reaction { change: *change, after: first.map(|start| passed(change.at, start, outages)) }
    };
    changes.iter().map(react).collect()
}

/// The same times, none of them twice.
pub fn merged(mut times: Vec<(Micros, Micros)>) -> Vec<(Micros, Micros)> {
    times.sort_unstable();
    let mut all: Vec<(Micros, Micros)> = Vec::new();
    for (from, to) in times {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// Time from one moment to another, outages left out.
fn passed(from: Micros, to: Micros, outages: &[(Micros, Micros)]) -> Micros {
    let out: Micros = outages.iter().map(|(start, end)| to.min(*end).saturating_sub(from.max(*start))).sum();
    to.saturating_sub(from).saturating_sub(out)
}

/// Reactions that took longer than allowed, or never came.
pub fn gaps(reactions: &[Reaction], bound: Micros) -> Vec<Reaction> {
    reactions.iter().copied().filter(|reaction| reaction.after.is_none_or(|after| after > bound)).collect()
}

/// How long slots were nobody's, from the end of one tenure to the beginning of the next, one value per slot and change of hands.
/// `facts` are of all processes.
pub fn handovers(facts: &[Fact]) -> Vec<Micros> {
    let mut gained: BTreeMap<Slot, Vec<(u64, Micros)>> = BTreeMap::new();
    let mut lost: BTreeMap<(Slot, u64), Micros> = BTreeMap::new();
    for fact in facts {
        match fact {
            Fact::Gained { at, slots, epoch } => {
                slots.slots().for_each(|slot| gained.entry(slot).or_default().push((*epoch, *at)));
            }
            Fact::Lost { at, slots, epoch } => {
                lost.extend(slots.slots().map(|slot| ((slot, *epoch), *at)));
            }
            _ => {}
        }
    }
    let mut times = Vec::new();
    for (slot, tenures) in &mut gained {
        tenures.sort_unstable();
        for pair in tenures.windows(2) {
            if let Some(until) = lost.get(&(*slot, pair[0].0)) {
                times.push(pair[1].1.saturating_sub(*until));
            }
        }
    }
    times.sort_unstable();
    times
}

/// The value that `share` of all sorted values do not exceed.
pub fn quantile(sorted: &[Micros], share: f64) -> Micros {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shoal_sharding::SlotRange;

    use super::*;

    const SLOTS: u32 = 4;

    fn span(replica: usize, slot: Slot, epoch: u64, start: Micros, end: Micros) -> Span {
        Span { replica, key: slot, slot, epoch, seen: Some(0), start, end }
    }

    /// Tenures one after the other, with work inside each; what a correct run leaves behind.
    fn correct_run() -> impl Strategy<Value = Vec<Span>> {
        let tenure =
            (0_usize..5, 1_u64..50, proptest::collection::vec((0_u64..100, 1_u64..50, 0_u32..8), 0..6));
        proptest::collection::vec(proptest::collection::vec(tenure, 0..5), SLOTS as usize).prop_map(|slots| {
            let mut spans = Vec::new();
            for (slot, tenures) in slots.into_iter().enumerate() {
                let mut now = 0;
                for (epoch, (replica, pause, work)) in tenures.into_iter().enumerate() {
                    let began = now + pause;
                    now = began;
                    for (after, length, key) in work {
                        let start = began + after;
                        now = now.max(start + length);
                        // Keys of a slot are its own.
                        let key = key * SLOTS + slot as u32;
                        let (slot, epoch) = (slot as Slot, epoch as u64);
                        spans.push(Span { key, ..span(replica, slot, epoch, start, start + length) });
                    }
                }
            }
            spans
        })
    }

    /// The definition, without any cleverness.
    fn has_overlap(spans: &[Span]) -> bool {
        let clash = |a: &Span, b: &Span| {
            a.slot == b.slot && a.replica != b.replica && a.start < b.end && b.start < a.end
        };
        spans.iter().any(|a| spans.iter().any(|b| clash(a, b)))
    }

    proptest! {
        #[test]
        fn a_correct_run_has_no_violations(spans in correct_run()) {
            prop_assert_eq!(violations(&spans), []);
        }

        #[test]
        fn a_planted_overlap_is_found(spans in correct_run(), at in any::<prop::sample::Index>(), length in 1_u64..30) {
            prop_assume!(!spans.is_empty());
            let mut spans = spans;
            let victim = spans[at.index(spans.len())];
            let start = (victim.end - 1).saturating_sub(length / 2);
            spans.push(Span { replica: 99, start, end: start + length, ..victim });
            let found = violations(&spans);
            prop_assert!(found.iter().any(|v| matches!(v, Violation::Overlap(..))), "{:?}", spans);
        }

        #[test]
        fn overlaps_are_found_exactly_where_there_are_any(
            raw in proptest::collection::vec((0_usize..3, 0_u32..SLOTS, 0_u64..40, 1_u64..8), 0..30),
        ) {
            let spans: Vec<Span> = raw.into_iter().map(|(r, slot, start, n)| span(r, slot, 1, start, start + n)).collect();
            let found = violations(&spans).iter().any(|v| matches!(v, Violation::Overlap(..)));
            prop_assert_eq!(found, has_overlap(&spans));
        }

        #[test]
        fn a_planted_gap_is_found(spans in correct_run(), at in any::<prop::sample::Index>(), bound in 1_u64..100) {
            prop_assume!(!spans.is_empty());
            let victim = spans[at.index(spans.len())];
            let seen = |change: Change| reactions(&spans, &[change], &[]);
            let prompt = Change { key: victim.key, content: 0, at: victim.start };
            prop_assert_eq!(gaps(&seen(prompt), 0), []);
            let never = Change { content: 1, ..prompt };
            prop_assert_eq!(gaps(&seen(never), u64::MAX).len(), 1);
            let first = spans.iter().filter(|s| s.key == victim.key).map(|s| s.start).min().unwrap_or_default();
            if first > bound {
                let late = Change { at: first - bound - 1, ..prompt };
                prop_assert_eq!(gaps(&seen(late), bound).len(), 1);
                prop_assert_eq!(gaps(&seen(late), bound + 1), []);
            }
        }
    }

    #[test]
    fn an_old_epoch_after_a_new_one_is_found() {
        let spans = [span(1, 0, 5, 0, 10), span(2, 0, 4, 20, 30)];
        assert!(matches!(violations(&spans)[..], [Violation::OldEpoch(..)]));
    }

    #[test]
    fn one_process_may_work_on_many_objects_of_a_slot_at_once() {
        assert_eq!(violations(&[span(1, 0, 1, 0, 10), span(1, 0, 1, 5, 7), span(2, 0, 2, 10, 12)]), []);
    }

    #[test]
    fn a_long_span_is_not_forgotten_behind_a_short_one() {
        let spans = [span(1, 0, 1, 0, 100), span(1, 0, 1, 5, 7), span(2, 0, 1, 50, 60)];
        assert!(matches!(violations(&spans)[..], [Violation::Overlap(..)]));
    }

    #[test]
    fn time_without_an_api_server_does_not_count() {
        let spans = [span(1, 0, 1, 500, 501)];
        let change = Change { key: 0, content: 0, at: 100 };
        let after = |outages: &[(Micros, Micros)]| reactions(&spans, &[change], outages)[0].after;
        assert_eq!(after(&[]), Some(400));
        assert_eq!(after(&[(50, 150), (200, 300), (900, 950)]), Some(250));
    }

    #[test]
    fn times_that_overlap_count_once() {
        assert_eq!(merged(vec![(5, 9), (1, 3), (2, 4), (9, 10), (20, 21)]), [(1, 4), (5, 10), (20, 21)]);
    }

    #[test]
    fn a_handover_is_from_the_loss_to_the_next_gain() {
        let slots = SlotRange { start: 0, end: 2 };
        let facts = [
            Fact::Gained { at: 1, slots, epoch: 1 },
            Fact::Lost { at: 10, slots, epoch: 1 },
            Fact::Gained { at: 14, slots: SlotRange::one(0), epoch: 2 },
            Fact::Gained { at: 19, slots: SlotRange::one(1), epoch: 2 },
        ];
        assert_eq!(handovers(&facts), [4, 9]);
        assert_eq!((quantile(&[4, 9], 0.5), quantile(&[4, 9], 0.99), quantile(&[], 0.5)), (4, 9, 0));
    }
}
