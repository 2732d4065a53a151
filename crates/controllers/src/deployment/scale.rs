//! Changing the number of replicas while several ReplicaSets are alive: each keeps its share.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::rollout::{self, size};
use super::sets;

/// Whether the Deployment's size has changed since its ReplicaSets were sized.
pub(super) fn is_scaling(deployment: &Deployment, all: &[&ReplicaSet]) -> bool {
    let wanted = rollout::replicas(deployment).to_string();
    all.iter()
        .filter(|set| size(set) > 0)
        .any(|set| sets::annotation(set, sets::DESIRED).is_some_and(|desired| desired != wanted))
}

/// New sizes for a Deployment whose size has changed or that is paused. Sets that keep their size are included: what
/// they were sized for must be written down.
pub(super) fn resize<'a>(
    deployment: &Deployment,
    current: Option<&'a ReplicaSet>,
    old: &[&'a ReplicaSet],
) -> Vec<(&'a ReplicaSet, i32)> {
    let wanted = rollout::replicas(deployment);
    let all: Vec<&ReplicaSet> = old.iter().copied().chain(current).collect();
    if let Some(only) = the_only_one(current, &all) {
        return vec![(only, wanted)];
    }
    if current.is_some_and(|current| is_saturated(deployment, current)) {
        return old.iter().filter(|set| size(set) > 0).map(|set| (*set, 0)).collect();
    }
    if !rollout::is_rolling(deployment) {
        return Vec::new();
    }
    let mut active: Vec<&ReplicaSet> = all.into_iter().filter(|set| size(set) > 0).collect();
    let present: i32 = active.iter().map(|set| size(set)).sum();
    let allowed = if wanted > 0 { wanted + rollout::max_surge(deployment) } else { 0 };
    let to_add = allowed - present;
    // The biggest first; of equal ones the newest when growing and the oldest when shrinking.
    if to_add > 0 {
        active.sort_by_key(|set| (Reverse(size(set)), Reverse(sets::by_age(set))));
    } else {
        active.sort_by_key(|set| (Reverse(size(set)), sets::by_age(set)));
    }
    let mut added = 0;
    let mut sizes: Vec<(&ReplicaSet, i32)> = active
        .into_iter()
        .map(|set| {
            let share = if to_add == 0 { 0 } else { share(set, deployment, to_add, added) };
            added += share;
            (set, size(set) + share)
        })
        .collect();
    // Rounding leaves some over.
    if let Some((_, first)) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

/// The one active ReplicaSet; without any, the current or else the newest.
fn the_only_one<'a>(current: Option<&'a ReplicaSet>, all: &[&'a ReplicaSet]) -> Option<&'a ReplicaSet> {
    let active: Vec<_> = all.iter().copied().filter(|set| size(set) > 0).collect();
    match active[..] {
        [] => current.or_else(|| all.iter().copied().max_by_key(|set| sets::by_age(set))),
        [only] => Some(only),
        _ => None,
    }
}

/// Whether the current ReplicaSet has everything, and has it available.
fn is_saturated(deployment: &Deployment, current: &ReplicaSet) -> bool {
    let wanted = rollout::replicas(deployment);
    let sized_for = sets::annotation(current, sets::DESIRED).and_then(|text| text.parse().ok());
    size(current) == wanted && sized_for == Some(wanted) && rollout::available(current) == wanted
}

fn share(set: &ReplicaSet, deployment: &Deployment, to_add: i32, added: i32) -> i32 {
    let left = to_add - added;
    if left == 0 {
        return 0;
    }
    let fraction = fraction(set, deployment);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// By how much the set would change if all sets changed in proportion.
fn fraction(set: &ReplicaSet, deployment: &Deployment) -> i32 {
    let wanted = rollout::replicas(deployment);
    if wanted == 0 {
        return -size(set);
    }
    let maximum = wanted + rollout::max_surge(deployment);
    let sized_for = sets::annotation(set, sets::MAXIMUM).and_then(|text| text.parse::<i32>().ok());
    let reported = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let before = sized_for.unwrap_or(reported);
    if before <= 0 {
        return 0;
    }
    let scaled = f64::from(size(set)) * f64::from(maximum) / f64::from(before);
    scaled.round() as i32 - size(set)
}
