//! A client that costs little: prebuilt bodies out, answers counted but not parsed.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::kubeconfig::Access;

/// An HTTP/2 connection; clones share it.
pub type H2 = http2::SendRequest<Full<Bytes>>;
/// An HTTP/1.1 connection.
pub type H1 = http1::SendRequest<Full<Bytes>>;

/// Flow control windows of Go's client, so that the server sees what it sees from client-go.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A server and our credentials for it.
pub struct Target {
    address: SocketAddr,
    name: ServerName<'static>,
    h1: TlsConnector,
    h2: TlsConnector,
    /// A bearer token, for callers without a certificate.
    token: Option<String>,
}

impl Target {
    /// Prepares connections with what the kubeconfig says.
    pub fn new(access: &Access) -> Result<Self> {
        Self::prepare(access, None)
    }

    /// Prepares connections to the same server for the owner of a token.
    pub fn with_token(access: &Access, token: String) -> Result<Self> {
        Self::prepare(access, Some(token))
    }

    fn prepare(access: &Access, token: Option<String>) -> Result<Self> {
        let authority =
            access.server.strip_prefix("https://").context("the server is not an https address")?;
        let address: SocketAddr =
            authority.trim_end_matches('/').parse().context("the server is not IP:PORT")?;
        let connector = |protocol: &[u8]| -> Result<TlsConnector> {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&access.authority) {
                roots.add(certificate?)?;
            }
            let chain = CertificateDer::pem_slice_iter(&access.certificate).collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(&access.key)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots);
            let mut config = match &token {
                Some(_) => config.with_no_client_auth(),
                None => config.with_client_auth_cert(chain, key)?,
            };
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Target {
            address,
            name: ServerName::from(address.ip()),
            h1: connector(b"http/1.1")?,
            h2: connector(b"h2")?,
            token,
        })
    }

    /// Opens an HTTP/2 connection.
    pub async fn h2(&self) -> Result<H2> {
        let stream = self.connect(&self.h2).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            bail!("the server does not speak HTTP/2");
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Opens an HTTP/1.1 connection.
    pub async fn h1(&self) -> Result<H1> {
        let stream = self.connect(&self.h1).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn connect(&self, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        connector.connect(self.name.clone(), stream).await.context("the TLS handshake failed")
    }

    /// A request for HTTP/2.
    pub fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let uri = format!("https://{}{path}", self.address);
        let content_type =
            if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, content_type);
        let request = match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        Ok(request.body(Full::new(body))?)
    }

    /// A GET for HTTP/1.1.
    pub fn request_h1(&self, path: &str) -> Result<Request<Full<Bytes>>> {
        Ok(Request::get(path).header(HOST, self.address.to_string()).body(Full::new(Bytes::new()))?)
    }

    /// Creates an object and reads the answer to its end; an error unless it was created.
    pub async fn create(&self, connection: &mut H2, path: &str, body: Bytes) -> Result<Bytes> {
        let request = self.request(Method::POST, path, body)?;
        let (status, answer) = finish(send(connection, request).await?).await?;
        if status != StatusCode::CREATED {
            bail!("POST {path}: {status}: {}", excerpt(&answer));
        }
        Ok(answer)
    }

    /// Creates an object whose answer does not matter.
    pub async fn create_unread(&self, connection: &mut H2, path: &str, body: Bytes) -> Result<()> {
        succeed(connection, self.request(Method::POST, path, body)?).await
    }

    /// Reads a path.
    pub async fn get(&self, connection: &mut H2, path: &str) -> Result<(StatusCode, Bytes)> {
        finish(send(connection, self.request(Method::GET, path, Bytes::new())?).await?).await
    }

    /// Reads a path to its end and returns how many bytes came.
    pub async fn get_length(&self, connection: &mut H2, path: &str) -> Result<u64> {
        let response = send(connection, self.request(Method::GET, path, Bytes::new())?).await?;
        let status = response.status();
        if status != StatusCode::OK {
            bail!("GET {path}: {status}");
        }
        skip(response).await
    }
}

/// Sends on a connection that may be busy with other streams.
pub async fn send(connection: &mut H2, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
    connection.ready().await?;
    Ok(connection.send_request(request).await?)
}

/// Sends a request whose answer does not matter, unless it is a refusal.
pub async fn succeed(connection: &mut H2, request: Request<Full<Bytes>>) -> Result<()> {
    let what = format!("{} {}", request.method(), request.uri().path());
    let response = send(connection, request).await?;
    if !response.status().is_success() {
        let (status, answer) = finish(response).await?;
        bail!("{what}: {status}: {}", excerpt(&answer));
    }
    skip(response).await?;
    Ok(())
}

async fn finish(response: Response<Incoming>) -> Result<(StatusCode, Bytes)> {
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

async fn skip(response: Response<Incoming>) -> Result<u64> {
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(length)
}

/// The start of an answer, for an error.
pub fn excerpt(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(400)]).into_owned()
}
