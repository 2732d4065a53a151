//! The Service `kubernetes` of namespace `default` and where it leads: to this server. The server itself keeps them,
//! whatever others do to them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::access::UserInfo;
use crate::server::Server;

/// How often the server looks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// The port that programs outside of a cluster usually find an API server on.
pub(crate) const USUAL_PORT: u16 = 6443;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The Service of a server that listens on this port.
pub(crate) fn service(port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": port}]},
    })
}

fn endpoints(address: SocketAddr) -> Value {
    let ports = json!([{"name": "https", "port": address.port(), "protocol": "TCP"}]);
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}], "ports": ports}],
    })
}

fn slice(address: SocketAddr) -> Value {
    let family = match address.ip() {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    })
}

/// Puts right what is missing or different. The Service's own port is put right once, `at_start`.
pub(crate) async fn put_right(server: &Server, address: SocketAddr, at_start: bool) {
    let service = service(address.port());
    match get(server, SERVICES).await {
        Some(mut present) if at_start => {
            let target = present.pointer_mut("/spec/ports/0/targetPort");
            if let Some(target) =
                target.filter(|target| **target != service["spec"]["ports"][0]["targetPort"])
            {
                *target = service["spec"]["ports"][0]["targetPort"].clone();
                send(server, Method::PUT, &one(SERVICES), &present).await;
            }
        }
        Some(_) => {}
        None => drop(send(server, Method::POST, SERVICES, &service).await),
    }
    keep(server, ENDPOINTS, &endpoints(address), &["subsets"]).await;
    keep(server, SLICES, &slice(address), &["addressType", "endpoints", "ports"]).await;
}

/// Makes an object, or brings these fields and the labels of the present one to what is wanted.
async fn keep(server: &Server, all: &str, wanted: &Value, fields: &[&str]) {
    let Some(mut present) = get(server, all).await else {
        send(server, Method::POST, all, wanted).await;
        return;
    };
    // What kind of addresses a slice has never changes.
    if present["addressType"] != wanted["addressType"] {
        send(server, Method::DELETE, &one(all), &Value::Null).await;
        send(server, Method::POST, all, wanted).await;
        return;
    }
    let labels = wanted["metadata"]["labels"].as_object().into_iter().flatten();
    let has_labels = labels.clone().all(|(key, value)| present["metadata"]["labels"][key] == *value);
    if has_labels && fields.iter().all(|field| present[*field] == wanted[*field]) {
        return;
    }
    for field in fields {
        present[*field] = wanted[*field].clone();
    }
    for (key, value) in labels {
        present["metadata"]["labels"][key] = value.clone();
    }
    send(server, Method::PUT, &one(all), &present).await;
}

fn one(all: &str) -> String {
    format!("{all}/kubernetes")
}

async fn get(server: &Server, all: &str) -> Option<Value> {
    let (status, body) = send(server, Method::GET, &one(all), &Value::Null).await?;
    status.is_success().then_some(body)
}

/// As any other client would.
async fn send(server: &Server, method: Method, path: &str, body: &Value) -> Option<(StatusCode, Value)> {
    let user = UserInfo::authenticated("system:apiserver", &["system:masters"]);
    let changes = method != Method::GET;
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let request =
        Request::builder().method(method).header(USER_AGENT, "kube-apiserver").uri(path).extension(user);
    let response = server.handle(request.body(Full::<bytes::Bytes>::from(text)).ok()?).await;
    let status = response.status();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    if changes && !status.is_success() {
        tracing::debug!(path, %status, "what leads to this server could not be put right yet");
    }
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}
