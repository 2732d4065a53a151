//! What the simulated runs have seen, so that a quiet pass is not mistaken for a good one.

use std::fmt;

use crate::simulator::faults::FaultKind;

macro_rules! marks {
    ($($name:ident $text:literal;)*) => {
        /// Something worth having seen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark {
            $(#[doc = $text] $name,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$name,)*];

            /// In words.
            pub fn words(self) -> &'static str {
                match self { $(Mark::$name => $text,)* }
            }
        }
    };
}

marks! {
    AssignUnowned "assign: nobody had them";
    Takeover "assign: owner ended";
    LeftUnowned "assign: to nobody";
    Prepare "prepare";
    PrepareLeaving "prepare: owner goes";
    Drain "drain";
    Complete "complete";
    CancelPreparing "cancel while preparing";
    CancelDraining "cancel while draining";
    Retarget "retarget";
    Repair "repair";
    Recover "recover";
    Fence "deadline passed";
    Resume "renewed after the deadline";
    Revoke "silent Lease revoked";
    RevokeRefused "revocation refused: the Lease had changed";
    Bury "tombstone for a deleted Lease";
    RenewConflict "renewal refused: the Lease had changed";
    LateRenewal "renewal landed late";
    LateRenewalRefused "late renewal refused";
    LateMap "record landed late";
    LateMapRefused "late record refused";
    MapConflict "record refused: it had changed";
    SelfRevoked "left and ended its own Lease";
    LeaseLost "found its Lease gone";
    Refused "refused: computes differently";
    AbortInFlight "work in flight stopped by the deadline";
    DrainWaited "drain waited for work in flight";
    Paused "paused beyond its deadline";
    StaleMap "older record came after a newer one";
    Shortened "unanswered renewal with a shorter duration";
}

/// Counts over many seeds.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Seeds in which each mark was seen.
    pub marks: Vec<u64>,
    /// Seeds with each sort of fault.
    pub faults: Vec<u64>,
    /// Seeds in which two sorts of fault met.
    pub pairs: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        let faults = FaultKind::ALL.len();
        Coverage { marks: vec![0; Mark::ALL.len()], faults: vec![0; faults], pairs: vec![0; faults * faults] }
    }
}

impl Coverage {
    /// Adds one seed.
    pub(super) fn add(&mut self, seen: u64, faults: impl Iterator<Item = FaultKind> + Clone) {
        for (at, count) in self.marks.iter_mut().enumerate() {
            *count += seen >> at & 1;
        }
        let mut kinds: Vec<usize> = faults.map(|kind| kind as usize).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for (at, a) in kinds.iter().enumerate() {
            self.faults[*a] += 1;
            for b in &kinds[at + 1..] {
                self.pairs[a * FaultKind::ALL.len() + b] += 1;
            }
        }
    }

    /// Adds another thread's counts.
    pub fn merge(&mut self, other: &Coverage) {
        let lists = [
            (&mut self.marks, &other.marks),
            (&mut self.faults, &other.faults),
            (&mut self.pairs, &other.pairs),
        ];
        for (mine, theirs) in lists {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// How many pairs of faults met, and how many there are.
    pub fn pairs_met(&self) -> (usize, usize) {
        let faults = FaultKind::ALL.len();
        (self.pairs.iter().filter(|count| **count > 0).count(), faults * (faults - 1) / 2)
    }

    /// What was never seen.
    pub fn missing(&self) -> Vec<&'static str> {
        let marks = Mark::ALL.iter().zip(&self.marks).filter(|(_, count)| **count == 0);
        let faults = FaultKind::ALL.iter().zip(&self.faults).filter(|(_, count)| **count == 0);
        marks.map(|(mark, _)| mark.words()).chain(faults.map(|(kind, _)| kind.words())).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds that saw")?;
        for (mark, count) in Mark::ALL.iter().zip(&self.marks) {
            writeln!(f, "  {count:>9}  {}", mark.words())?;
        }
        writeln!(f, "seeds with the fault")?;
        for (kind, count) in FaultKind::ALL.iter().zip(&self.faults) {
            writeln!(f, "  {count:>9}  {}", kind.words())?;
        }
        let (met, all) = self.pairs_met();
        writeln!(f, "pairs of faults met: {met} of {all}")
    }
}
