//! How far the Deployment is with a template.

use k8s_openapi::api::apps::v1::Deployment;

use crate::build::revision_of;

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// The Deployment is not there, has another template, or its controller has not seen this one.
    Ahead,
    /// Pods are being made or replaced; how many of how many are there.
    UnderWay {
        /// Available pods of the template.
        done: i32,
        /// Pods that are wanted.
        wanted: i32,
    },
    /// All pods are of the template, and available.
    Complete,
    /// It has made no progress for too long; what the controller says.
    Overdue(String),
}

/// How far the Deployment is with the template of this revision.
pub fn rollout(deployment: Option<&Deployment>, revision: &str) -> Rollout {
    let Some((deployment, spec)) = deployment.and_then(|live| Some((live, live.spec.as_ref()?))) else {
        return Rollout::Ahead;
    };
    let status = deployment.status.clone().unwrap_or_default();
    let seen =
        status.observed_generation.unwrap_or_default() >= deployment.metadata.generation.unwrap_or_default();
    if revision_of(&spec.template) != Some(revision) || !seen {
        return Rollout::Ahead;
    }
    let progressing = status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
    if let Some(condition) = progressing
        && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    {
        return Rollout::Overdue(condition.message.clone().unwrap_or_default());
    }
    let wanted = spec.replicas.unwrap_or(1);
    let count = |number: Option<i32>| number.unwrap_or_default();
    let (updated, available) = (count(status.updated_replicas), count(status.available_replicas));
    if updated >= wanted && count(status.replicas) <= updated && available >= updated {
        return Rollout::Complete;
    }
    Rollout::UnderWay { done: available.min(updated), wanted }
}
