//! What a candidate knows of a Lease, and what it may do. Pure: times are arguments.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use shoal_objects::Timestamp;

use super::Timing;

/// The Lease as last seen, and since when its record has been like this.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The object; None when it was not there at the last look.
    pub lease: Option<Lease>,
    /// The record, for comparison. Stays when the Lease disappears.
    record: Option<(Option<String>, LeaseSpec)>,
    since: Duration,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The Lease is free: make it ours and lead.
    Take,
    /// The Lease was deleted, perhaps under a leader that has not noticed yet: make it ours, which keeps that leader
    /// from renewing, and lead when its leadership must have ended.
    Claim,
    /// Somebody else may lead until this moment.
    WaitUntil(Duration),
}

impl Observed {
    /// Takes in what a read or write gave at `now`. The clock starts anew only when the record changed: labels and
    /// annotations are nobody's sign of life.
    pub fn update(&mut self, lease: Option<Lease>, now: Duration) {
        if lease.is_none() && self.lease.is_some() {
            // Since when it is gone.
            self.since = now;
        }
        if let Some(lease) = &lease {
            let record = (lease.metadata.uid.clone(), lease.spec.clone().unwrap_or_default());
            if self.record.as_ref() != Some(&record) {
                self.record = Some(record);
                self.since = now;
            }
        }
        self.lease = lease;
    }

    /// Who holds it; empty for nobody.
    pub fn holder(&self) -> &str {
        self.lease
            .as_ref()
            .and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref())
            .unwrap_or_default()
    }

    /// Whether this is a Lease that `me` acquired at `acquired`. The time makes sure that a record of an earlier
    /// process with the same identity does not count.
    pub fn is_ours(&self, me: &str, acquired: Timestamp) -> bool {
        let Some(spec) = self.lease.as_ref().and_then(|lease| lease.spec.as_ref()) else { return false };
        self.holder() == me && spec.acquire_time.as_ref() == Some(&micro_time(acquired))
    }

    /// What a candidate may do at `now`.
    pub fn step(&self, now: Duration, timing: &Timing, cautious: bool) -> Step {
        let Some((_, spec)) = &self.record else {
            return if cautious { Step::Claim } else { Step::Take };
        };
        if self.lease.is_none() {
            // Time for its leader to write it anew.
            let claim_at = self.since + timing.retry_period * 2;
            return if now >= claim_at { Step::Claim } else { Step::WaitUntil(claim_at) };
        }
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        let duration = match spec.lease_duration_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => timing.lease_duration,
        };
        let free_at = self.since + duration;
        if !held || now >= free_at { Step::Take } else { Step::WaitUntil(free_at) }
    }
}

/// The Lease to write to acquire it. What is not the record stays as it is.
pub(super) fn acquire(
    observed: &Observed,
    place: (&str, &str),
    me: &str,
    lease: Duration,
    now: Timestamp,
) -> Lease {
    let mut object = observed.lease.clone().unwrap_or_else(|| new(place));
    // A Lease that was deleted takes its count of holders with it, unless somebody remembers.
    let before = observed.record.as_ref().map(|(_, spec)| spec);
    let transitions = match before {
        None => 0,
        Some(spec) => spec.lease_transitions.unwrap_or_default().saturating_add(1),
    };
    let spec = object.spec.get_or_insert_default();
    spec.holder_identity = Some(me.to_owned());
    spec.lease_duration_seconds = Some(whole_seconds(lease));
    spec.acquire_time = Some(micro_time(now));
    spec.renew_time = Some(micro_time(now));
    spec.lease_transitions = Some(transitions);
    object
}

/// The Lease to write to renew it. One that was deleted is written anew with the same record.
pub(super) fn renew(
    ours: &Lease,
    deleted: bool,
    place: (&str, &str),
    lease: Duration,
    now: Timestamp,
) -> Lease {
    let mut object = ours.clone();
    if deleted {
        object.metadata = new(place).metadata;
    }
    let spec = object.spec.get_or_insert_default();
    spec.lease_duration_seconds = Some(whole_seconds(lease));
    spec.renew_time = Some(micro_time(now));
    object
}

/// The Lease to write to give it back, as client-go does: no holder, and a duration that nobody has to wait for.
pub(super) fn release(ours: &Lease, now: Timestamp) -> Lease {
    let mut object = ours.clone();
    let spec = object.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(micro_time(now));
    spec.renew_time = Some(micro_time(now));
    object
}

fn new((namespace, name): (&str, &str)) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: None }
}

fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

fn micro_time(time: Timestamp) -> MicroTime {
    MicroTime(jiff::Timestamp::from_microsecond(time.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let mut object = new(("ns", "l"));
        object.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(micro_time(Timestamp(renewed))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        });
        object
    }

    fn step(observed: &Observed, now: u64) -> Step {
        observed.step(S(now), &Timing::default(), false)
    }

    #[test]
    fn a_lease_is_free_when_its_record_was_watched_unchanged_for_its_whole_duration() {
        let mut observed = Observed::default();
        // A record from long ago, or from the future, is as good as any other.
        observed.update(Some(lease("other", -1_000_000_000)), S(100));
        assert_eq!(step(&observed, 114), Step::WaitUntil(S(115)));
        observed.update(Some(lease("other", -1_000_000_000)), S(114));
        assert_eq!(step(&observed, 115), Step::Take);
        observed.update(Some(lease("other", 7)), S(115));
        assert_eq!(step(&observed, 116), Step::WaitUntil(S(130)));
    }

    #[test]
    fn labels_are_no_sign_of_life() {
        let mut observed = Observed::default();
        observed.update(Some(lease("other", 1)), S(0));
        let mut labelled = lease("other", 1);
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        labelled.metadata.resource_version = Some("77".to_owned());
        observed.update(Some(labelled), S(14));
        assert_eq!(step(&observed, 15), Step::Take);
    }

    #[test]
    fn a_released_lease_is_free_at_once() {
        let mut observed = Observed::default();
        observed.update(Some(lease("", 1)), S(5));
        assert_eq!(step(&observed, 5), Step::Take);
    }

    #[test]
    fn a_lease_deleted_by_hand_is_left_to_its_leader_for_a_while_and_then_only_claimed() {
        let mut observed = Observed::default();
        assert_eq!(step(&observed, 0), Step::Take);
        assert_eq!(observed.step(S(0), &Timing::default(), true), Step::Claim);
        observed.update(Some(lease("other", 1)), S(10));
        observed.update(None, S(100));
        observed.update(None, S(102));
        assert_eq!(step(&observed, 103), Step::WaitUntil(S(104)));
        assert_eq!(step(&observed, 104), Step::Claim);
    }

    #[test]
    fn the_record_is_the_one_client_go_writes() {
        let mut observed = Observed::default();
        observed.update(Some(lease("other", 1)), S(0));
        let taken = acquire(&observed, ("ns", "l"), "me", S(15), Timestamp(1_714_557_600_123_456));
        let spec = serde_json::to_value(&taken).unwrap()["spec"].clone();
        assert_eq!(
            spec,
            serde_json::json!({
                "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 4,
                "acquireTime": "2024-05-01T10:00:00.123456Z", "renewTime": "2024-05-01T10:00:00.123456Z",
            })
        );
        let renewed = renew(&taken, false, ("ns", "l"), S(15), Timestamp(1_714_557_602_000_000));
        let spec = serde_json::to_value(&renewed).unwrap()["spec"].clone();
        assert_eq!(
            (&spec["acquireTime"], &spec["renewTime"]),
            (&"2024-05-01T10:00:00.123456Z".into(), &"2024-05-01T10:00:02.000000Z".into())
        );
        assert_eq!(spec["leaseTransitions"], 4);
        let released =
            serde_json::to_value(release(&renewed, Timestamp(1_714_557_603_000_000))).unwrap()["spec"]
                .clone();
        assert_eq!((&released["holderIdentity"], &released["leaseDurationSeconds"]), (&"".into(), &1.into()));
    }

    #[test]
    fn a_record_of_an_earlier_process_with_the_same_name_is_not_ours() {
        let mut observed = Observed::default();
        let first = acquire(&observed, ("ns", "l"), "me", S(15), Timestamp(1));
        observed.update(Some(first), S(0));
        assert!(observed.is_ours("me", Timestamp(1)));
        assert!(!observed.is_ours("me", Timestamp(2)));
        assert!(!observed.is_ours("you", Timestamp(1)));
    }
}
