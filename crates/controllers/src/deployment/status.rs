//! The status of a Deployment: counts from its ReplicaSets, and whether the rollout moves.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::jiff::Timestamp;

use super::conditions::{self, AVAILABLE, PROGRESSING, REPLICA_FAILURE};
use super::rollout;

/// `progressDeadlineSeconds` of this value means that nobody waits.
const NO_DEADLINE: i32 = i32::MAX;

pub(super) const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Counts and the availability condition.
pub(super) fn counts(
    deployment: &Deployment,
    all: &[&ReplicaSet],
    current: Option<&ReplicaSet>,
    conditions: Vec<DeploymentCondition>,
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |count: fn(&ReplicaSet) -> i32| all.iter().map(|set| count(set)).sum::<i32>();
    let available = sum(rollout::available);
    let ready = sum(|set| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default());
    let terminating = all
        .iter()
        .filter_map(|set| set.status.as_ref().and_then(|status| status.terminating_replicas))
        .reduce(|a, b| a + b);
    let counted = |count: i32| (count != 0).then_some(count);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: counted(sum(actual)),
        updated_replicas: counted(current.map(actual).unwrap_or_default()),
        ready_replicas: counted(ready),
        available_replicas: counted(available),
        unavailable_replicas: counted((sum(rollout::size) - available).max(0)),
        terminating_replicas: terminating,
        collision_count: deployment.status.as_ref().and_then(|status| status.collision_count),
        conditions: None,
    };
    let mut conditions = conditions;
    let enough = available >= rollout::replicas(deployment) - rollout::max_unavailable(deployment);
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    conditions::set(&mut conditions, conditions::new(AVAILABLE, enough, reason, message.to_owned(), now));
    status.conditions = Some(conditions);
    status
}

fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map(|status| status.replicas).unwrap_or_default()
}

/// Whether all pods are of the current template and available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = rollout::replicas(deployment);
    status.updated_replicas.unwrap_or_default() == wanted
        && status.replicas.unwrap_or_default() == wanted
        && status.available_replicas.unwrap_or_default() == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Adds what can be said about progress: finished, moving, or stuck. When to look again for a deadline.
pub(super) fn progress(
    deployment: &Deployment,
    all: &[&ReplicaSet],
    current: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let mut conditions = status.conditions.take().unwrap_or_default();
    let deadline = deadline(deployment);
    if deadline.is_none() {
        conditions::remove(&mut conditions, PROGRESSING);
    }
    let finished = status.replicas == status.updated_replicas
        && conditions::reason(&conditions, PROGRESSING) == Some(NEW_AVAILABLE);
    if let Some(deadline) = deadline
        && !finished
    {
        let subject = match current {
            Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
            None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
        };
        let condition = |status, reason, text: &str| {
            conditions::new(PROGRESSING, status, reason, format!("{subject} {text}"), now)
        };
        if is_complete(deployment, status) {
            let done = condition(true, NEW_AVAILABLE, "has successfully progressed.");
            conditions::set(&mut conditions, done);
        } else if has_moved(deployment, status) {
            conditions::renew(&mut conditions, condition(true, "ReplicaSetUpdated", "is progressing."));
        } else if is_late(&conditions, deadline, now) {
            conditions::set(&mut conditions, condition(false, TIMED_OUT, "has timed out progressing."));
        }
    }
    match failure(all, current) {
        Some((reason, message)) => {
            conditions::set(&mut conditions, conditions::new(REPLICA_FAILURE, true, &reason, message, now));
        }
        None => conditions::remove(&mut conditions, REPLICA_FAILURE),
    }
    let again = look_again(deployment, status, &conditions, deadline, now);
    status.conditions = Some(conditions);
    again
}

fn deadline(deployment: &Deployment) -> Option<i64> {
    let seconds = deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds)?;
    (seconds != NO_DEADLINE).then_some(i64::from(seconds))
}

fn has_moved(deployment: &Deployment, now: &DeploymentStatus) -> bool {
    let none = DeploymentStatus::default();
    let before = deployment.status.as_ref().unwrap_or(&none);
    let count = |count: Option<i32>| count.unwrap_or_default();
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}

fn is_late(conditions: &[DeploymentCondition], deadline: i64, now: Timestamp) -> bool {
    let Some(condition) = conditions::find(conditions, PROGRESSING) else { return false };
    match condition.reason.as_deref() {
        Some(NEW_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => condition
            .last_update_time
            .as_ref()
            .is_some_and(|time| time.0.as_second() + deadline < now.as_second()),
    }
}

/// One second after the deadline, if nothing else happens.
fn look_again(
    deployment: &Deployment,
    status: &DeploymentStatus,
    conditions: &[DeploymentCondition],
    deadline: Option<i64>,
    now: Timestamp,
) -> Option<Duration> {
    let condition = conditions::find(conditions, PROGRESSING)?;
    if is_complete(deployment, status) || condition.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let left = condition.last_update_time.as_ref()?.0.as_second() + deadline? - now.as_second();
    Some(Duration::from_secs(u64::try_from(left).unwrap_or_default() + 1))
}

/// What a ReplicaSet says it failed at; the current one is heard first.
fn failure(all: &[&ReplicaSet], current: Option<&ReplicaSet>) -> Option<(String, String)> {
    current.into_iter().chain(all.iter().copied()).find_map(|set| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let failed = conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)?;
        Some((failed.reason.clone().unwrap_or_default(), failed.message.clone().unwrap_or_default()))
    })
}
