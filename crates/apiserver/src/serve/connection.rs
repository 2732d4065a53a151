//! One connection from its first byte to its end.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower_service::Service;

use super::endless::Ending;
use super::{Limits, plain};
use crate::access::PeerCertificate;

/// Go clients put hundreds of watches on one connection.
const MAX_STREAMS: u32 = 1_000;
/// Controllers that stop cancel all their watches at once; this many may be cancelled before they are looked at.
const MAX_CANCELLED_STREAMS: usize = 250;
/// What a client that does not read may make us keep, per stream or HTTP/1.1 connection.
const SEND_BUFFER: usize = 64 * 1024;
/// How much of its request bodies a client may send before they are read: per stream, per connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Long tokens and selectors.
const MAX_HEADER: u32 = 64 * 1024;
/// Peers that vanished without a word are found out by pings (HTTP/2) and by TCP.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The other end of the connection of a request: an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// The bounds are those of [`serve`](super::serve). Futures are boxed where they end, so that an idle connection holds
/// neither its handshake nor room for the other protocol: thousands of watchers may be waiting.
pub(super) async fn run<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    service: S,
    limits: Limits,
    mut draining: watch::Receiver<()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let handshake = Box::pin(tokio::time::timeout(limits.handshake, handshake(stream, tls)));
    let outcome = tokio::select! {
        biased;
        // The sender is dropped to tell that the server stops.
        _ = draining.changed() => return,
        outcome = handshake => outcome,
    };
    let stream = match outcome {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return,
        Ok(Err(e)) => return tracing::debug!(%address, "TLS handshake failed: {e}"),
        Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
    };
    speak_http(stream, address, service, limits, draining).await;
}

fn speak_http<S, B>(
    stream: Box<TlsStream<TcpStream>>,
    address: SocketAddr,
    service: S,
    limits: Limits,
    draining: watch::Receiver<()>,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(PeerCertificate::from_verified);
    let is_http2 = session.alpn_protocol() == Some(b"h2");

    let has_asked = Arc::new(AtomicBool::new(false));
    let (asked, stopping) = (Arc::clone(&has_asked), draining.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(PeerAddress(address));
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let (mut service, stopping) = (service.clone(), stopping.clone());
        async move {
            std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await.map(|response| Ending::wrap(response, &stopping))
        }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let connection = Box::pin(http2_settings().serve_connection(io, service));
        Box::pin(drive(connection, http2::Connection::graceful_shutdown, has_asked, limits, draining))
    } else {
        let connection = Box::pin(http1_settings(limits).serve_connection(io, service).with_upgrades());
        let stop = http1::UpgradeableConnection::graceful_shutdown;
        Box::pin(drive(connection, stop, has_asked, limits, draining))
    }
}

async fn handshake(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
) -> std::io::Result<Option<Box<TlsStream<TcpStream>>>> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(20))
        .with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    if !plain::speaks_tls(&mut stream).await? {
        return Ok(None);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(|stream| Some(Box::new(stream)))
}

/// Runs a connection until it ends by itself, or its first request does not come in time. When the server stops, the
/// connection takes no further requests.
async fn drive<C: Future>(
    mut connection: Pin<Box<C>>,
    stop: impl Fn(Pin<&mut C>),
    has_asked: Arc<AtomicBool>,
    limits: Limits,
    mut draining: watch::Receiver<()>,
) {
    let mut first_request = pin!(tokio::time::sleep(limits.first_request));
    let (mut is_new, mut is_stopping) = (true, false);
    loop {
        tokio::select! {
            biased;
            // How a connection ends is the client's business: resets and cut streams are everyday life.
            _ = &mut connection => return,
            () = &mut first_request, if is_new => {
                if !has_asked.load(Ordering::Relaxed) {
                    return;
                }
                is_new = false;
            }
            _ = draining.changed(), if !is_stopping => {
                stop(connection.as_mut());
                is_stopping = true;
            }
        }
    }
}

fn http1_settings(limits: Limits) -> http1::Builder {
    let mut settings = http1::Builder::new();
    settings.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(SEND_BUFFER);
    settings
}

fn http2_settings() -> http2::Builder<TokioExecutor> {
    let mut settings = http2::Builder::new(TokioExecutor::new());
    settings
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_CANCELLED_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEADER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    settings
}
