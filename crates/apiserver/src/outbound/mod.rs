//! Calls to programs outside, the webhooks of admission and conversion: one HTTPS request each, bounded in time and
//! size, over connections that are kept.

mod pool;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::backend::{self, Backend, resolve};
use crate::kinds::access::{field, int_at, str_at};
use crate::server::Inner;
use pool::{Key, Sender};

pub use pool::Pool;

/// What a call may take.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Seconds until an answer must be there.
    pub seconds: u64,
    /// Longer answers are refused.
    pub answer_bytes: usize,
}

/// Whom to call.
struct Endpoint {
    /// As it is told in messages.
    url: String,
    path: String,
    key: Key,
}

/// Sends JSON to the program a `clientConfig` names and gives its answer.
pub async fn post(
    server: &Inner,
    config: &Value,
    body: impl Into<Bytes>,
    bounds: Bounds,
) -> Result<Bytes, String> {
    let endpoint = endpoint(server, config).await?;
    let exchange = exchange(&server.outbound, &endpoint, body.into(), bounds);
    let answer = match tokio::time::timeout(Duration::from_secs(bounds.seconds), exchange).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".to_owned()),
    };
    answer.map_err(|why| format!("Post \"{}?timeout={}s\": {why}", endpoint.url, bounds.seconds))
}

async fn endpoint(server: &Inner, config: &Value) -> Result<Endpoint, String> {
    let bundle = str_at(config, "caBundle").to_owned();
    if let Some(service) = field(config, "service") {
        let (namespace, name) = (str_at(service, "namespace"), str_at(service, "name"));
        let port = int_at(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let host = format!("{name}.{namespace}.svc");
        let path = match str_at(service, "path") {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let backend = resolve(server, namespace, name, port).await;
        let backend = backend.map_err(|why| why.told(namespace, name, port))?;
        let url = format!("https://{host}:{port}{path}");
        return Ok(Endpoint { url, path, key: Key { backend, host, bundle } });
    }
    let text = str_at(config, "url");
    let url: Uri = text.parse().map_err(|e| format!("{text:?} is not a URL: {e}"))?;
    let host = url.host().ok_or_else(|| format!("{text:?} names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_u16().unwrap_or(443);
    let backend = match host.parse() {
        Ok(ip) => Backend::Addresses(vec![SocketAddr::new((server.reach)(ip), port)]),
        Err(_) => Backend::Host(host.clone(), port),
    };
    Ok(Endpoint { url: text.to_owned(), path: url.path().to_owned(), key: Key { backend, host, bundle } })
}

async fn exchange(pool: &Pool, endpoint: &Endpoint, body: Bytes, bounds: Bounds) -> Result<Bytes, String> {
    let request = || {
        Request::post(format!("{}?timeout={}s", endpoint.path, bounds.seconds))
            .header("host", &endpoint.key.host)
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .header("user-agent", "shoal-apiserver")
            .body(Full::new(body.clone()))
            .map_err(|e| e.to_string())
    };
    // The other side may close a connection that waits just when it is used again: that was no answer.
    while let Some(mut sender) = pool.take(&endpoint.key) {
        if sender.ready().await.is_ok()
            && let Ok(response) = sender.send_request(request()?).await
        {
            return read(pool, &endpoint.key, sender, response, bounds).await;
        }
    }
    let mut sender = open(pool, &endpoint.key).await?;
    let response = sender.send_request(request()?).await.map_err(|e| e.to_string())?;
    read(pool, &endpoint.key, sender, response, bounds).await
}

/// Reads an answer; its connection can then be used again.
async fn read(
    pool: &Pool,
    key: &Key,
    sender: Sender,
    response: Response<Incoming>,
    bounds: Bounds,
) -> Result<Bytes, String> {
    let code = response.status();
    // Redirects are not followed: the answer must come from whom the configuration names.
    if code != StatusCode::OK {
        return Err(format!("the server answered {code}"));
    }
    match Limited::new(response.into_body(), bounds.answer_bytes).collect().await {
        Ok(body) => {
            pool.put(key.clone(), sender);
            Ok(body.to_bytes())
        }
        Err(e) if e.is::<LengthLimitError>() => {
            Err(format!("the answer is above {} bytes", bounds.answer_bytes))
        }
        Err(e) => Err(e.to_string()),
    }
}

async fn open(pool: &Pool, key: &Key) -> Result<Sender, String> {
    let tls = pool.tls(&key.bundle)?;
    let stream = backend::connect(&key.backend, &key.host, tls).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends when its sender is dropped, or the other side closes it.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a webhook ended");
        }
    });
    Ok(sender)
}
