//! Which template the Deployment gets: the one that is asked for, unless it has failed and there is one that worked.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{Problem, Rollout};
use crate::Application;

/// The reason of all failures: what is remembered is only the message.
const FAILED: &str = "RolloutFailed";

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The revision that the specification asks for.
    pub wanted: String,
    /// The revision that is applied.
    pub applied: String,
    /// Its template.
    pub template: PodTemplateSpec,
    /// Why the wanted one has failed, if it has.
    pub failure: Option<Problem>,
    /// Whether the failure was not known before: it is written down before anything else is done.
    pub is_new: bool,
}

impl Choice {
    /// Whether something else runs than what is asked for.
    pub fn is_rolled_back(&self) -> bool {
        self.wanted != self.applied
    }
}

/// Chooses. `wanted` is the template that is asked for, `state` how far the Deployment is with it, `trouble` what its pods say,
/// `last_good` the last one that worked, if it is still known.
pub fn choose(
    app: &Application,
    wanted: (PodTemplateSpec, String),
    state: &Rollout,
    trouble: Option<Problem>,
    last_good: Option<(PodTemplateSpec, String)>,
) -> Choice {
    let (template, revision) = wanted;
    let status = app.status.as_ref();
    let was_good = status.and_then(|status| status.last_good_revision.as_ref()) == Some(&revision);
    let remembered = status
        .filter(|status| status.failed_revision.as_ref() == Some(&revision))
        .map(|status| Problem::new(FAILED, status.failed_reason.clone().unwrap_or_default()));
    // One that has worked before is not to blame for what goes wrong now.
    let fresh = match (trouble, state) {
        _ if was_good || remembered.is_some() => None,
        (Some(trouble), Rollout::UnderWay { .. } | Rollout::Overdue(_)) => {
            Some(Problem::new(FAILED, format!("{}: {}", trouble.reason, trouble.message)))
        }
        (None, Rollout::Overdue(said)) => {
            Some(Problem::new(FAILED, format!("ProgressDeadlineExceeded: {said}")))
        }
        _ => None,
    };
    let is_new = fresh.is_some();
    let failure = fresh.or(remembered);
    let good = last_good.filter(|(_, good)| *good != revision);
    match good {
        Some((old, good)) if failure.is_some() && app.spec.rollback.enabled => {
            Choice { wanted: revision, applied: good, template: old, failure, is_new }
        }
        _ => Choice { wanted: revision.clone(), applied: revision, template, failure, is_new },
    }
}
