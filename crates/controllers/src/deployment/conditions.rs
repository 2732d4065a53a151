//! The conditions of a Deployment, kept as kubectl and its users expect them.

use k8s_openapi::api::apps::v1::DeploymentCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const AVAILABLE: &str = "Available";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) fn find<'a>(
    conditions: &'a [DeploymentCondition],
    type_: &str,
) -> Option<&'a DeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(super) fn reason<'a>(conditions: &'a [DeploymentCondition], type_: &str) -> Option<&'a str> {
    find(conditions, type_).and_then(|condition| condition.reason.as_deref())
}

pub(super) fn new(
    type_: &str,
    status: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    let now = Timestamp::from_second(now.as_second()).map(Time).ok();
    DeploymentCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

/// Puts a condition in place; one of the same status and reason stays as it was.
pub(super) fn set(conditions: &mut Vec<DeploymentCondition>, next: DeploymentCondition) {
    let same = find(conditions, &next.type_)
        .is_some_and(|present| present.status == next.status && present.reason == next.reason);
    if !same {
        renew(conditions, next);
    }
}

/// Puts a condition in place even if only its time is new.
pub(super) fn renew(conditions: &mut Vec<DeploymentCondition>, mut next: DeploymentCondition) {
    if let Some(present) = find(conditions, &next.type_).filter(|present| present.status == next.status) {
        next.last_transition_time = present.last_transition_time.clone();
    }
    remove(conditions, &next.type_);
    conditions.push(next);
}

pub(super) fn remove(conditions: &mut Vec<DeploymentCondition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}
