//! What pods use, from the resource metrics API.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;
use shoal_objects::Quantity;

use super::usage::{Measure, Sample};
use crate::cronjob::schedule::duration;

/// Over which time a sample was taken, if it does not say.
const WINDOW: i64 = 30;

/// The samples of the pods that a selector means, by name.
pub(super) async fn samples(
    client: &Client,
    namespace: &str,
    selector: &str,
    measure: Measure<'_>,
) -> Result<BTreeMap<String, Sample>, String> {
    let failed = |why: String| format!("unable to fetch metrics from resource metrics API: {why}");
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let request = Request::new(path).list(&ListParams::default().labels(selector));
    let request = request.map_err(|error| failed(error.to_string()))?;
    let list = client.request::<Value>(request).await.map_err(|error| {
        failed(match error {
            kube::Error::Api(status) if status.code == 404 => {
                "the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned()
            }
            kube::Error::Api(status) => status.message.clone(),
            error => error.to_string(),
        })
    })?;
    let samples = read(&list, measure);
    if samples.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    Ok(samples)
}

/// Pods of which a container was not measured are left out: they would seem to use little.
fn read(list: &Value, measure: Measure<'_>) -> BTreeMap<String, Sample> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| sample(item, measure)).collect()
}

fn sample(item: &Value, measure: Measure<'_>) -> Option<(String, Sample)> {
    let name = item["metadata"]["name"].as_str()?;
    let at: Timestamp = item["timestamp"].as_str()?.parse().ok()?;
    let window = item["window"].as_str().and_then(duration);
    let window = window.and_then(|window| i64::try_from(window.as_secs()).ok()).unwrap_or(WINDOW);
    let containers = item["containers"].as_array()?;
    let counted = containers
        .iter()
        .filter(|container| measure.container.is_none_or(|wanted| container["name"] == wanted));
    let used = counted.map(|container| {
        let text = container["usage"][measure.resource].as_str()?;
        Some(Quantity::parse(text).ok()?.milli_value())
    });
    let used: Vec<i64> = used.collect::<Option<_>>()?;
    if used.is_empty() {
        return None;
    }
    let milli = used.iter().fold(0, |sum: i64, used| sum.saturating_add(*used));
    Some((name.to_owned(), Sample { milli, at, window }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_usage_of_a_pod_is_that_of_its_containers() {
        let container = |name: &str, cpu: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": "1Mi"}});
        let list = json!({"items": [
            {"metadata": {"name": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "20s",
                "containers": [container("c", "250m"), container("d", "1")]},
            {"metadata": {"name": "b"}, "timestamp": "2026-01-01T00:00:00Z",
                "containers": [container("c", "1"), {"name": "d", "usage": {}}]},
            {"metadata": {}, "timestamp": 7, "containers": "x"}
        ]});
        let all = read(&list, Measure { resource: "cpu", container: None });
        assert_eq!(all.iter().map(|(name, s)| (name.as_str(), s.milli)).collect::<Vec<_>>(), [("a", 1250)]);
        assert_eq!(all["a"].window, 20);
        let one = read(&list, Measure { resource: "cpu", container: Some("c") });
        assert_eq!(one.iter().map(|(_, sample)| sample.milli).collect::<Vec<_>>(), [250, 1000]);
    }
}
