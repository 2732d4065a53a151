//! The status of a budget, from the pods that it covers and what their controllers want.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shoal_runtime::status::{Report, set_condition};

use crate::deployment::resolve;
use crate::pods;

/// An eviction that was allowed counts as done for so long; then it is believed to have failed.
const DISRUPTION_SECONDS: i64 = 120;

/// The status that is true now, and when an eviction that was allowed is forgotten. `expected` is how many pods the
/// controllers of the covered pods want altogether, if all of them can tell.
pub fn status(
    budget: &PodDisruptionBudget,
    covered: &[impl AsRef<Pod>],
    expected: Result<i32, String>,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let before = budget.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let generation = budget.metadata.generation;
    let (disrupted, again) = disrupted(&before, covered, now);
    let healthy = covered
        .iter()
        .map(AsRef::as_ref)
        .filter(|pod| pods::is_active(pod) && pods::is_ready(pod))
        .filter(|pod| !pod.metadata.name.as_ref().is_some_and(|name| disrupted.contains_key(name)))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(0),
        disruptions_allowed: Some(0),
        expected_pods: Some(0),
        observed_generation: generation,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        ..PodDisruptionBudgetStatus::default()
    };
    let report = match expected {
        Ok(expected) => {
            let desired = desired(budget, expected);
            status.expected_pods = Some(expected);
            status.desired_healthy = Some(desired);
            // Without any pod expected there is nothing that an eviction could be weighed against.
            let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
            status.disruptions_allowed = Some(allowed);
            let enough = allowed > 0;
            let reason = if enough { "SufficientPods" } else { "InsufficientPods" };
            Report { type_: "DisruptionAllowed", status: Some(enough), reason, message: String::new() }
        }
        Err(message) => {
            // What is not known stays as it was told; only that nothing may be evicted is certain.
            status.expected_pods = before.expected_pods.or(Some(0));
            status.desired_healthy = before.desired_healthy.or(Some(0));
            Report { type_: "DisruptionAllowed", status: Some(false), reason: "SyncFailed", message }
        }
    };
    set_condition(&mut conditions, report, generation, now);
    status.conditions = Some(conditions);
    (status, again)
}

fn desired(budget: &PodDisruptionBudget, expected: i32) -> i32 {
    let spec = budget.spec.as_ref();
    if let Some(most) = spec.and_then(|spec| spec.max_unavailable.as_ref()) {
        return (expected - resolve(most, expected, true)).max(0);
    }
    spec.and_then(|spec| spec.min_available.as_ref()).map_or(0, |least| resolve(least, expected, true))
}

/// Evictions that were allowed and whose pods still live.
fn disrupted(
    before: &PodDisruptionBudgetStatus,
    covered: &[impl AsRef<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut kept = BTreeMap::new();
    let mut again: Option<Duration> = None;
    for (name, since) in before.disrupted_pods.iter().flatten() {
        let alive = covered
            .iter()
            .map(AsRef::as_ref)
            .any(|pod| pod.metadata.name.as_ref() == Some(name) && pod.metadata.deletion_timestamp.is_none());
        let left = since.0.as_second() + DISRUPTION_SECONDS - now.as_second();
        if let (true, Ok(left)) = (alive && left > 0, u64::try_from(left)) {
            let left = Duration::from_secs(left);
            again = Some(again.map_or(left, |again| again.min(left)));
            kept.insert(name.clone(), since.clone());
        }
    }
    (kept, again)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(
            json!({"metadata": {"name": "b", "generation": 1}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    fn pods(ready: usize, not: usize) -> Vec<Arc<Pod>> {
        (0..ready + not)
            .map(|index| {
                let status = if index < ready { "True" } else { "False" };
                let pod = json!({"metadata": {"name": format!("p{index}")}, "status": {"phase": "Running",
                    "conditions": [{"type": "Ready", "status": status}]}});
                Arc::new(serde_json::from_value(pod).unwrap())
            })
            .collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn none() -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    }

    #[test]
    fn a_budget_allows_what_is_healthy_beyond_what_must_be() {
        for (spec, ready, not, allowed, desired) in [
            (json!({"minAvailable": "60%"}), 3, 0, 1, 2),
            (json!({"minAvailable": 3}), 3, 0, 0, 3),
            (json!({"maxUnavailable": 1}), 3, 0, 1, 2),
            (json!({"maxUnavailable": 1}), 2, 1, 0, 2),
            (json!({"maxUnavailable": "100%"}), 1, 1, 1, 0),
        ] {
            let total = i32::try_from(ready + not).unwrap();
            let (status, _) = status(&budget(spec.clone(), none()), &pods(ready, not), Ok(total), at(0));
            assert_eq!(
                (status.disruptions_allowed, status.desired_healthy),
                (Some(allowed), Some(desired)),
                "{spec}"
            );
        }
    }

    #[test]
    fn an_eviction_that_was_allowed_counts_until_the_pod_goes_or_time_passes() {
        let mut told = none();
        told["disruptedPods"] = json!({"p0": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"});
        let budget = budget(json!({"maxUnavailable": 1}), told);
        let (now, again) = status(&budget, &pods(3, 0), Ok(3), at(20));
        assert_eq!((now.current_healthy, now.disruptions_allowed), (Some(2), Some(0)));
        assert_eq!(again, Some(Duration::from_secs(100)));
        let (later, _) = status(&budget, &pods(3, 0), Ok(3), at(120));
        assert_eq!((later.disruptions_allowed, later.disrupted_pods), (Some(1), None));
    }

    #[test]
    fn what_cannot_be_known_allows_nothing() {
        let (now, _) = status(
            &budget(json!({"maxUnavailable": 1}), none()),
            &pods(3, 0),
            Err("no scale".to_owned()),
            at(0),
        );
        assert_eq!(now.disruptions_allowed, Some(0));
        assert_eq!(now.conditions.unwrap()[0].reason, "SyncFailed");
    }
}
