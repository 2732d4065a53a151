//! What to do and what to say, as pure functions of what was seen.
//!
//! `rollout` judges the Deployment, `choice` picks the template, `phase` and `conditions` make the status, `notes` the events.

mod choice;
mod conditions;
mod notes;
mod phase;
mod rollout;
mod trouble;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::jiff::Timestamp;

pub use choice::{Choice, choose};
pub use notes::{Note, notes};
pub use phase::{Standing, phase};
pub use rollout::{Rollout, rollout};
pub use trouble::trouble;

use crate::Application;
use crate::api::{ApplicationStatus, Child, Phase};
use crate::build;

/// Why nothing goes on without help: a reason for programs, and one for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In a word.
    pub reason: &'static str,
    /// In a sentence, with what helps.
    pub message: String,
}

impl Problem {
    /// A problem.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem { reason, message: message.into() }
    }
}

/// Everything that the status depends on, as it is after acting.
pub struct Observed<'a> {
    /// The Application as it was read, with its last status.
    pub app: &'a Application,
    /// What is in the way, if anything.
    pub problem: Option<Problem>,
    /// Which template the Deployment shall have, and why.
    pub choice: &'a Choice,
    /// The Deployment.
    pub deployment: Option<&'a Deployment>,
    /// The autoscaler.
    pub autoscaler: Option<&'a HorizontalPodAutoscaler>,
    /// The Service.
    pub service: Option<&'a Service>,
    /// The claims that are wanted and there.
    pub claims: &'a [Arc<PersistentVolumeClaim>],
    /// All children that are wanted.
    pub children: Vec<Child>,
    /// The time.
    pub now: Timestamp,
}

/// The status that follows.
pub fn assess(observed: &Observed<'_>) -> ApplicationStatus {
    let app = observed.app;
    let spec = &app.spec;
    let before = app.status.clone().unwrap_or_default();
    let choice = observed.choice;
    let state = rollout(observed.deployment, &choice.applied);
    let counts = observed.deployment.and_then(|deployment| deployment.status.clone()).unwrap_or_default();
    let of_spec = observed.deployment.and_then(|deployment| deployment.spec.as_ref()?.replicas);
    let desired = of_spec.unwrap_or(spec.replicas);
    let complete = state == Rollout::Complete;
    let lost = observed.claims.iter().find(|claim| phase_of(claim) == Some("Lost")).map(|claim| {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let remedy = "restore the volume, or remove the claim so that a new one is made";
        Problem::new("VolumeLost", format!("the volume of claim {name} is lost: {remedy}"))
    });
    let problem = observed.problem.clone().or(lost);

    let good = complete && desired > 0 && problem.is_none();
    let last_good = if good { Some(choice.applied.clone()) } else { before.last_good_revision.clone() };
    // What has become complete after all has not failed.
    let failed = choice.failure.clone().filter(|_| !(good && choice.applied == choice.wanted));
    let settled = if complete { Some(desired) } else { before.settled_replicas };
    let standing = Standing {
        deleting: app.metadata.deletion_timestamp.is_some(),
        paused: spec.paused,
        stuck: problem.is_some() || failed.is_some() || matches!(state, Rollout::Overdue(_)),
        ever_good: last_good.is_some(),
        template_is_good: last_good.as_deref() == Some(choice.applied.as_str()),
        complete,
        desired,
        settled,
        ready: counts.ready_replicas.unwrap_or_default(),
        existing: counts.replicas.unwrap_or_default(),
    };
    let running = observed.deployment.and_then(|deployment| {
        deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
    });
    let ready = counts.ready_replicas.unwrap_or_default();
    let now = phase(&standing);
    let had_failed = before.phase == Some(Phase::Failed) || before.recovering;
    let mut status = ApplicationStatus {
        phase: Some(now),
        observed_generation: app.metadata.generation,
        replicas: counts.replicas.unwrap_or_default(),
        ready_replicas: ready,
        updated_replicas: counts.updated_replicas.unwrap_or_default(),
        available_replicas: counts.available_replicas.unwrap_or_default(),
        desired_replicas: desired,
        settled_replicas: settled,
        ready: format!("{ready}/{desired}"),
        scaling: spec
            .active_scaling()
            .map(|scaling| format!("{}-{}", scaling.min_replicas, scaling.max_replicas)),
        selector: build::selector_text(app),
        url: build::url(app, observed.service),
        image: running,
        current_revision: Some(choice.applied.clone()),
        last_good_revision: last_good,
        failed_revision: failed.as_ref().map(|_| choice.wanted.clone()),
        failed_reason: failed.map(|failure| failure.message),
        recovering: had_failed && matches!(now, Phase::Creating | Phase::Updating | Phase::Scaling),
        conditions: before.conditions,
        children: observed.children.clone(),
    };
    conditions::set(&mut status, observed, &state, problem.as_ref());
    status
}

/// The phase of a claim.
pub(crate) fn phase_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// Whether it may become better or worse without any object changing: pods have to be looked at.
pub fn is_under_way(status: &ApplicationStatus) -> bool {
    matches!(status.phase, Some(Phase::Creating | Phase::Updating)) && status.failed_revision.is_none()
}

#[cfg(test)]
mod tests;
