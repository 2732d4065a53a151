//! What the pods of Applications use, from the resource metrics API. Where nobody serves it, nothing is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use shoal_objects::Quantity;
use shoal_runtime::{Component, ObjectKey, Stop};

use crate::api::{APP_LABEL, MANAGED_BY_LABEL, OPERATOR};
use crate::metrics::{Metrics, Usage};

/// Asks every `period` and shows what is used.
pub(crate) fn component(client: Client, metrics: Metrics, period: Duration) -> Component {
    Component::new("application-usage", move |stop: Stop| async move {
        loop {
            match ask(&client).await {
                Ok(answer) => metrics.used(sum(&answer)),
                Err(error) => {
                    tracing::debug!(%error, "nobody tells what pods use");
                    metrics.used(BTreeMap::new());
                }
            }
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                () = tokio::time::sleep(period) => {}
            }
        }
    })
}

async fn ask(client: &Client) -> Result<Value, kube::Error> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/pods?labelSelector={MANAGED_BY_LABEL}%3D{OPERATOR}");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// What the pods of each Application use together.
fn sum(list: &Value) -> BTreeMap<ObjectKey, Usage> {
    let mut all: BTreeMap<ObjectKey, Usage> = BTreeMap::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        let (Some(namespace), Some(app)) =
            (pod["metadata"]["namespace"].as_str(), pod["metadata"]["labels"][APP_LABEL].as_str())
        else {
            continue;
        };
        let usage = all.entry(ObjectKey::new(namespace, app)).or_default();
        for container in pod["containers"].as_array().into_iter().flatten() {
            let milli = |name: &str| {
                let amount = Quantity::from_json(&container["usage"][name]);
                amount.map_or(0, |amount| amount.milli_value()) as f64
            };
            usage.cpu += milli("cpu") / 1000.0;
            usage.memory += milli("memory") / 1000.0;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_and_pods_are_added_up() {
        let pod = |app: &str, cpu: &str| {
            json!({"metadata": {"namespace": "a", "labels": {"app": app}},
                "containers": [{"usage": {"cpu": cpu, "memory": "1Mi"}}, {"usage": {"cpu": "x"}}]})
        };
        let list =
            json!({"items": [pod("web", "250m"), pod("web", "1"), pod("db", "500u"), {"metadata": {}}]});
        let all = sum(&list);
        assert_eq!(all[&ObjectKey::new("a", "web")], Usage { cpu: 1.25, memory: 2_097_152.0 });
        assert_eq!(all.len(), 2);
        assert!(sum(&json!(7)).is_empty());
    }
}
