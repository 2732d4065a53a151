//! The phase: one word, worked out anew each time, never a place in a program.

use crate::api::Phase;

/// What the phase depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It is being deleted.
    pub deleting: bool,
    /// It shall be left alone.
    pub paused: bool,
    /// Nothing goes on without help.
    pub stuck: bool,
    /// Some template has worked.
    pub ever_good: bool,
    /// The template that is rolled out has worked.
    pub template_is_good: bool,
    /// All pods are as they should be.
    pub complete: bool,
    /// How many pods are wanted.
    pub desired: i32,
    /// How many there were when last all was complete.
    pub settled: Option<i32>,
    /// How many are ready.
    pub ready: i32,
    /// How many there are.
    pub existing: i32,
}

/// The phase.
pub fn phase(standing: &Standing) -> Phase {
    let Standing { desired, settled, .. } = *standing;
    if standing.deleting {
        Phase::Deleting
    } else if standing.paused {
        Phase::Paused
    } else if standing.stuck {
        Phase::Failed
    } else if standing.complete && desired == 0 {
        Phase::Suspended
    } else if !standing.ever_good {
        Phase::Creating
    } else if !standing.template_is_good {
        Phase::Updating
    } else if !standing.complete && (settled != Some(desired) || standing.existing > desired) {
        Phase::Scaling
    } else {
        // Pods that fail or move to other nodes are replaced: it runs, and a condition tells how well.
        Phase::Running
    }
}
