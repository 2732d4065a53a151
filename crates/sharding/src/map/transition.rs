//! Every change of the record, as one pure function that refuses what would not be safe.
//!
//! What a change rests on never becomes false again (a revoked Lease stays revoked, a release is for ever), so a write that
//! reaches the server very late is as safe as a prompt one: it either finds the version it was made from or fails.

use crate::guards::{Guard, Guards};
use crate::identity::ReplicaId;
use crate::map::{Assignment, Phase, ShardMap};
use crate::members::Members;
use crate::settings::Timers;
use crate::slots::SlotRange;
use crate::time::Moment;

/// One change of some slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Slots of nobody, or of a replica whose Lease was revoked, get an owner or become nobody's.
    Assign {
        /// Which.
        slots: SlotRange,
        /// The owner, if there is one to be had.
        to: Option<ReplicaId>,
    },
    /// A planned move begins: the next owner warms up.
    Prepare {
        /// Which.
        slots: SlotRange,
        /// Who shall own them.
        next: ReplicaId,
    },
    /// The next owner is warm: the owner is to let go.
    Drain {
        /// Which.
        slots: SlotRange,
    },
    /// The owner has let go: the next one takes over.
    Complete {
        /// Which.
        slots: SlotRange,
    },
    /// The next owner is not to be had any more; another one is.
    Retarget {
        /// Which.
        slots: SlotRange,
        /// Who shall own them instead.
        next: ReplicaId,
    },
    /// The move is off; the owner stays.
    Cancel {
        /// Which.
        slots: SlotRange,
    },
    /// After a repair everybody has let go: the slots are nobody's.
    Recover {
        /// Which.
        slots: SlotRange,
    },
}

/// What changes may rest on.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// Leases as seen from here.
    pub members: &'a Members,
    /// After a repair: the longest Lease has passed since, and Leases were listed anew after that.
    pub waited_after_repair: bool,
    /// Timers of this replica.
    pub timers: &'a Timers,
    /// Which guards are on.
    pub guards: Guards,
    /// Now, on this replica's clock.
    pub now: Moment,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The slots are not all there.
    #[error("slots {0} are not in the record")]
    NoSuchSlots(SlotRange),
    /// The phase does not allow it.
    #[error("slots {slots} are {found}: {wanted} is not possible there")]
    WrongPhase {
        /// Which.
        slots: SlotRange,
        /// The transition.
        wanted: &'static str,
        /// What the record says.
        found: String,
    },
    /// The owner could still be at work.
    #[error("slots {slots} belong to {owner}, whose Lease is not revoked and who has not released them")]
    StillOwned {
        /// Which.
        slots: SlotRange,
        /// Who.
        owner: ReplicaId,
    },
    /// The new owner has ended.
    #[error("slots {slots} cannot go to {to}: its Lease is revoked")]
    Ended {
        /// Which.
        slots: SlotRange,
        /// Who.
        to: ReplicaId,
    },
    /// After a repair somebody has not confirmed yet.
    #[error("slots {0} wait for every replica to confirm the repair")]
    Unconfirmed(SlotRange),
    /// The record would not fit into an object any more.
    #[error(
        "the record would have {0} bytes: use fewer slots or an algorithm that keeps neighbours together"
    )]
    TooLarge(usize),
}

impl Facts<'_> {
    /// Whether a replica has certainly stopped for good.
    pub(crate) fn has_ended(&self, id: &ReplicaId) -> bool {
        let revoked = self.members.is_revoked(id);
        let silent = || {
            self.members.get(id).is_some_and(|member| self.now >= member.expires(self.timers, self.guards))
        };
        revoked || (!self.guards.on(Guard::RevokeFirst) && silent())
    }
}

impl Transition {
    /// Its name, for traces and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Transition::Assign { .. } => "assign",
            Transition::Prepare { .. } => "prepare",
            Transition::Drain { .. } => "drain",
            Transition::Complete { .. } => "complete",
            Transition::Retarget { .. } => "retarget",
            Transition::Cancel { .. } => "cancel",
            Transition::Recover { .. } => "recover",
        }
    }

    /// The slots it is about.
    pub fn slots(&self) -> SlotRange {
        match self {
            Transition::Assign { slots, .. }
            | Transition::Prepare { slots, .. }
            | Transition::Drain { slots }
            | Transition::Complete { slots }
            | Transition::Retarget { slots, .. }
            | Transition::Cancel { slots }
            | Transition::Recover { slots } => *slots,
        }
    }
}

/// The next version of the record, or why not. All transitions or none.
pub fn apply(map: &ShardMap, transitions: &[Transition], facts: &Facts<'_>) -> Result<ShardMap, Refusal> {
    let mut next = map.clone();
    for transition in transitions {
        let slots = transition.slots();
        if slots.is_empty() || map.identity.slots.all().common(slots) != Some(slots) {
            return Err(Refusal::NoSuchSlots(slots));
        }
        next.edit(slots, |slots, assignment| change(slots, assignment, transition, facts, map.repaired))?;
    }
    next.join();
    next.version = map.version + 1;
    match super::document::size_estimate(&next) {
        bytes if bytes > super::MAX_RECORD_BYTES => Err(Refusal::TooLarge(bytes)),
        _ => Ok(next),
    }
}

fn change(
    slots: SlotRange,
    assignment: &mut Assignment,
    transition: &Transition,
    facts: &Facts<'_>,
    repaired: u64,
) -> Result<(), Refusal> {
    let wrong =
        |a: &Assignment| Refusal::WrongPhase { slots, wanted: transition.name(), found: a.to_string() };
    let alive = |to: &ReplicaId| match facts.members.is_revoked(to) {
        true => Err(Refusal::Ended { slots, to: to.clone() }),
        false => Ok(()),
    };
    let still = |owner: &ReplicaId| Refusal::StillOwned { slots, owner: owner.clone() };
    let rise = u64::from(facts.guards.on(Guard::EpochRises));
    match transition {
        Transition::Assign { to, .. } => {
            match &assignment.owner {
                None if assignment.phase == Phase::Unowned && to.is_some() => {}
                Some(owner) if facts.has_ended(owner) => {}
                Some(owner) => return Err(still(owner)),
                None => return Err(wrong(assignment)),
            }
            to.as_ref().map_or(Ok(()), alive)?;
            let phase = if to.is_some() { Phase::Owned } else { Phase::Unowned };
            *assignment = Assignment { owner: to.clone(), epoch: assignment.epoch + rise, phase, next: None };
        }
        Transition::Prepare { next, .. } => {
            let sensible = assignment.phase == Phase::Owned && assignment.owner.as_ref() != Some(next);
            if !sensible {
                return Err(wrong(assignment));
            }
            alive(next)?;
            assignment.phase = Phase::Preparing;
            assignment.next = Some(next.clone());
        }
        Transition::Drain { .. } => {
            if assignment.phase != Phase::Preparing {
                return Err(wrong(assignment));
            }
            assignment.phase = Phase::Draining;
        }
        Transition::Complete { .. } => {
            let (Phase::Draining, Some(owner), Some(next)) =
                (assignment.phase, &assignment.owner, &assignment.next)
            else {
                return Err(wrong(assignment));
            };
            let released = facts.members.has_released(owner, slots, assignment.epoch);
            if !released && !facts.has_ended(owner) && facts.guards.on(Guard::ReleaseFirst) {
                return Err(still(owner));
            }
            alive(next)?;
            *assignment = Assignment {
                owner: Some(next.clone()),
                epoch: assignment.epoch + rise,
                phase: Phase::Owned,
                next: None,
            };
        }
        Transition::Retarget { next, .. } => {
            let sensible = assignment.phase == Phase::Draining && assignment.owner.as_ref() != Some(next);
            if !sensible {
                return Err(wrong(assignment));
            }
            alive(next)?;
            assignment.next = Some(next.clone());
        }
        Transition::Cancel { .. } => {
            match assignment.phase {
                Phase::Preparing => {}
                // The owner may have released already: only in a new epoch may it go on.
                Phase::Draining => {
                    assignment.epoch += u64::from(facts.guards.on(Guard::CancelRaisesEpoch));
                }
                _ => return Err(wrong(assignment)),
            }
            assignment.phase = Phase::Owned;
            assignment.next = None;
        }
        Transition::Recover { .. } => {
            if assignment.phase != Phase::Repairing {
                return Err(wrong(assignment));
            }
            let confirmed = facts.waited_after_repair && facts.members.all_obey(repaired);
            if !confirmed && facts.guards.on(Guard::RepairWaits) {
                return Err(Refusal::Unconfirmed(slots));
            }
            assignment.phase = Phase::Unowned;
        }
    }
    Ok(())
}
