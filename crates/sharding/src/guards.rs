//! The guards of the protocol by name, so that tests can remove one and see that the simulator notices.

macro_rules! guards {
    ($($name:ident $text:literal $doc:literal;)*) => {
        /// One rule that keeps the protocol safe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Guard {
            $(#[doc = $doc] $name,)*
        }

        impl Guard {
            /// All of them.
            pub const ALL: &[Guard] = &[$(Guard::$name,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Guard::$name => $text,)* }
            }

            /// What it says.
            pub fn rule(self) -> &'static str {
                match self { $(Guard::$name => $doc,)* }
            }
        }
    };
}

guards! {
    ClockDrift "clock-drift" "Takeover waits for the Lease's duration times one plus the drift.";
    StopEarly "stop-early" "A replica stops its margin before its Lease can end.";
    CountFromSending "count-from-sending" "A renewal counts from before it was sent, not from its answer.";
    WrittenDuration "written-duration" "A replica counts the duration written in its Lease, not the one configured now.";
    UnansweredRenewals "unanswered-renewals" "A renewal without an answer may have shortened the Lease.";
    Deadline "deadline" "No work after the deadline, whatever the record says.";
    RenewPrecondition "renew-precondition" "A renewal replaces only the version it was made from.";
    RevokePrecondition "revoke-precondition" "A Lease is revoked only in the version that was waited for.";
    RevokeFirst "revoke-first" "Slots of a silent replica move only after its Lease was revoked.";
    DeletedLeaseWaits "deleted-lease-waits" "A deleted Lease is waited for like any other.";
    ReleaseFirst "release-first" "Slots move only after their owner has released them.";
    DrainInFlight "drain-in-flight" "A release waits for work in flight.";
    CancelRaisesEpoch "cancel-raises-epoch" "A cancelled drain raises the epoch, so that an old release says nothing.";
    NeverBack "never-back" "No return to an older record or to a released epoch.";
    MapPrecondition "map-precondition" "The record is replaced only in the version it was made from.";
    Barrier "barrier" "A new owner reads anew before its first work.";
    EpochRises "epoch-rises" "Every new owner has a higher epoch.";
    Fingerprint "fingerprint" "Replicas that compute slots differently are refused.";
    Seal "seal" "A record edited by hand is not obeyed.";
    RecordFloor "record-floor" "A record that is made anew begins above the version of the object that it replaces.";
    RepairWaits "repair-waits" "After a repair nobody gets a slot until everybody has let go.";
    MoveBudget "move-budget" "Moves for balance stay within the budget.";
    BootClock "boot-clock" "The clock of a deadline goes on while the machine is suspended.";
}

/// Which guards are on: all, except in tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    #[cfg(any(test, feature = "simulator"))]
    removed: Option<Guard>,
}

impl Guards {
    /// All guards but one.
    #[cfg(any(test, feature = "simulator"))]
    pub fn without(guard: Guard) -> Guards {
        Guards { removed: Some(guard) }
    }

    /// Whether a guard is on.
    #[cfg(any(test, feature = "simulator"))]
    pub fn on(self, guard: Guard) -> bool {
        self.removed != Some(guard)
    }

    /// Whether a guard is on: it always is.
    #[cfg(not(any(test, feature = "simulator")))]
    #[inline(always)]
    pub fn on(self, _: Guard) -> bool {
        true
    }
}
