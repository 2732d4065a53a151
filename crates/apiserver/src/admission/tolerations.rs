//! DefaultTolerationSeconds: pods stay five minutes on nodes that are not ready or cannot be reached.

use serde_json::{Value, json};

const TOLERATION_SECONDS: i64 = 300;

/// Adds the tolerations a pod does not have.
pub fn default_tolerations(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = spec["tolerations"].as_array().into_iter().flatten().any(|t| {
            let (k, effect) =
                (t["key"].as_str().unwrap_or_default(), t["effect"].as_str().unwrap_or_default());
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if tolerates {
            continue;
        }
        let toleration = json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
        });
        match spec["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => spec["tolerations"] = json!([toleration]),
        }
    }
}
