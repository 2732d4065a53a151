//! What pods use, and autoscalers that follow it.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod process;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use process::Cluster;
use serde_json::{Value, json};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap_or_default()
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, object: &Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(serde_json::to_vec(object).unwrap()).unwrap();
    client.request::<Value>(request).await.unwrap();
}

async fn create(client: &Client, path: &str, object: Value) {
    send(client, "POST", path, "application/json", &object).await;
}

/// Asks again and again: processes take real time.
async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1200 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("still not: {what}");
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

fn names(list: &Value) -> Vec<String> {
    items(list).iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn deployment(name: &str, replicas: u32, annotations: Value) -> Value {
    let requests = json!({"requests": {"cpu": "200m", "memory": "64Mi"}});
    let container = json!({"name": "web", "image": "echo", "resources": requests});
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}, "annotations": annotations},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}}})
}

fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_pods_use_what_they_say_and_can_be_selected() {
    let cluster = Cluster::start(&["up", "--ephemeral", "--port", "0", "--simulated-nodes", "2"]);
    let client = client(&cluster).await;
    create(&client, DEPLOYMENTS, deployment("quiet", 2, json!({}))).await;
    let busy = json!({"simulated.shoal.dev/cpu-usage": "1500m", "simulated.shoal.dev/memory-usage": "1Gi"});
    create(&client, DEPLOYMENTS, deployment("busy", 1, busy)).await;
    let all = until("figures of all", async || {
        let all = get(&client, &format!("{METRICS}/pods")).await;
        (items(&all).len() == 3).then_some(all)
    })
    .await;
    assert_eq!(all["kind"], "PodMetricsList");
    let busy = get(&client, &format!("{METRICS}/namespaces/default/pods?labelSelector=app%3Dbusy")).await;
    let one = &items(&busy)[0];
    assert_eq!(one["containers"], json!([{"name": "web", "usage": {"cpu": "1500m", "memory": "1Gi"}}]));
    assert_eq!(one["metadata"]["labels"]["app"], "busy");
    let path = format!("{METRICS}/namespaces/default/pods/{}", names(&busy)[0]);
    assert_eq!(get(&client, &path).await["kind"], "PodMetrics");
    let quiet = get(&client, &format!("{METRICS}/namespaces/default/pods?labelSelector=app%3Dquiet")).await;
    assert_eq!(items(&quiet)[0]["containers"][0]["usage"], json!({"cpu": "100m", "memory": "32Mi"}));
    let field = format!("{METRICS}/pods?fieldSelector=metadata.name%3D{}", names(&quiet)[1]);
    assert_eq!(names(&get(&client, &field).await), names(&quiet)[1..]);
    assert!(items(&get(&client, &format!("{METRICS}/namespaces/kube-system/pods")).await).is_empty());

    let nodes = get(&client, &format!("{METRICS}/nodes")).await;
    assert_eq!(names(&nodes), ["simulated-0", "simulated-1"]);
    let memory: u64 = items(&nodes)
        .iter()
        .map(|node| shoal_objects::Quantity::from_json(&node["usage"]["memory"]).unwrap().value() as u64)
        .sum();
    assert_eq!(memory, (1024 + 64) << 20, "the nodes use what their pods use");

    let missing =
        http::Request::get(format!("{METRICS}/namespaces/default/pods/none")).body(Vec::new()).unwrap();
    let kube::Error::Api(status) = client.request::<Value>(missing).await.unwrap_err() else { panic!() };
    assert_eq!(
        (status.code, status.message.as_str()),
        (404, r#"podmetrics.metrics.k8s.io "default/none" not found"#)
    );
    let rows = http::Request::get(format!("{METRICS}/nodes"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let rows: Value = client.request(rows.body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(rows["rows"][0]["cells"][0], "simulated-0");

    let service = get(&client, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").await;
    assert_eq!(condition(&service, "Available")["status"], "True");
    let index = get(&client, "/openapi/v3").await;
    let url = index["paths"]["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(&client, url).await;
    assert!(
        document["components"]["schemas"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"].is_object()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_part_nobody_serves_the_group() {
    let arguments = ["up", "--ephemeral", "--port", "0", "--simulated-nodes", "1", "--without", "metrics"];
    let cluster = Cluster::start(&arguments);
    let client = client(&cluster).await;
    let request = http::Request::get(METRICS).body(Vec::new()).unwrap();
    let kube::Error::Api(status) = client.request::<Value>(request).await.unwrap_err() else { panic!() };
    assert_eq!(status.code, 404);
}

/// Keeps a processor busy in the pod with this address, as long as it is wanted.
fn burn(ip: String, stop: Arc<AtomicBool>) {
    let once = move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((ip.as_str(), 8080))?;
        write!(stream, "GET /burn?ms=300 HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    };
    while !stop.load(Ordering::Relaxed) {
        if once().is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_follows_the_load_up_and_down() {
    let cluster = Cluster::start(&[
        "up",
        "--ephemeral",
        "--port",
        "0",
        "--metrics-resolution",
        "2s",
        "--horizontal-pod-autoscaler-sync-period",
        "1s",
        "--horizontal-pod-autoscaler-downscale-stabilization",
        "3s",
    ]);
    let client = client(&cluster).await;
    create(&client, DEPLOYMENTS, deployment("web", 1, json!({}))).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let goal = json!({"type": "Utilization", "averageUtilization": 50});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": goal}});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [cpu]});
    create(&client, AUTOSCALERS, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let autoscaler = format!("{AUTOSCALERS}/web");
    // Times of pods are whole seconds, so the first figures may still be those of the pod's start.
    let told = until("an autoscaler that sees a quiet pod", async || {
        let told = get(&client, &autoscaler).await;
        let used = told["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"].as_i64();
        let is_valid = condition(&told, "ScalingActive")["reason"] == "ValidMetricFound";
        (is_valid && used.is_some_and(|used| used < 50)).then_some(told)
    })
    .await;
    assert_eq!(condition(&told, "AbleToScale")["status"], "True");
    let own = until("figures of the node", async || {
        let own = get(&client, &format!("{METRICS}/nodes/shoal")).await;
        (own["kind"] == "NodeMetrics").then_some(own)
    })
    .await;
    assert!(shoal_objects::Quantity::from_json(&own["usage"]["memory"]).unwrap().value() > 1 << 20);

    let pods = get(&client, PODS).await;
    let ip = items(&pods)[0]["status"]["podIP"].as_str().unwrap().replacen("10.", "127.", 1);
    let stop = Arc::new(AtomicBool::new(false));
    let burning: Vec<_> = (0..2)
        .map(|_| {
            let (ip, stop) = (ip.clone(), stop.clone());
            std::thread::spawn(move || burn(ip, stop))
        })
        .collect();
    until("as many replicas as allowed, and figures of them", async || {
        let told = get(&client, &autoscaler).await;
        let is_active = condition(&told, "ScalingActive")["status"] == "True";
        (is_active && told["status"]["currentReplicas"] == 3).then_some(())
    })
    .await;
    until("replicas that run", async || {
        let web = get(&client, &format!("{DEPLOYMENTS}/web")).await;
        (web["status"]["readyReplicas"] == 3).then_some(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    burning.into_iter().for_each(|thread| thread.join().unwrap());
    let told = until("one replica again", async || {
        let told = get(&client, &autoscaler).await;
        (told["status"]["currentReplicas"] == 1).then_some(told)
    })
    .await;
    assert_eq!(condition(&told, "AbleToScale")["status"], "True");
    // Events are written behind the back of the controller: its status may be there before them.
    let up = "reason: cpu resource utilization (percentage of request) above target";
    let down = "New size: 1; reason: All metrics below target";
    until("events that tell of both changes", async || {
        let events = items(&get(&client, "/api/v1/namespaces/default/events").await);
        let has = |text: &str| {
            events.iter().any(|event| event["message"].as_str().is_some_and(|message| message.contains(text)))
        };
        (has(up) && has(down)).then_some(())
    })
    .await;
}
