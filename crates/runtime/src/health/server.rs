//! The listener of the endpoints.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Health;
use super::answer::{Caller, answer, text};
use crate::manager::Stop;

/// Scrapers and probes are few; whoever opens more is turned away.
const CONNECTIONS: usize = 64;
/// Longest body of a request: a log level.
const LONGEST_BODY: usize = 4096;
/// How long a client may take to send its header.
const HEADER: Duration = Duration::from_secs(10);
/// A connection that is kept open and unused ends at the latest after this time.
const LONGEST_CONNECTION: Duration = Duration::from_secs(300);

/// The endpoints on a socket.
pub struct Server {
    listener: TcpListener,
    health: Health,
}

/// Listens on all addresses, IPv6 and IPv4.
pub async fn bind(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        // No IPv6 here; any other reason comes up again.
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

impl Server {
    /// Serves `health` on a listener.
    pub fn new(listener: TcpListener, health: Health) -> Server {
        Server { listener, health }
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until asked to stop; connections are cut then.
    pub async fn run(self, stop: Stop) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => {
                    let Ok((stream, peer)) = accepted else {
                        // Out of file descriptors, for instance: trying at once would only spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
                    let health = self.health.clone();
                    connections.spawn(async move {
                        let _permit = permit;
                        serve(stream, caller(peer), health).await;
                    });
                }
            }
        }
    }
}

fn caller(peer: SocketAddr) -> Caller {
    if peer.ip().to_canonical().is_loopback() { Caller::Local } else { Caller::Remote }
}

async fn serve(stream: TcpStream, caller: Caller, health: Health) {
    let service = service_fn(|request| {
        let health = health.clone();
        async move { Ok::<_, std::convert::Infallible>(reply(&health, caller, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service);
    // A client that went away or sent nonsense has had its answer.
    let _ = tokio::time::timeout(LONGEST_CONNECTION, connection).await;
}

async fn reply(health: &Health, caller: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = tokio::time::timeout(HEADER, Limited::new(body, LONGEST_BODY).collect()).await;
    match body {
        Ok(Ok(body)) => answer(health, caller, Request::from_parts(parts, body.to_bytes())).await,
        _ => text(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long or came too slowly\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_the_loopback_network_in_all_its_spellings_and_nothing_else() {
        for (address, expected) in [
            ("127.0.0.1:1", Caller::Local),
            ("127.8.9.10:1", Caller::Local),
            ("[::1]:1", Caller::Local),
            ("[::ffff:127.0.0.1]:1", Caller::Local),
            ("10.0.0.7:1", Caller::Remote),
            ("[::ffff:10.0.0.7]:1", Caller::Remote),
            ("[fe80::1]:1", Caller::Remote),
            ("[::7f00:1]:1", Caller::Remote),
            ("0.0.0.0:1", Caller::Remote),
        ] {
            assert_eq!(caller(address.parse().unwrap()), expected, "{address}");
        }
    }
}
