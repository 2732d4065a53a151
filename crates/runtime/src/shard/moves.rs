//! Planned moves, gathered until they are over, so that people read one Event about a join and not one for each step of it.
//!
//! Whoever gets slots tells of them: there is exactly one such replica, and it lives.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use shoal_sharding::{NodeInfo, NodeStatus, Pin, ReplicaId, ShardMapSpec, Slot, SlotRange};

/// A batch is over when nothing came for this many looks in a row …
const QUIET: u32 = 3;
/// … or after so many, lest a long one is never told of.
const LONGEST: u32 = 30;
/// So many givers are named.
const NAMED: usize = 8;

/// Why slots were moved, in the words of the commands that ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// The new owner had none before.
    Join,
    /// Others had more.
    Rebalance,
    /// Somebody pinned the slots.
    Move,
    /// The former owner shall have none.
    Drain,
    /// The former owner is unwell.
    Unwell,
    /// The former owner ends.
    Shutdown,
}

impl Cause {
    /// Why a slot went from `from` to `to`, as far as can be seen from there.
    pub(super) fn of(spec: &ShardMapSpec, from: &NodeInfo, to: Option<&NodeInfo>, slot: Slot) -> Cause {
        let called = |node: &NodeInfo, name: &str| node.id.as_str() == name || *node.name == *name;
        let here = |pin: &&Pin| pin.slots.parse::<SlotRange>().is_ok_and(|range| range.contains(slot));
        let pinned =
            || spec.pins.iter().rev().find(here).zip(to).is_some_and(|(pin, to)| called(to, &pin.replica));
        match from.status {
            _ if spec.cordoned.iter().any(|name| called(from, name)) => Cause::Drain,
            NodeStatus::Leaving => Cause::Shutdown,
            NodeStatus::Unhealthy => Cause::Unwell,
            _ if pinned() => Cause::Move,
            _ => Cause::Rebalance,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Cause::Join => "join",
            Cause::Rebalance => "rebalance",
            Cause::Move => "move",
            Cause::Drain => "drain",
            Cause::Unwell => "unwell",
            Cause::Shutdown => "shutdown",
        }
    }
}

/// Moves that were not told of yet.
#[derive(Default)]
pub(super) struct Moves {
    slots: BTreeMap<Cause, BTreeMap<ReplicaId, u32>>,
    quiet: u32,
    looks: u32,
    /// The first share has come.
    joined: bool,
}

impl Moves {
    /// So many slots came from there.
    pub(super) fn add(&mut self, from: &ReplicaId, cause: Cause, slots: u32) {
        let cause = if cause == Cause::Rebalance && !self.joined { Cause::Join } else { cause };
        *self.slots.entry(cause).or_default().entry(from.clone()).or_default() += slots;
        self.quiet = 0;
    }

    /// Asked at every look: what is to be told now. `owns`: whether `to` has slots.
    pub(super) fn over(&mut self, to: &ReplicaId, owns: bool) -> Vec<String> {
        self.quiet += 1;
        self.looks += 1;
        if self.quiet < QUIET && self.looks < LONGEST {
            return Vec::new();
        }
        self.looks = 0;
        self.joined |= owns && self.quiet >= QUIET;
        let told = std::mem::take(&mut self.slots);
        told.into_iter().map(|(cause, from)| message(to, cause, &from)).collect()
    }
}

fn message(to: &ReplicaId, cause: Cause, from: &BTreeMap<ReplicaId, u32>) -> String {
    let total: u32 = from.values().sum();
    let cause = cause.word();
    if let (1, Some(only)) = (from.len(), from.keys().next()) {
        return format!("moved {total} slots from {only} to {to}: {cause}");
    }
    let mut text = format!("moved {total} slots to {to}: {cause} (");
    for (nth, (giver, slots)) in from.iter().take(NAMED).enumerate() {
        let comma = if nth > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{slots} from {giver}");
    }
    if from.len() > NAMED {
        let _ = write!(text, " and others");
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use shoal_sharding::Moment;

    use super::*;

    fn node(name: &str, status: NodeStatus) -> NodeInfo {
        NodeInfo {
            id: ReplicaId::new(format!("{name}-x1")),
            name: name.into(),
            address: "".into(),
            status,
            shards: Vec::new(),
            last_seen: Moment::default(),
        }
    }

    fn told(moves: &mut Moves) -> Vec<String> {
        (0..QUIET).flat_map(|_| moves.over(&"b-x1".into(), true)).collect()
    }

    #[test]
    fn a_batch_is_told_once_when_it_is_over() {
        let mut moves = Moves::default();
        let (a, b) = (ReplicaId::from("a-x1"), ReplicaId::from("b-x1"));
        moves.add(&a, Cause::Rebalance, 5);
        assert!(moves.over(&b, true).is_empty());
        moves.add(&a, Cause::Rebalance, 7);
        assert_eq!(told(&mut moves), ["moved 12 slots from a-x1 to b-x1: join"]);
        assert!(told(&mut moves).is_empty());
        moves.add(&a, Cause::Rebalance, 1);
        moves.add(&"c-x1".into(), Cause::Rebalance, 2);
        moves.add(&a, Cause::Drain, 3);
        assert_eq!(
            told(&mut moves),
            [
                "moved 3 slots to b-x1: rebalance (1 from a-x1, 2 from c-x1)",
                "moved 3 slots from a-x1 to b-x1: drain"
            ]
        );
    }

    #[test]
    fn a_batch_that_never_ends_is_told_in_parts_and_many_givers_briefly() {
        let mut moves = Moves::default();
        let mut told = Vec::new();
        for look in 0..2 * LONGEST {
            moves.add(&ReplicaId::new(format!("r{}", look % 20)), Cause::Shutdown, 1);
            told.extend(moves.over(&"b".into(), true));
        }
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("moved 30 slots to b: shutdown (") && told[0].ends_with(" and others)"));
    }

    #[test]
    fn the_cause_is_what_somebody_asked_for_before_what_happened_by_itself() {
        let pin = |slots: &str, replica: &str| Pin { slots: slots.to_owned(), replica: replica.to_owned() };
        let spec = ShardMapSpec {
            pins: vec![pin("0-9", "c"), pin("0-3", "b"), pin("nonsense", "b")],
            cordoned: vec!["gone".to_owned()],
        };
        let (well, to) = (node("a", NodeStatus::Healthy), node("b", NodeStatus::Healthy));
        let of = |from: &NodeInfo, slot: Slot| Cause::of(&spec, from, Some(&to), slot);
        assert_eq!(of(&well, 3), Cause::Move);
        assert_eq!(of(&well, 4), Cause::Rebalance);
        assert_eq!(of(&node("gone", NodeStatus::Leaving), 0), Cause::Drain);
        assert_eq!(of(&node("a", NodeStatus::Leaving), 0), Cause::Shutdown);
        assert_eq!(of(&node("a", NodeStatus::Unhealthy), 9), Cause::Unwell);
    }
}
