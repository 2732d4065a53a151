//! One candidate: asks for the Lease, renews it, gives it back.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use shoal_objects::Timestamp;
use tokio::sync::watch;

use super::record::{self, Observed, Step};
use super::{Election, JITTER, Lost, Seen, State};
use crate::manager::Stop;

/// A candidate for one Lease.
pub struct Elector {
    election: Election,
    leases: Api<Lease>,
    state: watch::Sender<State>,
    seen: Arc<Mutex<Seen>>,
    observed: Observed,
}

/// A Lease that is ours.
struct Held {
    lease: Lease,
    acquired: Timestamp,
    /// Leadership begins here; later than the Lease was written when it was only claimed.
    from: Duration,
    until: Duration,
}

impl Elector {
    pub(super) fn new(
        election: Election,
        client: kube::Client,
        state: watch::Sender<State>,
        seen: Arc<Mutex<Seen>>,
    ) -> Elector {
        let leases = Api::namespaced(client, &election.namespace);
        Elector { election, leases, state, seen, observed: Observed::default() }
    }

    /// Stands for the Lease, leads, and gives the Lease back when asked to stop: ask when the work has ended.
    /// When the stop is an abort, the Lease is left to run out. After a loss the candidate may run again.
    pub async fn run(&mut self, stop: &Stop) -> Result<(), Lost> {
        let held = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            held = self.campaign() => held,
        };
        self.lead(held, stop).await
    }

    async fn campaign(&mut self) -> Held {
        loop {
            let looked = self.look().await;
            let now = self.election.monotonic.now();
            let timing = self.election.timing;
            let mut pause = self.jittered(timing.retry_period);
            match looked {
                Err(error) => self.note(error),
                Ok(()) => match self.observed.step(now, &timing, self.election.cautious) {
                    Step::WaitUntil(free_at) => pause = pause.min(free_at.saturating_sub(now)),
                    step => {
                        let probation =
                            if step == Step::Claim { timing.lease_duration } else { Duration::ZERO };
                        if let Some(held) = self.take(probation).await {
                            return held;
                        }
                    }
                },
            }
            self.election.monotonic.reached(now + pause).await;
        }
    }

    async fn lead(&mut self, mut held: Held, stop: &Stop) -> Result<(), Lost> {
        let mut next = self.election.monotonic.now() + self.election.timing.retry_period;
        let lost = loop {
            let now = self.election.monotonic.now();
            let leads = now >= held.from;
            let state = State { leads_until: leads.then_some(held.until) };
            if leads && self.state.send_replace(state) == State::default() {
                tracing::info!(lease = self.place(), identity = self.election.identity, "became leader");
            }
            let wake = if leads { next } else { next.min(held.from) };
            let clock = self.election.monotonic.clone();
            tokio::select! {
                biased;
                () = stop.aborted() => {
                    self.state.send_replace(State::default());
                    return Ok(());
                }
                () = stop.requested() => {
                    self.release(&held).await;
                    return Ok(());
                }
                () = clock.reached(wake.min(held.until)) => {}
            }
            let now = self.election.monotonic.now();
            if now >= held.until {
                break self.not_renewed();
            }
            if now < next {
                continue;
            }
            let period = self.jittered(self.election.timing.retry_period);
            next = now + period;
            // Whoever asks to stop meanwhile waits for one request at most, and a request ends at the deadline.
            match self.renew(&mut held).await {
                Ok(()) => {}
                Err(Some(lost)) => break lost,
                Err(None) => next = self.election.monotonic.now() + period / 4,
            }
        };
        self.state.send_replace(State::default());
        tracing::error!(lease = self.place(), identity = self.election.identity, reason = %lost, "leads no more");
        Err(lost)
    }

    fn not_renewed(&self) -> Lost {
        let reason = self.seen.lock().error.clone();
        Lost::NotRenewed {
            lease: self.place(),
            deadline: self.election.timing.renew_deadline,
            reason: reason.unwrap_or_else(|| "the process or the machine stood still".to_owned()),
        }
    }

    /// Reads the Lease.
    async fn look(&mut self) -> Result<(), String> {
        let read = self.leases.get_opt(&self.election.name);
        let lease = self.in_time(self.election.timing.renew_deadline, read).await?;
        self.learn(lease);
        Ok(())
    }

    /// Writes the Lease with us as holder. Leadership begins after the probation.
    async fn take(&mut self, probation: Duration) -> Option<Held> {
        let acquired = self.election.clock.now();
        let election = &self.election;
        let place = (election.namespace.as_str(), election.name.as_str());
        let wanted = record::acquire(
            &self.observed,
            place,
            &election.identity,
            election.timing.lease_duration,
            acquired,
        );
        let sent = election.monotonic.now();
        match self.write(&wanted, election.timing.renew_deadline).await {
            Ok(lease) => {
                self.learn(Some(lease.clone()));
                let until = sent + self.election.timing.renew_deadline;
                // An answer that came too late is no leadership; the record runs out by itself.
                let now = self.election.monotonic.now();
                (now < until).then_some(Held { lease, acquired, from: now + probation, until })
            }
            Err(error) => {
                self.note(error.to_string());
                None
            }
        }
    }

    /// One attempt to renew. An error without a loss means: try again.
    async fn renew(&mut self, held: &mut Held) -> Result<(), Option<Lost>> {
        let sent = self.election.monotonic.now();
        let left = held.until.saturating_sub(sent);
        // A request that hangs must leave time for another one.
        let limit = (left / 2).max(self.election.timing.retry_period).min(left);
        let deleted = held.lease.metadata.uid.is_none();
        let election = &self.election;
        let place = (election.namespace.as_str(), election.name.as_str());
        let wanted =
            record::renew(&held.lease, deleted, place, election.timing.lease_duration, election.clock.now());
        let error = match self.write(&wanted, limit).await {
            Ok(lease) => {
                self.learn(Some(lease.clone()));
                self.seen.lock().error = None;
                held.lease = lease;
                held.until = sent + self.election.timing.renew_deadline;
                let now = self.election.monotonic.now();
                if deleted && now < held.from {
                    // Somebody may have led meanwhile.
                    held.from = now + self.election.timing.lease_duration;
                }
                return Ok(());
            }
            Err(error) => error,
        };
        self.note(error.to_string());
        if !matches!(error, WriteError::Outdated(_)) {
            return Err(None);
        }
        // Somebody wrote or deleted it, perhaps we ourselves with an answer that was lost.
        let left = held.until.saturating_sub(self.election.monotonic.now());
        let read = self.leases.get_opt(&self.election.name);
        let lease = self.in_time(left, read).await.map_err(|error| {
            self.note(error);
            None
        })?;
        let gone = lease.is_none();
        self.learn(lease);
        if gone {
            // Written anew next time, if nobody else is faster.
            held.lease.metadata.uid = None;
            return Err(None);
        }
        match &self.observed.lease {
            Some(lease) if self.observed.is_ours(&self.election.identity, held.acquired) => {
                held.lease = lease.clone();
                Err(None)
            }
            _ => Err(Some(Lost::Taken { lease: self.place(), by: self.observed.holder().to_owned() })),
        }
    }

    async fn release(&mut self, held: &Held) {
        // From here on this replica does not lead, whatever becomes of the request.
        self.state.send_replace(State::default());
        if held.lease.metadata.uid.is_none() {
            return;
        }
        let wanted = record::release(&held.lease, self.election.clock.now());
        match self.write(&wanted, self.election.timing.retry_period).await {
            Ok(lease) => {
                self.learn(Some(lease));
                tracing::info!(
                    lease = self.place(),
                    identity = self.election.identity,
                    "gave the lease back"
                );
            }
            Err(error) => {
                tracing::warn!(lease = self.place(), %error, "could not give the lease back, it runs out by itself");
            }
        }
    }

    /// Creates or replaces. uid and resourceVersion in the object make the replacement a compare-and-swap.
    async fn write(&self, wanted: &Lease, limit: Duration) -> Result<Lease, WriteError> {
        let params = PostParams::default();
        let exists = wanted.metadata.uid.is_some();
        let request = async {
            if exists {
                self.leases.replace(&self.election.name, &params, wanted).await
            } else {
                self.leases.create(&params, wanted).await
            }
        };
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                Err(WriteError::Outdated(status.message.clone()))
            }
            Ok(Err(error)) => Err(WriteError::Failed(error.to_string())),
            Err(_) => Err(WriteError::Failed(format!("no answer within {limit:?}"))),
        }
    }

    async fn in_time<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, String> {
        match tokio::time::timeout(limit, request).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {limit:?}")),
        }
    }

    fn learn(&mut self, lease: Option<Lease>) {
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let mut seen = self.seen.lock();
        seen.transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        seen.holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        drop(seen);
        self.observed.update(lease, self.election.monotonic.now());
    }

    fn note(&self, error: String) {
        tracing::debug!(lease = self.place(), error, "the lease was neither taken nor renewed");
        self.seen.lock().error = Some(error);
    }

    fn jittered(&self, period: Duration) -> Duration {
        let share = self.election.entropy.below(1 << 20) as f64 / f64::from(1 << 20);
        period.mul_f64(1.0 + JITTER * share)
    }

    fn place(&self) -> String {
        format!("{}/{}", self.election.namespace, self.election.name)
    }
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// Our view of the Lease is old.
    #[error("{0}")]
    Outdated(String),
    #[error("{0}")]
    Failed(String),
}
