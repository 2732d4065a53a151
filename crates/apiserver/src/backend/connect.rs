//! A connection with TLS to a back end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Backend;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the first address that answers; `host` is the name that its certificate must have.
pub async fn connect(
    backend: &Backend,
    host: &str,
    tls: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = dial(backend).await?;
    let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("tls: {e}"))?;
    TlsConnector::from(tls).connect(name, stream).await.map_err(|e| format!("tls: {e}"))
}

/// A connection that is closed when nobody needs it any more.
pub struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request over a connection of its own. The connection lives as long as what is returned with the answer; an
/// upgraded one lives on by itself.
pub async fn exchange(
    backend: &Backend,
    host: &str,
    tls: Arc<ClientConfig>,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Connection), String> {
    converse(in_time(connect(backend, host, tls)).await?, request).await
}

/// The same without TLS.
pub async fn exchange_plain(
    backend: &Backend,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Connection), String> {
    converse(in_time(dial(backend)).await?, request).await
}

async fn in_time<S>(connect: impl Future<Output = Result<S, String>>) -> Result<S, String> {
    match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
        Ok(connected) => connected,
        Err(_) => Err("dial tcp: i/o timeout".to_owned()),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Connection), String> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
    let connection = Connection(tokio::spawn(connection.with_upgrades()).abort_handle());
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    Ok((response, connection))
}

async fn dial(backend: &Backend) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = match backend {
        Backend::Addresses(addresses) => addresses.clone(),
        Backend::Host(host, port) => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            found.map_err(|e| format!("dial tcp: lookup {host}: {e}"))?.collect()
        }
    };
    let mut last = "dial tcp: no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without this, small answers wait for acknowledgements; failing to set it changes nothing else.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => last = format!("dial tcp {address}: {e}"),
        }
    }
    Err(last)
}
