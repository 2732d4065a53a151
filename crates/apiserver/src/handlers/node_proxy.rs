//! Requests that the agent of a node answers: logs, exec, attach, port-forward, and what else it serves.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::upgrade::OnUpgrade;
use rustls::ClientConfig;
use serde_json::Value;

use crate::access::pki::Identity;
use crate::aggregate::passing;
use crate::backend::{Backend, Trust, client_config, exchange};
use crate::handlers::{Call, served};
use crate::kinds::access::{int_at, list_at, part, str_at};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// How long an agent may take to begin its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of an agent's complaint is read.
const COMPLAINT_LIMIT: usize = 64 * 1024;
/// Headers of clients that agents need.
const PASSED: [&str; 4] =
    ["sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol", "x-stream-protocol-version"];

/// As whom the server calls agents of nodes, and whom it trusts then.
#[derive(Clone)]
pub struct KubeletClient {
    tls: Arc<ClientConfig>,
}

impl KubeletClient {
    /// Trusts agents with certificates of an authority, and shows its own.
    pub fn new(ca_pem: &str, identity: &Identity) -> Result<KubeletClient, String> {
        let bundle = BASE64_STANDARD.encode(ca_pem);
        Ok(KubeletClient { tls: client_config(Trust::Bundle(&bundle), Some(identity))? })
    }
}

/// Where the agent of a node listens.
async fn address(call: &Call<'_>, node: &str) -> Outcome<(String, u16)> {
    let unknown = || Failure::internal(format!("no agent of node {node:?} can be reached"));
    let registry = call.server.registry();
    let nodes = registry.find("", "v1", "nodes").ok_or_else(unknown)?;
    let object = call.server.store.get(&nodes.table, node).await.ok_or_else(unknown)?;
    let object = served(nodes, &object)?;
    let status = part(&object, "status");
    let addresses = list_at(status, "addresses");
    let by_type = |wanted: &str| addresses.iter().find(|address| str_at(address, "type") == wanted);
    let found = by_type("InternalIP").or_else(|| by_type("Hostname")).ok_or_else(unknown)?;
    let endpoint = part(part(status, "daemonEndpoints"), "kubeletEndpoint");
    let port = int_at(endpoint, "Port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok((str_at(found, "address").to_owned(), port.ok_or_else(unknown)?))
}

/// Lets a node's agent answer; `path` is the agent's, with the query.
pub async fn forward(call: &Call<'_>, node: &str, path: &str, is_long: bool) -> Outcome<Reply> {
    let unreachable = |why: &str| Failure::internal(format!("error dialing backend: {why}"));
    let Some(client) = &call.server.kubelet_client else {
        return Err(Failure::internal(format!("no agent of node {node:?} can be reached")));
    };
    let (host, port) = address(call, node).await?;
    let bad = |e: &dyn std::fmt::Display| Failure::internal(format!("passing the request on: {e}"));
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.parts.map_or(Method::GET, |parts| parts.method.clone());
    *request.uri_mut() = path.parse().map_err(|e| bad(&e))?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&format!("{host}:{port}")).map_err(|e| bad(&e))?);
    for name in PASSED {
        for value in call.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    let upgrade = passing::wanted_upgrade(call.headers);
    if let Some(protocol) = &upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    let backend = Backend::Host(host.clone(), port);
    let exchanged = exchange(&backend, &host, client.tls.clone(), request);
    let (response, connection) = match tokio::time::timeout(ANSWER_TIMEOUT, exchanged).await {
        Ok(answered) => answered.map_err(|why| unreachable(&why))?,
        Err(_) => return Err(unreachable("the node's agent does not answer")),
    };
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let client = call.parts.and_then(|parts| parts.extensions.get::<OnUpgrade>().cloned());
        return passing::switch(response, connection, client);
    }
    if status.is_success() {
        return Ok(passing::pass(response, connection, None, is_long));
    }
    let body = Limited::new(response.into_body(), COMPLAINT_LIMIT).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_else(|_| Bytes::new());
    Err(complaint(status, String::from_utf8_lossy(&body).trim()))
}

/// What an agent complains about, as the API tells it.
fn complaint(status: StatusCode, text: &str) -> Failure {
    let reason = match status {
        StatusCode::BAD_REQUEST => return Failure::bad_request(text),
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => "Forbidden",
        _ => return Failure::internal(text.to_owned()),
    };
    Failure::new(status, reason, text.to_owned())
}

/// A query with these options, escaped.
pub fn query(options: &[(&str, String)]) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let pairs = options
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The node that a pod is on.
pub fn node_of(pod: &Value) -> &str {
    str_at(part(pod, "spec"), "nodeName")
}
