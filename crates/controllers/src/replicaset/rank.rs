//! Which pods go first when there are too many.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use k8s_openapi::jiff::Timestamp;

use crate::brief::{Brief, Phase};

/// What a pod is judged by, the ones to go first being the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    assigned: bool,
    phase: u8,
    ready: bool,
    cost: i32,
    /// A node with many pods can do without one rather than a node with few.
    neighbours: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<i32>,
    age: Age,
}

/// Longer is worth more; a thing without a time is worth least.
#[derive(PartialEq, Eq)]
struct Age(Option<Timestamp>);

/// `count` of the active pods, the least useful first.
pub fn first_to_go<'a>(
    mut active: Vec<&'a Brief>,
    related: &[impl AsRef<Brief>],
    count: usize,
) -> Vec<&'a Brief> {
    let mut neighbours: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().map(AsRef::as_ref).filter(|pod| pod.is_active()) {
        *neighbours.entry(&pod.node).or_default() += 1;
    }
    active.sort_by_cached_key(|pod| worth(pod, &neighbours));
    active.truncate(count);
    active
}

fn worth(pod: &Brief, neighbours: &HashMap<&str, usize>) -> Worth {
    Worth {
        assigned: !pod.node.is_empty(),
        phase: match pod.phase {
            Phase::Pending => 0,
            Phase::Unknown => 1,
            _ => 2,
        },
        ready: pod.ready,
        cost: pod.cost,
        neighbours: Reverse(neighbours.get(&*pod.node).copied().unwrap_or_default()),
        ready_for: Age(pod.ready_since),
        restarts: Reverse(pod.restarts),
        age: Age(pod.created),
    }
}

impl Ord for Age {
    fn cmp(&self, other: &Age) -> Ordering {
        // A missing time is the newest; an earlier time is an older, more valuable pod.
        match (self.0, other.0) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(own), Some(other)) => other.cmp(&own),
        }
    }
}

impl PartialOrd for Age {
    fn partial_cmp(&self, other: &Age) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use shoal_objects::patch::merge_patch;

    use super::*;
    use crate::brief::DELETION_COST;

    fn pod(name: &str, extra: Value) -> Arc<Brief> {
        let mut pod = json!({
            "metadata": {"name": name, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}
        });
        merge_patch(&mut pod, &extra).unwrap();
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn each_criterion_decides_when_those_before_it_are_equal() {
        let usual = pod("usual", json!({}));
        for (worse, why) in [
            (json!({"spec": {"nodeName": null}}), "unassigned"),
            (json!({"status": {"phase": "Pending"}}), "pending"),
            (json!({"status": {"conditions": []}}), "not ready"),
            (json!({"metadata": {"annotations": {DELETION_COST: "-1"}}}), "cheap"),
            (json!({"spec": {"nodeName": "crowded"}}), "on a crowded node"),
            (
                json!({"status": {"containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 3}]}}),
                "restarted",
            ),
            (json!({"metadata": {"creationTimestamp": "2024-01-02T00:00:00Z"}}), "young"),
        ] {
            let worse = pod("worse", worse);
            let related = [
                usual.clone(),
                pod("c1", json!({"spec": {"nodeName": "crowded"}})),
                pod("c2", json!({"spec": {"nodeName": "crowded"}})),
            ];
            let go = first_to_go(vec![&usual, &worse], &related, 1);
            assert_eq!(&*go[0].name, "worse", "{why}");
        }
    }
}
