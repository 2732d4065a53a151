//! Which changes of nodes concern DaemonSets: not the heartbeats.

use std::collections::HashMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Taint};
use parking_lot::Mutex;
use shoal_runtime::ObjectKey;
use shoal_runtime::controller::Listers;

/// What placement depends on.
#[derive(PartialEq)]
struct Traits {
    uid: Option<String>,
    labels: Vec<(String, String)>,
    taints: Vec<Taint>,
}

/// The nodes as they were last seen.
#[derive(Default)]
pub(super) struct Nodes(Mutex<HashMap<String, Traits>>);

impl Nodes {
    /// All sets, if the node has come, gone or changed in what matters to them.
    pub(super) fn see(&self, node: &Node, listers: &Listers) -> Vec<ObjectKey> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let is_gone = listers.of::<Node>().meta(&ObjectKey::cluster(&name)).is_none();
        if !self.has_changed(name, node, is_gone) {
            return Vec::new();
        }
        listers.of::<DaemonSet>().metas().iter().map(|set| set.key().clone()).collect()
    }

    fn has_changed(&self, name: String, node: &Node, is_gone: bool) -> bool {
        let mut all = self.0.lock();
        if is_gone {
            return all.remove(&name).is_some();
        }
        let now = Traits {
            uid: node.metadata.uid.clone(),
            labels: node.metadata.labels.clone().unwrap_or_default().into_iter().collect(),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        };
        let changed = all.get(&name) != Some(&now);
        if changed {
            all.insert(name, now);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: Value, heartbeat: &str) -> Node {
        let condition = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat});
        let status = json!({"conditions": [condition]});
        serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn a_heartbeat_concerns_nobody_and_a_taint_everybody() {
        let nodes = Nodes::default();
        let see = |taints: Value, heartbeat: &str, gone| {
            nodes.has_changed("n".to_owned(), &node(taints, heartbeat), gone)
        };
        let tainted = json!([{"key": "x", "effect": "NoExecute"}]);
        assert!(see(json!([]), "2024-01-01T00:00:00Z", false));
        assert!(!see(json!([]), "2024-01-01T00:00:10Z", false));
        assert!(see(tainted.clone(), "2024-01-01T00:00:10Z", false));
        assert!(see(tainted.clone(), "2024-01-01T00:00:10Z", true), "gone");
        assert!(!see(tainted, "2024-01-01T00:00:10Z", true), "told once");
    }
}
