//! How long a replica may work: arithmetic on its own Lease and its own clock.
//!
//! A replica may work until (the moment before its last successful renewal was sent) + (the duration written in it) − margin.
//! A renewal without an answer may have been applied, so it can only bring the end closer, never put it off.

use std::time::Duration;

use crate::guards::{Guard, Guards};
use crate::time::Moment;

/// A write of the own Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) number: u64,
    pub(crate) sent: Moment,
    pub(crate) duration: Duration,
    pub(crate) margin: Duration,
    /// The version it replaces, 0 for the creation.
    pub(crate) base: u64,
}

/// The own Lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenure {
    pub(crate) uid: u64,
    pub(crate) resource_version: u64,
    landed: Option<Renewal>,
    unanswered: Vec<Renewal>,
    /// The latest end that forgotten unanswered renewals allow.
    forgotten: Option<Moment>,
    deadline: Moment,
}

/// More are folded into one limit.
const MAX_UNANSWERED: usize = 32;

impl Renewal {
    fn end(&self, guards: Guards, configured: Duration) -> Moment {
        let duration = if guards.on(Guard::WrittenDuration) { self.duration } else { configured };
        let margin = if guards.on(Guard::StopEarly) { self.margin } else { Duration::ZERO };
        self.sent + duration.saturating_sub(margin)
    }
}

impl Tenure {
    /// Work is allowed before this moment.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    pub(crate) fn exists(&self) -> bool {
        self.landed.is_some()
    }

    /// A write is about to be sent.
    pub(crate) fn send(&mut self, renewal: Renewal, guards: Guards, configured: Duration) {
        if self.unanswered.len() >= MAX_UNANSWERED {
            let oldest = self.unanswered.remove(0).end(guards, configured);
            self.forgotten = Some(self.forgotten.map_or(oldest, |end| end.min(oldest)));
        }
        self.unanswered.push(renewal);
        self.count(guards, configured);
    }

    /// The server answered: certainly not applied.
    pub(crate) fn failed(&mut self, number: u64, guards: Guards, configured: Duration) {
        self.unanswered.retain(|renewal| renewal.number != number);
        self.count(guards, configured);
    }

    /// The write was applied. Every other one replaces an older version and can never be applied any more.
    pub(crate) fn applied(
        &mut self,
        number: u64,
        uid: u64,
        version: u64,
        guards: Guards,
        now: Moment,
        configured: Duration,
    ) {
        if version <= self.resource_version {
            return;
        }
        let Some(mut renewal) = self.unanswered.iter().find(|renewal| renewal.number == number).copied()
        else {
            return;
        };
        if !guards.on(Guard::CountFromSending) {
            renewal.sent = now;
        }
        self.uid = uid;
        self.settle(version);
        self.landed = Some(renewal);
        self.count(guards, configured);
    }

    /// The own Lease was seen in a newer version. False if it is none of the unanswered writes: then somebody else wrote it,
    /// and nothing is known about what others have made of it.
    #[must_use]
    pub(crate) fn seen(&mut self, number: u64, version: u64, guards: Guards, configured: Duration) -> bool {
        let Some(renewal) = self.unanswered.iter().find(|renewal| renewal.number == number).copied() else {
            return false;
        };
        self.settle(version);
        self.landed = Some(renewal);
        self.count(guards, configured);
        true
    }

    fn settle(&mut self, version: u64) {
        self.resource_version = version;
        self.unanswered.retain(|renewal| renewal.base >= version);
        self.forgotten = None;
    }

    pub(crate) fn count(&mut self, guards: Guards, configured: Duration) {
        let Some(landed) = self.landed else {
            self.deadline = Moment::default();
            return;
        };
        let mut end = landed.end(guards, configured);
        if guards.on(Guard::UnansweredRenewals) {
            end = self.unanswered.iter().fold(end, |end, renewal| end.min(renewal.end(guards, configured)));
            end = self.forgotten.map_or(end, |forgotten| end.min(forgotten));
        }
        self.deadline = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURED: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    fn renewal(number: u64, sent: u64, duration: u64, base: u64) -> Renewal {
        let (duration, margin) = (Duration::from_secs(duration), Duration::from_secs(5));
        Renewal { number, sent: at(sent), duration, margin, base }
    }

    fn renewed() -> Tenure {
        let mut tenure = Tenure::default();
        tenure.send(renewal(1, 100, 15, 0), Guards::default(), CONFIGURED);
        assert_eq!(tenure.deadline(), at(0), "no work before the Lease exists");
        tenure.applied(1, 7, 50, Guards::default(), at(104), CONFIGURED);
        tenure
    }

    #[test]
    fn the_end_counts_from_before_sending() {
        assert_eq!(renewed().deadline(), at(110));
    }

    #[test]
    fn an_unanswered_renewal_never_puts_the_end_off_but_may_bring_it_closer() {
        let mut tenure = renewed();
        tenure.send(renewal(2, 102, 15, 50), Guards::default(), CONFIGURED);
        assert_eq!(tenure.deadline(), at(110));
        tenure.send(renewal(3, 103, 6, 50), Guards::default(), CONFIGURED);
        assert_eq!(tenure.deadline(), at(104));
        tenure.failed(3, Guards::default(), CONFIGURED);
        assert_eq!(tenure.deadline(), at(110));
    }

    #[test]
    fn a_renewal_found_later_counts_from_when_it_was_sent() {
        let mut tenure = renewed();
        tenure.send(renewal(2, 102, 15, 50), Guards::default(), CONFIGURED);
        tenure.send(renewal(3, 103, 15, 50), Guards::default(), CONFIGURED);
        assert!(tenure.seen(2, 51, Guards::default(), CONFIGURED));
        assert_eq!((tenure.deadline(), tenure.resource_version), (at(112), 51));
    }

    #[test]
    fn a_write_by_somebody_else_is_not_taken_for_an_own_one() {
        let mut tenure = renewed();
        tenure.send(renewal(2, 102, 15, 50), Guards::default(), CONFIGURED);
        assert!(!tenure.seen(1, 60, Guards::default(), CONFIGURED));
        assert_eq!(tenure.resource_version, 50);
    }

    #[test]
    fn endless_retries_are_remembered_in_bounded_space() {
        let mut tenure = renewed();
        tenure.send(renewal(2, 101, 6, 50), Guards::default(), CONFIGURED);
        for number in 3..1000 {
            tenure.send(renewal(number, 100 + number, 15, 50), Guards::default(), CONFIGURED);
        }
        assert!(tenure.unanswered.len() <= MAX_UNANSWERED);
        assert_eq!(tenure.deadline(), at(102));
    }
}
