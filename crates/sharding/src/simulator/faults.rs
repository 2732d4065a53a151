//! What goes wrong, and when.

use crate::simulator::chance::Chance;

macro_rules! faults {
    ($($name:ident $text:literal $weight:literal;)*) => {
        /// A sort of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $(#[doc = $text] $name,)*
        }

        impl FaultKind {
            /// All of them.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$name,)*];

            /// What happens, in words.
            pub fn words(self) -> &'static str {
                match self { $(FaultKind::$name => $text,)* }
            }

            fn weight(self) -> u64 {
                match self { $(FaultKind::$name => $weight,)* }
            }
        }
    };
}

faults! {
    Crash "crashes" 12;
    Pause "is paused" 12;
    Suspend "is suspended with its machine" 6;
    Partition "is cut off" 10;
    CutOut "sends into the void" 6;
    CutIn "hears nothing" 6;
    Outage "the API server is away" 4;
    LateWrites "writes land arbitrarily late" 10;
    WatchLoss "loses watch events" 6;
    WatchChaos "watch events repeat and overtake" 6;
    StaleLists "lists are stale" 4;
    Throttle "answers 429" 3;
    Conflicts "answers 409 without cause" 3;
    Expired "watches end with 410" 3;
    Duration "reloads another lease duration" 8;
    DeleteLease "its Lease is deleted by hand" 5;
    RecreateLease "its Lease is recreated by hand" 3;
    EditLease "its Lease is edited by hand" 3;
    EditMap "the record is edited by hand" 2;
    DeleteMap "the record is deleted by hand" 2;
    Reinstall "all of the group is deleted and starts anew" 0;
    MixedVersion "a replica of another kind starts" 4;
    Storm "several replicas come and go" 3;
    RollingUpdate "all replicas are replaced one by one" 4;
    Leave "leaves" 8;
    HurriedLeave "leaves in a hurry" 4;
    Unwell "fails its health check" 3;
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// When, in microseconds of true time.
    pub at: u64,
    /// What.
    pub kind: FaultKind,
    /// To whom.
    pub node: usize,
    /// For how long.
    pub lasts: u64,
    /// For choices inside.
    pub detail: u64,
}

/// Faults of a seed: at least three, at most nine.
pub(super) fn faults(chance: &mut Chance, nodes: usize, from: u64, until: u64, lease: u64) -> Vec<Fault> {
    let count = chance.between(3, 9);
    let total: u64 = FaultKind::ALL.iter().map(|kind| kind.weight()).sum();
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let mut at = chance.below(total);
            let drawn = FaultKind::ALL.iter().copied().find(|kind| {
                let hit = at < kind.weight();
                at = at.saturating_sub(kind.weight());
                hit
            });
            // Around the length of a Lease is where mistakes show.
            let lasts = match chance.below(4) {
                0 => chance.between(50_000, lease / 2),
                1 => chance.between(lease / 2, lease),
                2 => chance.between(lease, lease * 2),
                _ => chance.between(lease * 3 / 4, lease * 3 / 2),
            };
            Fault {
                at: chance.between(from, until),
                kind: drawn.unwrap_or(FaultKind::Crash),
                node: chance.below(nodes as u64) as usize,
                lasts,
                detail: chance.next(),
            }
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    // It ends whatever the faults before it have led to, so it is rare and comes last.
    if let Some(last) = faults.last_mut().filter(|last| last.detail >> 40 & 31 == 0) {
        last.kind = FaultKind::Reinstall;
    }
    faults
}
