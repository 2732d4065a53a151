//! Sockets and TLS in front of the service.
//!
//! accept → first byte → TLS handshake → HTTP/2 or HTTP/1.1 by ALPN → service. Every step before the first request has
//! a time limit, so that silent or trickling clients cannot pile up.

mod connection;
mod endless;
mod plain;
mod tls;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

pub use connection::PeerAddress;
pub use endless::Endless;
pub use tls::server_config;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the TCP connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the end of the header of the first request.
    pub first_request: Duration,
    /// From one response to the end of the header of the next request on a HTTP/1.1 connection.
    pub idle: Duration,
    /// How long requests in flight may go on when the server stops. [`Endless`] responses end at once.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            drain: Duration::from_secs(2),
        }
    }
}

/// Serves connections until `shutdown`, then stops accepting, lets requests in flight finish for `limits.drain`, and
/// cuts what is left. The service finds [`PeerAddress`] and, if the client showed a certificate,
/// [`PeerCertificate`](crate::access::PeerCertificate) among the extensions of a request.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: S,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    let (drain, draining) = watch::channel(());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (stream, address) = accept(&listener) => {
                let (tls, service, draining) = (Arc::clone(&tls), service.clone(), draining.clone());
                connections.spawn(connection::run(stream, address, tls, service, limits, draining));
            }
        }
    }
    drop(listener);
    drop(drain);
    let all_done = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, all_done).await.is_err() {
        connections.shutdown().await;
    }
}

/// The next connection, however long it takes: nothing that goes wrong with one ends the server.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(e) if is_about_one_connection(&e) => {}
            Err(e) => {
                // Out of file descriptors or memory: only connections that end can help.
                tracing::warn!("cannot accept a connection: {e}; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
            | ErrorKind::TimedOut
    )
}
