//! From an object to its slot, and from slots to what the server is asked for.

use std::fmt::Write as _;
use std::sync::Arc;

use shoal_sharding::{KeyFunction, ObjectKey, Slot, SlotCount, SlotRange, ranges_of};

use crate::cache::{Division, Encoded, Filter, Part};

/// A key of the user's own: a text made of fields of the object that never change.
pub type UserKey = Arc<dyn Fn(&Encoded) -> String + Send + Sync>;

/// Longer label selectors are left out; the check on this side works without.
const LONGEST_SELECTOR: usize = 6_000;

/// Before the name of the group, in the label that children carry.
const LABEL_DOMAIN: &str = "slot.sharding.shoal.dev";

/// How the objects of a group fall into slots.
#[derive(Clone)]
pub(crate) struct Partition {
    pub(crate) slots: SlotCount,
    pub(crate) function: KeyFunction,
    pub(crate) user: Option<UserKey>,
    /// The label that says a child's slot.
    pub(crate) label: Arc<str>,
    /// Whether the server is asked for children by that label.
    pub(crate) children_by_label: bool,
}

/// Some slots, as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotSet(Vec<bool>);

impl SlotSet {
    pub(crate) fn none(slots: SlotCount) -> SlotSet {
        SlotSet(vec![false; slots.get() as usize])
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.0.get(slot as usize).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, slot: Slot, wanted: bool) {
        if let Some(place) = self.0.get_mut(slot as usize) {
            *place = wanted;
        }
    }

    pub(crate) fn ranges(&self) -> Vec<SlotRange> {
        ranges_of((0..).zip(&self.0).filter(|(_, wanted)| **wanted).map(|(slot, _)| slot))
    }

    /// The slots of this that the other has not.
    pub(crate) fn without(&self, other: &SlotSet) -> SlotSet {
        SlotSet(self.0.iter().zip(&other.0).map(|(here, there)| *here && !there).collect())
    }

    /// Exactly these slots.
    pub(crate) fn of(slots: SlotCount, ranges: impl IntoIterator<Item = SlotRange>) -> SlotSet {
        let mut set = SlotSet::none(slots);
        ranges.into_iter().flat_map(|range| range.slots()).for_each(|slot| set.set(slot, true));
        set
    }

    fn is_full(&self) -> bool {
        self.0.iter().all(|wanted| *wanted)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.iter().any(|wanted| *wanted)
    }
}

impl Partition {
    pub(crate) fn label_of(group: &str) -> Arc<str> {
        format!("{LABEL_DOMAIN}/{group}").into()
    }

    /// The slot of an object that is looked after.
    pub(crate) fn slot_of(&self, object: &Encoded) -> Slot {
        if let Some(user) = &self.user {
            return self.function.slot_of_key(&user(object), self.slots);
        }
        let uid = match self.function {
            KeyFunction::Uid | KeyFunction::RootOwner => object.uid().to_string(),
            _ => String::new(),
        };
        let key = ObjectKey { uid: &uid, namespace: object.namespace(), name: object.name(), root_owner: "" };
        self.function.slot_of(key, self.slots)
    }

    /// The slot of the object that owns this one, if that can be told from here.
    pub(crate) fn slot_of_child(&self, child: &Encoded) -> Option<Slot> {
        match (&self.function, child.controller()) {
            (KeyFunction::Uid, Some(owner)) => Some(self.function.slot_of_key(&owner.uid, self.slots)),
            (KeyFunction::Namespace, _) => Some(self.function.slot_of_key(child.namespace(), self.slots)),
            _ => child.label(&self.label)?.parse().ok().filter(|slot| *slot < self.slots.get()),
        }
    }

    /// Which objects of a cache belong to these slots. Children of whom nobody can tell whose they are stay.
    pub(crate) fn filter(&self, division: Division, wanted: &Arc<SlotSet>) -> Filter {
        let (partition, wanted) = (self.clone(), wanted.clone());
        match division {
            Division::Whole => Arc::new(|_| true),
            Division::Primary => Arc::new(move |object| wanted.contains(partition.slot_of(object))),
            Division::Owned => Arc::new(move |object| {
                partition.slot_of_child(object).is_none_or(|slot| wanted.contains(slot))
            }),
        }
    }

    /// Which objects of a cache are certainly of these slots.
    pub(crate) fn filter_of(&self, division: Division, slots: &Arc<SlotSet>) -> Filter {
        let (partition, slots) = (self.clone(), slots.clone());
        match division {
            Division::Owned => Arc::new(move |object| {
                partition.slot_of_child(object).is_some_and(|slot| slots.contains(slot))
            }),
            _ => self.filter(division, &slots),
        }
    }

    /// What the server is asked for; a superset of the slots. `labels` are those of the scope.
    pub(crate) fn part(&self, division: Division, wanted: &SlotSet, labels: Option<&str>) -> Part {
        let labels = labels.map(str::to_owned);
        if wanted.is_full() {
            return Part { shard: None, labels };
        }
        // Somebody who wants nothing asks for as little as can be asked for.
        let ranges = if wanted.is_empty() { vec![SlotRange::one(0)] } else { wanted.ranges() };
        let by_hash = || self.function.shard_selector(&ranges, self.slots);
        match (division, &self.function) {
            (Division::Primary, _) if self.user.is_none() => Part { shard: by_hash(), labels },
            (Division::Owned, KeyFunction::Namespace) => Part { shard: by_hash(), labels },
            (Division::Owned, _) if self.children_by_label => {
                let own = self.label_selector(&ranges);
                let both = own.map(|own| labels.as_ref().map_or(own.clone(), |all| format!("{all},{own}")));
                Part { shard: None, labels: both.or(labels) }
            }
            _ => Part { shard: None, labels },
        }
    }

    fn label_selector(&self, ranges: &[SlotRange]) -> Option<String> {
        let mut text = format!("{} in (", self.label);
        let mut separator = "";
        for slot in ranges.iter().flat_map(|range| range.slots()) {
            let _ = write!(text, "{separator}{slot}");
            separator = ",";
        }
        text.push(')');
        (text.len() <= LONGEST_SELECTOR).then_some(text)
    }
}
