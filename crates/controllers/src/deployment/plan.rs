//! What a Deployment needs next. One step at a time: the changes that a step makes come back as events and lead to
//! the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::conditions::{self, PROGRESSING};
use super::rollout::{self, size};
use super::{scale, sets, status};
use crate::pods;

/// What was read.
pub struct View<'a> {
    /// The Deployment.
    pub deployment: &'a Deployment,
    /// The ReplicaSets that it controls.
    pub sets: Vec<&'a ReplicaSet>,
    /// Their pods.
    pub pods: Vec<&'a Pod>,
    /// The time.
    pub now: Timestamp,
}

/// A change to a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which one.
    pub name: String,
    /// Its new size, if that changes.
    pub replicas: Option<i32>,
    /// Its new `minReadySeconds`, if that changes.
    pub min_ready_seconds: Option<i32>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// A ReplicaSet to create.
    pub create: Option<ReplicaSet>,
    /// ReplicaSets to change.
    pub change: Vec<Change>,
    /// ReplicaSets to delete.
    pub delete: Vec<String>,
    /// The Deployment's revision, if the annotation must change.
    pub revision: Option<String>,
    /// The status that is true now.
    pub status: DeploymentStatus,
    /// What to tell people: reason `ScalingReplicaSet`.
    pub scaled: Vec<String>,
    /// When to look again though nothing changes.
    pub again: Option<Duration>,
}

/// What the Deployment needs next.
pub fn plan(view: &View<'_>) -> Plan {
    let View { deployment, now, .. } = *view;
    let mut old = view.sets.clone();
    old.sort_by_key(|set| sets::by_age(set));
    let current = sets::current(deployment, &old);
    old.retain(|set| current.is_none_or(|current| current.metadata.name != set.metadata.name));
    let mut plan = Plan::default();
    let mut told =
        deployment.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let all: Vec<&ReplicaSet> = old.iter().copied().chain(current).collect();

    if deployment.metadata.deletion_timestamp.is_some() {
        plan.status = status::counts(deployment, &all, current, told, now);
        return plan;
    }
    pausing(deployment, &mut told, now);
    let paused = is_paused(deployment);
    if paused || scale::is_scaling(deployment, &all) {
        if let Some(current) = current {
            keep_current(deployment, current, &old, &mut plan, &mut told, now);
        }
        for (set, next) in scale::resize(deployment, current, &old) {
            plan.resize(deployment, set, next);
        }
        if paused {
            plan.delete = history(deployment, &old);
        }
        plan.status = status::counts(deployment, &all, current, told, now);
        return plan;
    }
    let settled = if rollout::is_rolling(deployment) {
        roll(deployment, current, &old, &mut plan, &mut told, now)
    } else {
        recreate(view, current, &old, &mut plan, &mut told)
    };
    plan.status = status::counts(deployment, &all, current, told, now);
    if settled && status::is_complete(deployment, &plan.status) {
        plan.delete = history(deployment, &old);
    }
    plan.again = status::progress(deployment, &all, current, &mut plan.status, now);
    plan
}

fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default()
}

/// Pausing and resuming are told by the condition of progress, so that no deadline passes meanwhile.
fn pausing(deployment: &Deployment, told: &mut Vec<DeploymentCondition>, now: Timestamp) {
    let has_deadline = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.progress_deadline_seconds)
        .is_some_and(|seconds| seconds != i32::MAX);
    let reason = conditions::reason(told, PROGRESSING);
    if !has_deadline || reason == Some("ProgressDeadlineExceeded") {
        return;
    }
    let was_paused = reason == Some("DeploymentPaused");
    let (reason, message) = match (is_paused(deployment), was_paused) {
        (true, false) => ("DeploymentPaused", "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    let mut condition = conditions::new(PROGRESSING, true, reason, message.to_owned(), now);
    condition.status = "Unknown".to_owned();
    conditions::set(told, condition);
}

/// Old and new at the same time. Tells whether there was nothing to do.
fn roll(
    deployment: &Deployment,
    current: Option<&ReplicaSet>,
    old: &[&ReplicaSet],
    plan: &mut Plan,
    told: &mut Vec<DeploymentCondition>,
    now: Timestamp,
) -> bool {
    let others: i32 = old.iter().map(|set| rollout::pods(set)).sum();
    // How many pods there are is known only when every ReplicaSet has seen what it was told before.
    let is_known = old.iter().all(|set| rollout::is_observed(set));
    let Some(current) = current else {
        let first = if is_known { rollout::current_size(deployment, 0, others) } else { 0 };
        plan.create(deployment, old, first, told, now);
        return false;
    };
    keep_current(deployment, current, old, plan, told, now);
    let next = rollout::current_size(deployment, size(current), others + rollout::pods(current));
    if next < size(current) || next > size(current) && is_known {
        plan.resize(deployment, current, next);
        return false;
    }
    let shrinking = rollout::shrink(deployment, current, old);
    for (set, next) in &shrinking {
        plan.resize(deployment, set, *next);
    }
    shrinking.is_empty()
}

/// New pods only after the old ones are gone. Tells whether there was nothing to do.
fn recreate(
    view: &View<'_>,
    current: Option<&ReplicaSet>,
    old: &[&ReplicaSet],
    plan: &mut Plan,
    told: &mut Vec<DeploymentCondition>,
) -> bool {
    let View { deployment, now, .. } = *view;
    if let Some(current) = current {
        keep_current(deployment, current, old, plan, told, now);
    }
    let active: Vec<_> = old.iter().filter(|set| size(set) > 0).collect();
    for set in &active {
        plan.resize(deployment, set, 0);
    }
    if !active.is_empty() || old_pods_run(view, current) {
        return false;
    }
    let wanted = rollout::replicas(deployment);
    match current {
        None => {
            plan.create(deployment, old, wanted, told, now);
            false
        }
        Some(current) if size(current) != wanted => {
            plan.resize(deployment, current, wanted);
            false
        }
        Some(_) => true,
    }
}

/// Pods that are going still hold what they use, so they count until they are gone.
fn old_pods_run(view: &View<'_>, current: Option<&ReplicaSet>) -> bool {
    let current = current.and_then(|set| set.metadata.uid.as_ref());
    view.pods.iter().any(|pod| {
        let owner = shoal_runtime::owner::controller_of(&pod.metadata).map(|owner| &owner.uid);
        owner != current && !pods::is_finished(pod)
    })
}

/// Keeps revision, annotations and `minReadySeconds` of the current ReplicaSet as they should be.
fn keep_current(
    deployment: &Deployment,
    current: &ReplicaSet,
    old: &[&ReplicaSet],
    plan: &mut Plan,
    told: &mut Vec<DeploymentCondition>,
    now: Timestamp,
) {
    let mut annotations = sets::copied_annotations(deployment);
    let revision = sets::revision(current);
    let next = sets::next_revision(old);
    let revision = if revision < next {
        if revision > 0 {
            // An old template is current again: remember which revision it was.
            let before = sets::annotation(current, sets::REVISION_HISTORY).filter(|text| !text.is_empty());
            let history =
                before.map_or_else(|| revision.to_string(), |before| format!("{before},{revision}"));
            annotations.insert(sets::REVISION_HISTORY.to_owned(), history);
        }
        next
    } else {
        revision
    };
    annotations.insert(sets::REVISION.to_owned(), revision.to_string());
    plan.annotate(current, annotations);
    plan.keep_min_ready(deployment, current);
    plan.set_revision(deployment, revision);
    if conditions::find(told, PROGRESSING).is_none()
        && deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.progress_deadline_seconds)
            .is_some_and(|s| s != i32::MAX)
    {
        let message =
            format!("Found new replica set {:?}", current.metadata.name.as_deref().unwrap_or_default());
        conditions::set(told, conditions::new(PROGRESSING, true, "FoundNewReplicaSet", message, now));
    }
}

/// Old ReplicaSets beyond `revisionHistoryLimit`, the oldest revisions first. Only empty ones go.
fn history(deployment: &Deployment, old: &[&ReplicaSet]) -> Vec<String> {
    let limit = deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let mut present: Vec<_> = old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    present.sort_by_key(|set| (sets::revision(set), sets::by_age(set)));
    let surplus = present.len().saturating_sub(limit);
    present
        .into_iter()
        .take(surplus)
        .filter(|set| {
            let status = set.status.as_ref();
            size(set) == 0
                && status.is_none_or(|status| status.replicas == 0)
                && status.and_then(|status| status.observed_generation) >= set.metadata.generation
        })
        .filter_map(|set| set.metadata.name.clone())
        .collect()
}

impl Plan {
    fn create(
        &mut self,
        deployment: &Deployment,
        old: &[&ReplicaSet],
        replicas: i32,
        told: &mut Vec<DeploymentCondition>,
        now: Timestamp,
    ) {
        let revision = sets::next_revision(old);
        let Some(mut set) = sets::create(deployment, revision) else { return };
        set.metadata.annotations.get_or_insert_default().extend(sets::sizes(deployment));
        if let Some(spec) = &mut set.spec {
            spec.replicas = Some(replicas);
        }
        let name = set.metadata.name.clone().unwrap_or_default();
        if replicas > 0 {
            self.scaled.push(format!("Scaled up replica set {name} from 0 to {replicas}"));
        }
        let deadline = deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds);
        if deadline.is_some_and(|seconds| seconds != i32::MAX) {
            let message = format!("Created new replica set {name:?}");
            conditions::set(told, conditions::new(PROGRESSING, true, "NewReplicaSetCreated", message, now));
        }
        self.set_revision(deployment, revision);
        self.create = Some(set);
    }

    fn set_revision(&mut self, deployment: &Deployment, revision: i64) {
        let present =
            deployment.metadata.annotations.as_ref().and_then(|annotations| annotations.get(sets::REVISION));
        let revision = revision.to_string();
        if present != Some(&revision) {
            self.revision = Some(revision);
        }
    }

    fn resize(&mut self, deployment: &Deployment, set: &ReplicaSet, replicas: i32) {
        self.annotate(set, sets::sizes(deployment).into());
        let before = size(set);
        if before == replicas {
            return;
        }
        let name = set.metadata.name.clone().unwrap_or_default();
        let direction = if replicas > before { "up" } else { "down" };
        self.scaled.push(format!("Scaled {direction} replica set {name} from {before} to {replicas}"));
        self.change_of(name).replicas = Some(replicas);
    }

    fn annotate(&mut self, set: &ReplicaSet, mut annotations: BTreeMap<String, String>) {
        annotations.retain(|name, value| sets::annotation(set, name) != Some(value.as_str()));
        if !annotations.is_empty() {
            self.change_of(set.metadata.name.clone().unwrap_or_default()).annotations.extend(annotations);
        }
    }

    fn keep_min_ready(&mut self, deployment: &Deployment, set: &ReplicaSet) {
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let present = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        if wanted != present {
            self.change_of(set.metadata.name.clone().unwrap_or_default()).min_ready_seconds = Some(wanted);
        }
    }

    fn change_of(&mut self, name: String) -> &mut Change {
        let index = self.change.iter().position(|change| change.name == name).unwrap_or_else(|| {
            let none = Change { name, replicas: None, min_ready_seconds: None, annotations: BTreeMap::new() };
            self.change.push(none);
            self.change.len() - 1
        });
        &mut self.change[index]
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
