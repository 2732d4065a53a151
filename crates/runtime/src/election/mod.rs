//! Leader election on a Lease: of all replicas at most one leads.
//!
//! The record in the Lease is the one that client-go writes, so replicas of both can stand for one Lease.
//! What is safe about it:
//!
//! * **Only time that passed here counts.** A candidate takes a Lease over when it has watched the same record for the
//!   holder's whole lease duration. The times in the record are written for people and never read.
//! * **A leader stops earlier than others start.** Leadership is valid for `renewDeadline` from the moment *before* the
//!   last successful renewal was sent; others wait `leaseDuration` from the moment *after* it arrived.
//! * **Suspend counts.** Time is [`Monotonic`], which goes on while the machine sleeps.
//! * **Every write is compare-and-swap** on the Lease's uid and resourceVersion.
//! * **A Lease that is deleted by hand** is written anew by its leader. Another one may write it too, which keeps the
//!   leader from renewing, but leads only one lease duration later.
//!
//! [`Leadership::is_leader`] is exact at the moment it is asked, even if the elector's task has not run for a while.
//! Ask it before anything that must not be done twice.

mod elector;
mod metrics;
mod record;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::{Clock, Entropy};
use tokio::sync::watch;

pub use elector::Elector;
pub use metrics::LeaderMetrics;

use crate::apply::{Fence, Permit};
use crate::config;
use crate::config::duration::format;
use crate::monotonic::Monotonic;

/// How much a period may be lengthened by chance, so that replicas do not ask in step.
const JITTER: f64 = 0.2;

/// The three timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a record that does not change keeps others away.
    pub lease_duration: Duration,
    /// How long a leader goes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How often the Lease is renewed or asked for.
    pub retry_period: Duration,
}

/// What to stand for, and as whom.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Written into the Lease. Must be unique among replicas; [`Election::new`] makes it so.
    pub identity: String,
    /// The three timers.
    pub timing: Timing,
    /// What to do about a Lease that is not there and was never seen. By default it is created and led at once, as
    /// client-go does; the danger is a leader whose Lease was deleted by hand a moment ago. A cautious replica creates
    /// it and leads one lease duration later.
    pub cautious: bool,
    /// Measures leases.
    pub monotonic: Monotonic,
    /// Writes times into the Lease.
    pub clock: Clock,
    /// Spreads requests.
    pub entropy: Entropy,
}

/// Tells who leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    me: Arc<str>,
    lease: Arc<str>,
    monotonic: Monotonic,
    state: watch::Receiver<State>,
    seen: Arc<Mutex<Seen>>,
}

/// Until when this replica leads, on its monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    leads_until: Option<Duration>,
}

/// What was last read in the Lease, for inspection.
#[derive(Debug, Default)]
struct Seen {
    holder: String,
    transitions: i32,
    error: Option<String>,
}

/// Why a replica leads no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No renewal succeeded in time.
    #[error("the lease {lease} could not be renewed for {}: {reason}; another replica may lead now", format(*.deadline))]
    NotRenewed {
        /// Namespace and name.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// The last error.
        reason: String,
    },
    /// The Lease names somebody else.
    #[error("the lease {lease} was taken by {by:?}")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// The new holder; empty when it was cleared by hand.
        by: String,
    },
}

impl From<&config::State> for Timing {
    fn from(state: &config::State) -> Timing {
        Timing {
            lease_duration: state.lease_duration,
            renew_deadline: state.renew_deadline,
            retry_period: state.retry_period,
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::from(&config::State::default())
    }
}

impl Timing {
    /// What is wrong with the order of the timers.
    pub fn problems(&self) -> Vec<String> {
        let Timing { lease_duration, renew_deadline, retry_period } = *self;
        let mut problems = Vec::new();
        if retry_period.is_zero() {
            problems.push("retryPeriod must be longer than 0".to_owned());
        }
        if lease_duration.subsec_nanos() != 0 || lease_duration.as_secs() > i32::MAX as u64 {
            problems.push(format!(
                "leaseDuration ({}) must be whole seconds: a Lease counts in them",
                format(lease_duration)
            ));
        }
        if lease_duration <= renew_deadline {
            problems.push(format!(
                "leaseDuration ({}) must be longer than renewDeadline ({}): a leader must have stopped before another may start; make it longer",
                format(lease_duration),
                format(renew_deadline)
            ));
        }
        if renew_deadline <= retry_period.saturating_mul(6) / 5 {
            problems.push(format!(
                "renewDeadline ({}) must be longer than 1.2 times retryPeriod ({}): one late renewal would end the leadership; shorten retryPeriod",
                format(renew_deadline),
                format(retry_period)
            ));
        }
        problems
    }
}

impl Election {
    /// Stands for the Lease under a name of its own: `host` plus a random part.
    pub fn new(namespace: &str, name: &str, host: &str) -> Election {
        let entropy = Entropy::system();
        Election {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{host}_{}", entropy.uid()),
            timing: Timing::default(),
            cautious: false,
            monotonic: Monotonic::system(),
            clock: Clock::system(),
            entropy,
        }
    }

    /// A candidate, and the handle that tells whether it leads. Timers out of order are an error.
    pub fn candidate(self, client: kube::Client) -> Result<(Elector, Leadership), String> {
        let problems = self.timing.problems();
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        let state = watch::Sender::new(State::default());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let leadership = Leadership {
            me: self.identity.as_str().into(),
            lease: format!("{}/{}", self.namespace, self.name).into(),
            monotonic: self.monotonic.clone(),
            state: state.subscribe(),
            seen: seen.clone(),
        };
        Ok((Elector::new(self, client, state, seen), leadership))
    }
}

impl Leadership {
    /// Whether this replica leads at this very moment.
    pub fn is_leader(&self) -> bool {
        self.state.borrow().leads_until.is_some_and(|until| self.monotonic.now() < until)
    }

    /// Waits until this replica leads. Never comes back when the elector has ended.
    pub async fn gained(&self) {
        let mut state = self.state.clone();
        loop {
            if self.is_leader() {
                return;
            }
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this replica leads no more.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        loop {
            let Some(until) = state.borrow_and_update().leads_until else { return };
            tokio::select! {
                biased;
                changed = state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = self.monotonic.reached(until) => {
                    if !self.is_leader() {
                        return;
                    }
                }
            }
        }
    }

    /// Stops writers the moment this replica does not lead.
    pub fn fence(&self) -> Fence {
        let leadership = self.clone();
        Fence::new(move || {
            let until = leadership.state.borrow().leads_until?;
            let epoch = u64::try_from(leadership.seen.lock().transitions).unwrap_or_default();
            let remaining = until.checked_sub(leadership.monotonic.now())?;
            Some(Permit { slot: 0, epoch, remaining })
        })
    }

    /// This replica's identity.
    pub fn identity(&self) -> &str {
        &self.me
    }

    /// Who held the Lease when it was last read; empty for nobody.
    pub fn holder(&self) -> String {
        self.seen.lock().holder.clone()
    }

    /// For `/debug/inspect`.
    pub fn inspect(&self) -> Value {
        let seen = self.seen.lock();
        let now = self.monotonic.now();
        let left = self.state.borrow().leads_until.map(|until| until.saturating_sub(now).as_secs_f64());
        json!({
            "lease": &*self.lease,
            "identity": &*self.me,
            "leader": self.is_leader(),
            "secondsUntilDeadline": left,
            "holder": seen.holder,
            "transitions": seen.transitions,
            "lastError": seen.error,
        })
    }
}
