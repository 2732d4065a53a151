//! How many pods may be too many or too few while templates change.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The wanted number of pods.
pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether old and new pods run at the same time.
pub fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
}

/// How many pods there may be above the wanted number.
pub fn max_surge(deployment: &Deployment) -> i32 {
    fences(deployment).0
}

/// How many of the wanted pods may be unavailable.
pub fn max_unavailable(deployment: &Deployment) -> i32 {
    fences(deployment).1.min(replicas(deployment))
}

/// Surge rounds up and unavailability down; with both at zero nothing could ever move, so one may be unavailable.
fn fences(deployment: &Deployment) -> (i32, i32) {
    if !is_rolling(deployment) {
        return (0, 0);
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let quarter = IntOrString::String("25%".to_owned());
    let total = replicas(deployment);
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
    match (resolve(surge, total, true), resolve(unavailable, total, false)) {
        (0, 0) => (0, 1),
        resolved => resolved,
    }
}

/// A number, or a part of `total`.
pub fn resolve(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent =
                text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()).unwrap_or_default();
            let parts = percent * i64::from(total);
            let count = if round_up { (parts + 99).div_euclid(100) } else { parts.div_euclid(100) };
            i32::try_from(count).unwrap_or(i32::MAX)
        }
    }
}

pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// How many pods it may have at this moment: those that it is to have, and those that it was not yet seen to give up.
pub(super) fn pods(set: &ReplicaSet) -> i32 {
    size(set).max(set.status.as_ref().map_or(0, |status| status.replicas))
}

/// Whether its status is about the size that it has now.
pub(super) fn is_observed(set: &ReplicaSet) -> bool {
    set.status.as_ref().and_then(|status| status.observed_generation) >= set.metadata.generation
}

/// The same, and nothing that it counts is about to go.
fn is_settled(set: &ReplicaSet) -> bool {
    is_observed(set) && pods(set) == size(set)
}

/// The size that the current ReplicaSet may have now.
pub(super) fn current_size(deployment: &Deployment, current: i32, all: i32) -> i32 {
    let wanted = replicas(deployment);
    if !is_rolling(deployment) {
        return wanted;
    }
    let room = wanted + max_surge(deployment) - all;
    if current >= wanted {
        wanted
    } else if room <= 0 {
        current
    } else {
        current + room.min(wanted - current)
    }
}

/// New sizes of the old ReplicaSets (oldest first), for those that shrink: pods that are not available first, then as
/// many as can be spared.
pub(super) fn shrink<'a>(
    deployment: &Deployment,
    current: &ReplicaSet,
    old: &[&'a ReplicaSet],
) -> Vec<(&'a ReplicaSet, i32)> {
    // What is available is known only when every ReplicaSet has done what it was told before.
    if !is_settled(current) || !old.iter().all(|set| is_settled(set)) {
        return Vec::new();
    }
    let mut sizes: Vec<(&ReplicaSet, i32)> = old.iter().map(|set| (*set, size(set))).collect();
    let all: i32 = size(current) + sizes.iter().map(|(_, size)| size).sum::<i32>();
    let minimum = replicas(deployment) - max_unavailable(deployment);
    let unavailable = size(current) - available(current);
    let mut spare = all - minimum - unavailable;
    if spare <= 0 {
        return Vec::new();
    }
    for (set, size) in &mut sizes {
        let useless = (*size - available(set)).clamp(0, spare);
        *size -= useless;
        spare -= useless;
    }
    let available_now: i32 = available(current) + old.iter().map(|set| available(set)).sum::<i32>();
    let mut spare = (available_now - minimum).max(0);
    for (_, size) in &mut sizes {
        let goes = (*size).min(spare);
        *size -= goes;
        spare -= goes;
    }
    sizes.retain(|(set, next)| *next != size(set));
    sizes
}
