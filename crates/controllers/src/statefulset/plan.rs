//! What a StatefulSet needs next: pods in the order of their ordinals, one at a time unless `Parallel` allows more.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::jiff::Timestamp;

use super::identity::{self, revision};
use crate::deployment::resolve;
use crate::pods::{self, Availability};

/// No more pods than this are created in one go.
const BURST: usize = 500;

/// A template that the set has or had.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The name of its ControllerRevision.
    pub name: String,
    /// The template.
    pub template: PodTemplateSpec,
}

/// What was read.
pub struct View<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// The pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// The template that pods are being moved away from.
    pub current: &'a Revision,
    /// The template in the set's spec.
    pub update: &'a Revision,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do to one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create the claims of this ordinal that are missing, then the pod.
    Create(i32, Box<Pod>),
    /// Give the pod back the labels and volumes of its ordinal.
    Mend(Box<Pod>),
    /// Delete the pod of this name and uid.
    Delete(String, String),
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// The status that is true now.
    pub status: StatefulSetStatus,
    /// When to look again though nothing changes.
    pub again: Option<Duration>,
}

/// What the set needs next.
pub fn plan(view: &View<'_>) -> Plan {
    let facts = Facts::of(view);
    let mut plan = Plan { steps: Vec::new(), status: facts.status(view), again: facts.again };
    if view.set.metadata.deletion_timestamp.is_none()
        && facts.keep(view, &mut plan)
        && facts.shrink(view, &mut plan)
    {
        facts.update(view, &mut plan);
    }
    settle(view, &mut plan.status);
    plan
}

/// The pods by ordinal, and how they are.
struct Facts<'a> {
    /// Ordinals that should exist, each with its pod if it does.
    wanted: BTreeMap<i32, Option<&'a Pod>>,
    /// Pods beyond the wanted ordinals.
    condemned: BTreeMap<i32, &'a Pod>,
    start: i32,
    replicas: i32,
    one_at_a_time: bool,
    min_ready: i32,
    again: Option<Duration>,
}

impl<'a> Facts<'a> {
    fn of(view: &View<'a>) -> Facts<'a> {
        let spec = view.set.spec.as_ref();
        let range = identity::ordinals(view.set);
        let (start, replicas) = (range.start, range.end - range.start);
        let mut wanted: BTreeMap<i32, Option<&Pod>> = BTreeMap::new();
        let mut condemned = BTreeMap::new();
        for pod in &view.pods {
            let Some(ordinal) = identity::ordinal(view.set, pod) else { continue };
            if range.contains(&ordinal) {
                wanted.insert(ordinal, Some(pod));
            } else {
                condemned.insert(ordinal, *pod);
            }
        }
        let missing: Vec<i32> = range.filter(|n| !wanted.contains_key(n)).take(BURST).collect();
        wanted.extend(missing.into_iter().map(|n| (n, None)));
        let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let again = view.pods.iter().filter_map(|pod| match pods::availability(pod, min_ready, view.now) {
            Availability::In(left) => Some(left),
            _ => None,
        });
        Facts {
            again: again.min(),
            wanted,
            condemned,
            start,
            replicas,
            one_at_a_time: spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel"),
            min_ready,
        }
    }

    fn is_available(&self, pod: &Pod, now: Timestamp) -> bool {
        runs(pod) && pods::availability(pod, self.min_ready, now) == Availability::Available
    }

    fn status(&self, view: &View<'_>) -> StatefulSetStatus {
        let before = view.set.status.as_ref();
        let mut status = StatefulSetStatus {
            observed_generation: view.set.metadata.generation,
            replicas: 0,
            ready_replicas: Some(0),
            available_replicas: Some(0),
            current_replicas: Some(0),
            updated_replicas: Some(0),
            current_revision: Some(view.current.name.clone()),
            update_revision: Some(view.update.name.clone()),
            collision_count: Some(before.and_then(|status| status.collision_count).unwrap_or_default()),
            conditions: before.and_then(|status| status.conditions.clone()),
        };
        let add = |count: &mut Option<i32>, one: bool| *count = count.map(|count| count + i32::from(one));
        for pod in self.wanted.values().flatten().chain(self.condemned.values()) {
            let there = pods::is_active(pod);
            status.replicas += 1;
            add(&mut status.ready_replicas, runs(pod) && pods::is_ready(pod));
            add(&mut status.available_replicas, self.is_available(pod, view.now));
            add(&mut status.current_replicas, there && revision(pod) == view.current.name);
            add(&mut status.updated_replicas, there && revision(pod) == view.update.name);
        }
        status
    }

    /// Makes what is missing, from the lowest ordinal up. Tells whether the next stage may begin.
    fn keep(&self, view: &View<'_>, plan: &mut Plan) -> bool {
        for (ordinal, pod) in &self.wanted {
            let Some(pod) = pod else {
                let made = self.make(view, *ordinal);
                plan.steps.push(Step::Create(*ordinal, Box::new(made)));
                if self.one_at_a_time {
                    return false;
                }
                continue;
            };
            // A pod that has ended has the name that its successor needs.
            if pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_none() {
                plan.delete(pod);
                if self.one_at_a_time {
                    return false;
                }
                continue;
            }
            if self.one_at_a_time && !(pods::is_active(pod) && self.is_available(pod, view.now)) {
                return false;
            }
            let mut mended = (*pod).clone();
            if pods::is_active(pod) && identity::take_identity(view.set, *ordinal, &mut mended) {
                plan.steps.push(Step::Mend(Box::new(mended)));
            }
        }
        true
    }

    /// A pod of a missing ordinal: of the old template while an update has not come to it.
    fn make(&self, view: &View<'_>, ordinal: i32) -> Pod {
        let strategy = view.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        let partition =
            strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).filter(|p| *p > 0);
        let not_yet = match partition {
            Some(partition) => ordinal < self.start + partition,
            // Updates go from the top down: one that has left an old pod above this ordinal has not come to it.
            None => self
                .wanted
                .range(ordinal.saturating_add(1)..)
                .any(|(_, pod)| pod.is_some_and(|pod| revision(pod) != view.update.name)),
        };
        let revision = if rolling && not_yet { view.current } else { view.update };
        identity::pod(view.set, ordinal, &revision.template, &revision.name)
    }

    /// Removes what is too much, from the highest ordinal down. Tells whether the next stage may begin.
    fn shrink(&self, view: &View<'_>, plan: &mut Plan) -> bool {
        let first_ill = self
            .condemned
            .iter()
            .find(|(_, pod)| !(pods::is_active(pod) && runs(pod) && pods::is_ready(pod)))
            .map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in self.condemned.iter().rev() {
            if pod.metadata.deletion_timestamp.is_some() {
                if self.one_at_a_time {
                    return false;
                }
                continue;
            }
            let well = self.is_available(pod, view.now);
            if self.one_at_a_time && !well && first_ill != Some(*ordinal) {
                return false;
            }
            plan.delete(pod);
            if self.one_at_a_time {
                return false;
            }
        }
        self.condemned.is_empty() || !self.one_at_a_time
    }

    /// Replaces pods of the old template, from the highest ordinal down, never more at once than may be unavailable.
    fn update(&self, view: &View<'_>, plan: &mut Plan) {
        let strategy = view.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
        let allowed = rolling
            .and_then(|rolling| rolling.max_unavailable.as_ref())
            .map_or(1, |value| resolve(value, self.replicas, true))
            .max(1);
        let mut unavailable = self
            .wanted
            .values()
            .filter(|pod| !pod.is_some_and(|pod| pods::is_active(pod) && self.is_available(pod, view.now)))
            .count();
        let allowed = usize::try_from(allowed).unwrap_or(1);
        for (_, pod) in self.wanted.range(self.start.saturating_add(partition)..).rev() {
            let Some(pod) = pod else { return };
            let well = pods::is_active(pod) && self.is_available(pod, view.now);
            if revision(pod) == view.update.name || pod.metadata.deletion_timestamp.is_some() {
                if !well && allowed == 1 {
                    return;
                }
                continue;
            }
            // A pod that is already unavailable costs nothing more.
            if well && unavailable >= allowed {
                return;
            }
            unavailable += usize::from(well);
            plan.delete(pod);
            if allowed == 1 {
                return;
            }
        }
    }
}

fn runs(pod: &Pod) -> bool {
    pods::phase(pod) == "Running"
}

/// When all pods have the new template and serve, it becomes the current one.
fn settle(view: &View<'_>, status: &mut StatefulSetStatus) {
    let replicas = Some(status.replicas);
    let strategy = view.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
    if rolling
        && status.updated_replicas == replicas
        && status.ready_replicas == replicas
        && status.replicas == view.set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    {
        status.current_revision = status.update_revision.clone();
        status.current_replicas = status.updated_replicas;
    }
    for count in [&mut status.ready_replicas, &mut status.current_replicas, &mut status.updated_replicas] {
        *count = count.filter(|count| *count != 0);
    }
}

impl Plan {
    fn delete(&mut self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.steps.push(Step::Delete(name, pod.metadata.uid.clone().unwrap_or_default()));
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
