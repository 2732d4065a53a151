//! What follows from how a reconcile ended.

use std::any::Any;
use std::fmt::Display;
use std::time::Duration;

use super::Shared;
use crate::queue::{Next, Taken};
use crate::reconcile::{Action, Class, Error, Result};

/// How a reconcile failed.
pub(super) enum Failed {
    Returned(Error),
    Panicked(String),
    TimedOut(Duration),
}

impl Failed {
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Failed {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Failed::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
    }

    pub(super) fn class(&self) -> Class {
        match self {
            Failed::Returned(error) => error.class,
            Failed::Panicked(_) | Failed::TimedOut(_) => Class::Unknown,
        }
    }

    /// Whether nobody needs to worry.
    fn is_ordinary(&self) -> bool {
        matches!(self, Failed::Returned(error) if error.is_ordinary())
    }

    /// The error with all its causes, in one line.
    pub(super) fn text(&self) -> String {
        match self {
            Failed::Returned(error) => error.to_string(),
            Failed::Panicked(text) => format!("the reconciler panicked: {text}"),
            Failed::TimedOut(limit) => format!("the reconcile took longer than {}", seconds(*limit)),
        }
    }
}

/// The one place that decides what happens to a key after its run.
pub(super) fn settle<K>(shared: &Shared<K>, taken: Taken<K>, outcome: Result<Action, Failed>)
where
    K: Clone + Ord + Display,
{
    match outcome {
        Ok(Action::AwaitChange) => {
            shared.failures.clear(&taken);
            taken.finish(Next::Forget);
        }
        Ok(Action::RequeueAfter(delay)) => {
            shared.failures.clear(&taken);
            taken.finish(Next::After(delay));
        }
        Err(failed) if is_final(&failed, taken.retries(), shared.settings.max_retries) => {
            let error = shared.failed(&taken, &failed, true);
            if failed.is_ordinary() {
                tracing::debug!(%error, "reconcile failed; parked until something happens");
            } else {
                tracing::error!(%error, retries = taken.retries(), "reconcile failed; parked until something happens");
            }
            taken.finish(Next::Forget);
        }
        Err(failed) => {
            let error = shared.failed(&taken, &failed, false);
            if failed.is_ordinary() {
                tracing::debug!(%error, retries = taken.retries(), "reconcile failed; will be retried");
            } else {
                tracing::warn!(%error, retries = taken.retries(), "reconcile failed; will be retried");
            }
            taken.finish(Next::Retry);
        }
    }
}

/// Whether a key is given up until something happens.
fn is_final(failed: &Failed, retries: u32, max_retries: u32) -> bool {
    match failed.class() {
        Class::Permanent => true,
        Class::Transient => false,
        Class::Unknown => retries >= max_retries,
    }
}

impl<K: Clone + Ord> Shared<K> {
    /// Counts and notes a failure, before anyone else can take the key. The text as noted.
    fn failed(&self, taken: &Taken<K>, failed: &Failed, parked: bool) -> String {
        self.meters.errors.inc();
        if matches!(failed, Failed::Panicked(_)) {
            self.meters.panics.inc();
        }
        self.failures.note(taken, failed.class(), failed.text(), parked)
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_are_never_given_up_permanent_ones_at_once_and_unknown_ones_after_their_retries() {
        let given_up = |error: Error, retries| is_final(&Failed::Returned(error), retries, 3);
        assert!(!given_up(Error::transient("t"), 1_000_000));
        assert!(given_up(Error::permanent("p"), 0));
        assert_eq!([2, 3, 4].map(|retries| given_up(Error::unknown("u"), retries)), [false, true, true]);
        assert!(is_final(&Failed::Panicked(String::new()), 3, 3));
        assert!(!is_final(&Failed::TimedOut(Duration::ZERO), 2, 3));
    }
}
