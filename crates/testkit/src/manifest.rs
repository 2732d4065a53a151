//! Manifests in tests: applied as `kubectl apply --server-side` does.

use serde_json::Value;

use crate::http_client::{Answer, Http};

impl Http {
    /// Applies an object; fields that its kind does not have are refused.
    pub async fn apply(&self, object: &Value) -> Answer {
        let path = format!("{}?fieldManager=test&force=true&fieldValidation=Strict", path(object));
        let kind = [("content-type", "application/apply-patch+yaml")];
        self.send("PATCH", &path, &kind, object.to_string()).await
    }
}

/// The path of an object whose kind has a regular plural.
pub fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let kind = text(&object["kind"]).to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let name = text(&object["metadata"]["name"]);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{root}/{plural}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plurals_of_the_usual_kinds_are_known() {
        let of = |version: &str, kind: &str, metadata: Value| {
            path(&json!({"apiVersion": version, "kind": kind, "metadata": metadata}))
        };
        let policy = of("networking.k8s.io/v1", "NetworkPolicy", json!({"name": "p", "namespace": "n"}));
        assert_eq!(policy, "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/p");
        assert_eq!(of("v1", "Namespace", json!({"name": "n"})), "/api/v1/namespaces/n");
        let class = of("networking.k8s.io/v1", "IngressClass", json!({"name": "c"}));
        assert_eq!(class, "/apis/networking.k8s.io/v1/ingressclasses/c");
    }
}
