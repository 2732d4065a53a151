//! The quality-of-service class of a pod.

use shoal_objects::Value;

use super::resources::{Amounts, amounts};
use crate::kinds::access::{field, list_at, part};

/// `Guaranteed`, `Burstable` or `BestEffort`, from cpu and memory of the pod or of all its containers.
pub fn qos_class(spec: &Value) -> &'static str {
    let resources: Vec<&Value> = match field(spec, "resources") {
        Some(pod_level) => vec![pod_level],
        None => list_at(spec, "containers")
            .iter()
            .chain(list_at(spec, "initContainers"))
            .map(|container| part(container, "resources"))
            .collect(),
    };
    let mut anything = false;
    let mut guaranteed = true;
    for resources in resources {
        let requests = compute(amounts(resources, "requests"));
        let limits = compute(amounts(resources, "limits"));
        anything |= !requests.is_empty() || !limits.is_empty();
        guaranteed &= limits.len() == 2 && (requests.is_empty() || requests == limits);
    }
    match (anything, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Only cpu and memory count, and only when there is some.
fn compute(mut amounts: Amounts) -> Amounts {
    amounts.retain(|name, amount| {
        matches!(name.as_str(), "cpu" | "memory") && !amount.is_zero() && !amount.is_negative()
    });
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(resources: &Value) -> &'static str {
        qos_class(&json!({"containers": [{"name": "a", "resources": resources}]}))
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        assert_eq!(class(&json!({})), "BestEffort");
        assert_eq!(class(&json!({"requests": {"cpu": "0"}})), "BestEffort");
        assert_eq!(class(&json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(class(&json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})), "Burstable");
        let same = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            class(&json!({"limits": same, "requests": {"cpu": "1000m", "memory": "1024Mi"}})),
            "Guaranteed"
        );
        assert_eq!(
            class(&json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}})),
            "BestEffort"
        );
    }

    #[test]
    fn one_container_without_limits_makes_the_pod_burstable() {
        let spec = json!({"containers": [
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}},
            {"resources": {}},
        ]});
        assert_eq!(qos_class(&spec), "Burstable");
    }
}
