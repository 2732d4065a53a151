//! An extension API server behind a Service: how it is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::sync::Notify;

use super::forward::add_user_headers;
use crate::access::UserInfo;
use crate::access::pki::FrontProxy;
use crate::backend::{Backend, Connection, Trust, client_config, exchange};
use crate::kinds::access::{bool_at, int_at, part, str_at};

/// How long a document about what is served may take, and how large it may be.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(5);
const DOCUMENT_LIMIT: usize = 16 * 1024 * 1024;

/// What an APIService says about its Service.
pub struct Remote {
    /// Name of the APIService.
    pub name: String,
    /// As it was written, to tell changes.
    pub spec: Value,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
    tls: Result<Arc<ClientConfig>, String>,
    /// For checks that only look whether someone is there.
    unverified: Result<Arc<ClientConfig>, String>,
    available: AtomicBool,
    /// Told when it should be checked again at once.
    pub recheck: Notify,
}

/// A whole answer.
pub struct Document {
    /// Status code.
    pub status: StatusCode,
    /// Its `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

impl Remote {
    /// Reads the spec of an APIService that names a Service.
    pub fn new(name: &str, spec: &Value, available: bool, front_proxy: Option<&FrontProxy>) -> Remote {
        let service = part(spec, "service");
        let identity = front_proxy.map(|proxy| &proxy.identity);
        let trust = match bool_at(spec, "insecureSkipTLSVerify") {
            true => Trust::Anyone,
            false => Trust::Bundle(str_at(spec, "caBundle")),
        };
        Remote {
            name: name.to_owned(),
            spec: spec.clone(),
            namespace: str_at(service, "namespace").to_owned(),
            service: str_at(service, "name").to_owned(),
            port: int_at(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            tls: client_config(trust, identity),
            unverified: client_config(Trust::Anyone, identity),
            available: AtomicBool::new(available),
            recheck: Notify::new(),
        }
    }

    /// Whether requests can be passed on.
    pub fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    /// What the last check found.
    pub fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// Somebody wrote the APIService: when its status does not say what was found, it is said again.
    pub fn recheck(&self, claimed: bool) {
        if claimed != self.is_available() {
            self.recheck.notify_one();
        }
    }

    /// The name in its certificate.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Sends a request over a connection of its own. The connection lives as long as what is returned with the answer;
    /// an upgraded one lives on by itself.
    pub async fn send(
        &self,
        backend: &Backend,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), String> {
        self.exchange(backend, self.tls.clone()?, request).await
    }

    async fn exchange(
        &self,
        backend: &Backend,
        tls: Arc<ClientConfig>,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), String> {
        exchange(backend, &self.host(), tls, request).await
    }

    /// Reads a document as the server itself. `verified` says whether it matters who answers.
    pub async fn get(
        &self,
        backend: &Backend,
        path: &str,
        accept: &str,
        verified: bool,
    ) -> Result<Document, String> {
        let tls = if verified { self.tls.clone()? } else { self.unverified.clone()? };
        let user = UserInfo {
            username: "system:kube-aggregator".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..UserInfo::default()
        };
        let mut headers = HeaderMap::new();
        add_user_headers(&mut headers, &user).map_err(|failure| failure.message)?;
        let mut request = Request::get(path).header(HOST, self.host()).header(ACCEPT, accept);
        if let Some(all) = request.headers_mut() {
            all.extend(headers);
        }
        let request = request.body(Full::default()).map_err(|e| e.to_string())?;
        let read = async {
            let (response, _connection) = self.exchange(backend, tls, request).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, DOCUMENT_LIMIT).collect().await.map_err(|e| e.to_string())?;
            let content_type = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
            Ok(Document {
                status: parts.status,
                content_type: content_type.unwrap_or_default().to_owned(),
                body: body.to_bytes(),
            })
        };
        match tokio::time::timeout(DOCUMENT_TIMEOUT, read).await {
            Ok(read) => read,
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }
}
