//! The call to a webhook: one HTTPS request, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;

use crate::backend::{self, Backend, Trust, client_config, resolve};
use crate::handlers::Call;
use crate::kinds::access::{field, int_at, part, str_at};

/// Longer answers are refused.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// What a webhook without a timeout is given.
const TIMEOUT_SECONDS: u64 = 10;

/// Whom to call.
struct Endpoint {
    /// As it is told in messages.
    url: String,
    host: String,
    path: String,
    backend: Backend,
}

/// Sends a review to the webhook and gives its answer.
pub async fn post(call: &Call<'_>, webhook: &Value, body: String) -> Result<Bytes, String> {
    let seconds = int_at(webhook, "timeoutSeconds").and_then(|s| u64::try_from(s).ok());
    let timeout = Duration::from_secs(seconds.unwrap_or(TIMEOUT_SECONDS).clamp(1, 30));
    let config = part(webhook, "clientConfig");
    let endpoint = endpoint(call, config).await.map_err(|why| format!("failed to call webhook: {why}"))?;
    let told = |why: String| {
        let url = &endpoint.url;
        format!("failed to call webhook: Post \"{url}?timeout={}s\": {why}", timeout.as_secs())
    };
    let tls = client_config(Trust::Bundle(str_at(config, "caBundle")), None).map_err(told)?;
    let exchange = exchange(&endpoint, tls, body, timeout);
    match tokio::time::timeout(timeout, exchange).await {
        Ok(answer) => answer.map_err(told),
        Err(_) => Err(told("context deadline exceeded".to_owned())),
    }
}

async fn endpoint(call: &Call<'_>, config: &Value) -> Result<Endpoint, String> {
    if let Some(service) = field(config, "service") {
        let (namespace, name) = (str_at(service, "namespace"), str_at(service, "name"));
        let port = int_at(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let host = format!("{name}.{namespace}.svc");
        let path = match str_at(service, "path") {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let backend = resolve(call.server, namespace, name, port).await;
        let backend = backend.map_err(|why| why.told(namespace, name, port))?;
        return Ok(Endpoint { url: format!("https://{host}:{port}{path}"), host, path, backend });
    }
    let text = str_at(config, "url");
    let url: Uri = text.parse().map_err(|e| format!("{text:?} is not a URL: {e}"))?;
    let host = url.host().ok_or_else(|| format!("{text:?} names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let backend = Backend::Host(host.clone(), url.port_u16().unwrap_or(443));
    Ok(Endpoint { url: text.to_owned(), host, path: url.path().to_owned(), backend })
}

async fn exchange(
    endpoint: &Endpoint,
    tls: Arc<ClientConfig>,
    body: String,
    timeout: Duration,
) -> Result<Bytes, String> {
    let stream = backend::connect(&endpoint.backend, &endpoint.host, tls).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let request = Request::post(format!("{}?timeout={}s", endpoint.path, timeout.as_secs()))
        .header("host", &endpoint.host)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", "shoal-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let code = response.status();
        // Redirects are not followed: the answer must come from whom the configuration names.
        if code != http::StatusCode::OK {
            return Err(format!("the server answered {code}"));
        }
        match Limited::new(response.into_body(), ANSWER_LIMIT).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(e) if e.is::<LengthLimitError>() => Err(format!("the answer is above {ANSWER_LIMIT} bytes")),
            Err(e) => Err(e.to_string()),
        }
    };
    // The connection moves bytes only while it is polled; dropping it closes it.
    tokio::select! {
        biased;
        answer = answer => answer,
        ended = connection => Err(ended.err().map_or_else(|| "EOF".to_owned(), |e| e.to_string())),
    }
}
