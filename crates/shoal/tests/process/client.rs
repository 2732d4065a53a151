//! An asynchronous client: many connections, HTTP/1.1 and HTTP/2, and bare TLS for those who break the rules.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Cluster;

/// Nothing that a test waits for takes longer on a machine that works.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub type Http1 = http1::SendRequest<Full<Bytes>>;
pub type Http2 = http2::SendRequest<Full<Bytes>>;

/// Knows a server and has the administrator's certificate for it.
pub struct Client {
    address: SocketAddr,
    h1: TlsConnector,
    h2: TlsConnector,
}

impl Client {
    pub fn of(cluster: &Cluster) -> Client {
        let (config, address) = super::tls(Path::new(&cluster.kubeconfig())).unwrap();
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Client { address: address.parse().unwrap(), h1: speaking(b"http/1.1"), h2: speaking(b"h2") }
    }

    /// A connection that speaks no HTTP yet, with a small buffer for what it does not read.
    pub async fn bare(&self) -> TlsStream<TcpStream> {
        self.connect(&self.h1).await
    }

    /// The same, for HTTP/2.
    pub async fn bare_http2(&self) -> TlsStream<TcpStream> {
        self.connect(&self.h2).await
    }

    async fn connect(&self, connector: &TlsConnector) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        connector.connect(ServerName::from(self.address.ip()), stream).await.unwrap()
    }

    pub async fn http1(&self) -> Http1 {
        let stream = TokioIo::new(self.connect(&self.h1).await);
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub async fn http2(&self) -> Http2 {
        let stream = TokioIo::new(self.connect(&self.h2).await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One request on a connection of its own; a kind of client that is always there.
    pub async fn get(&self, path: &str) -> (StatusCode, String) {
        let (status, body) = exchange(&mut self.http1().await, get(path)).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Asks until the answer is right.
    pub async fn until(&self, path: &str, is_right: impl Fn(&str) -> bool) {
        let asking = async {
            loop {
                let (_, answer) = self.get(path).await;
                if is_right(&answer) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("the answer never was right");
    }

    /// The value of a figure in `/metrics`.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        metric(&text, name)
    }
}

pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    assert!(line.is_some(), "no {name} in {text}");
    line.unwrap().parse().unwrap()
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body))
        .unwrap()
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    request(Method::GET, path, Bytes::new())
}

pub fn post(path: &str, object: &Value) -> Request<Full<Bytes>> {
    request(Method::POST, path, object.to_string().into())
}

pub fn put(path: &str, object: &Value) -> Request<Full<Bytes>> {
    request(Method::PUT, path, object.to_string().into())
}

pub fn config_map(name: &str, payload: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"payload": payload}})
}

/// Sends when the connection is done with what came before, and reads the whole answer.
pub async fn exchange(
    sender: &mut Http1,
    request: Request<Full<Bytes>>,
) -> hyper::Result<(StatusCode, Bytes)> {
    sender.ready().await?;
    whole(sender.send_request(request).await?).await
}

pub async fn whole(response: Response<Incoming>) -> hyper::Result<(StatusCode, Bytes)> {
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// Reads lines of a body.
pub struct Lines {
    body: Incoming,
    unread: Vec<u8>,
}

impl Lines {
    pub fn of(response: Response<Incoming>) -> Lines {
        assert_eq!(response.status(), StatusCode::OK);
        Lines { body: response.into_body(), unread: Vec::new() }
    }

    /// The next event of a watch; None at its end, an error if the connection was cut.
    pub async fn next(&mut self) -> hyper::Result<Option<Value>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => self.unread.extend_from_slice(&frame?.into_data().unwrap_or_default()),
            }
        }
    }
}
