//! Pods as clusters have them, and a server that does nothing but list and watch them.
//!
//! Both sides of a comparison get the same bytes from a process of its own, so that only the client is measured.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const REVISION: u64 = 10_000_000;
/// Pods of one ReplicaSet.
const REPLICAS: usize = 20;

/// A pod of 3.4 KB, 1.9 KB without managedFields.
pub fn pod(number: usize) -> Value {
    const APPS: [&str; 8] = ["web", "api", "worker", "cart", "search", "mail", "ledger", "indexer"];
    let set = number / REPLICAS;
    let app = APPS[set % APPS.len()];
    // Any mixing will do: equal numbers, equal pods.
    let mix = |seed: usize| {
        (seed as u64 + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let uid = |seed: usize| {
        let (a, b) = (mix(seed), mix(seed + 7_919));
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        )
    };
    let hash = format!("{:010x}", mix(set) >> 24);
    let owner = format!("{app}-{set}-{hash}");
    let suffix = format!("{:05x}", mix(number + 1_000_003) >> 44);
    let token = format!("kube-api-access-{suffix}");
    let field = |names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>().into()
    };
    json!({
        "metadata": {
            "name": format!("{owner}-{suffix}{number}"), "generateName": format!("{owner}-"),
            "namespace": format!("team-{}", set % 50), "uid": uid(number), "resourceVersion": (1_000_000 + number * 3).to_string(),
            "generation": 1, "creationTimestamp": format!("2026-10-{:02}T{:02}:{:02}:00Z", 1 + number % 28, number % 24, number % 60),
            "labels": {"app": app, "app.kubernetes.io/instance": format!("{app}-{set}"), "pod-template-hash": hash, "tier": "front"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": format!("{:016x}", mix(set + 31))},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid(set + 500_000_000), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-10-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:annotations": field(&[".", "f:checksum/config", "f:prometheus.io/port", "f:prometheus.io/scrape"]), "f:generateName": {},
                        "f:labels": field(&[".", "f:app", "f:app.kubernetes.io/instance", "f:pod-template-hash", "f:tier"]),
                        "f:ownerReferences": {".": {}, format!("k:{{\"uid\":\"{}\"}}", uid(set + 500_000_000)): {}}},
                    "f:spec": {"f:containers": {format!("k:{{\"name\":\"{app}\"}}"): {".": {},
                            "f:env": {".": {}, "k:{\"name\":\"LOG_LEVEL\"}": field(&[".", "f:name", "f:value"]), "k:{\"name\":\"CLUSTER\"}": field(&[".", "f:name", "f:value"])},
                            "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": field(&[".", "f:containerPort", "f:name", "f:protocol"])},
                            "f:resources": {".": {}, "f:limits": field(&[".", "f:cpu", "f:memory"]), "f:requests": field(&[".", "f:cpu", "f:memory"])},
                            "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                        "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {}, "f:tolerations": {}}}}],
        },
        "spec": {
            "volumes": [{"name": token, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
            "containers": [{"name": app, "image": format!("registry.example.com/shop/{app}:v{}.{}.0", set % 9, set % 30),
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "CLUSTER", "value": "north-1"}],
                "resources": {"limits": {"cpu": format!("{}m", 100 * (1 + set % 9)), "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
                "volumeMounts": [{"name": token, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "serviceAccount": "default", "nodeName": format!("node-{}", mix(number) % 1000), "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    })
}

/// Serves so many pods on a port that it prints, until it is killed.
pub async fn serve(count: usize) -> Result<()> {
    let pods: Vec<Bytes> = (0..count).map(|number| Bytes::from(pod(number).to_string())).collect();
    let pods: Arc<[Bytes]> = pods.into();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (socket, _) = listener.accept().await?;
        let pods = pods.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let pods = pods.clone();
            async move { Ok::<_, Infallible>(answer(&request, &pods)) }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
        );
    }
}

fn answer(request: &Request<Incoming>, pods: &Arc<[Bytes]>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let query = request.uri().query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let body = if parameter("watch").is_none() {
        let start =
            parameter("continue").and_then(|token| token.parse().ok()).unwrap_or(0usize).min(pods.len());
        let limit = parameter("limit")
            .and_then(|limit| limit.parse().ok())
            .filter(|limit| *limit > 0)
            .unwrap_or(pods.len());
        let end = pods.len().min(start + limit);
        let next = if end < pods.len() { end.to_string() } else { String::new() };
        let mut page = BytesMut::from(
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{REVISION}","continue":"{next}"}},"items":["#).as_bytes(),
        );
        for (index, pod) in pods[start..end].iter().enumerate() {
            if index > 0 {
                page.extend_from_slice(b",");
            }
            page.extend_from_slice(pod);
        }
        page.extend_from_slice(b"]}");
        Full::new(page.freeze()).boxed_unsync()
    } else if parameter("sendInitialEvents").is_some() {
        let pods = pods.clone();
        let count = pods.len();
        // Many events a write, as a server does that streams from memory.
        let events = stream::iter((0..count).step_by(16)).map(move |start| {
            let mut chunk = BytesMut::new();
            for pod in &pods[start..count.min(start + 16)] {
                chunk.extend_from_slice(br#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","#);
                chunk.extend_from_slice(&pod[1..]);
                chunk.extend_from_slice(b"}\n");
            }
            chunk.freeze()
        });
        let end = format!(
            "{}\n",
            json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata":
                {"resourceVersion": REVISION.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}})
        );
        let all = events.chain(stream::iter([Bytes::from(end)])).chain(stream::pending());
        StreamBody::new(all.map(|chunk| Ok(Frame::data(chunk)))).boxed_unsync()
    } else {
        StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()).boxed_unsync()
    };
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
