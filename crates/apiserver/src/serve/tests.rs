use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{StatusCode, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use shoal_objects::{Clock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::access::PeerCertificate;
use crate::access::pki::{Identity, Pki};

type AnyBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// Tells who asks; `/watch` and `/stuck` never end, `/slow` says that it began and waits for a permit, `/upgrade` echoes bytes.
#[derive(Clone)]
struct Echo {
    began: mpsc::UnboundedSender<()>,
    permits: Arc<Semaphore>,
}

impl Service<Request<Incoming>> for Echo {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let Echo { began, permits } = self.clone();
        Box::pin(async move {
            let full = |text: String| Full::new(Bytes::from(text)).boxed();
            Ok(match request.uri().path() {
                "/stuck" => Response::new(Never.boxed()),
                "/watch" => {
                    let mut response = Response::new(Never.boxed());
                    response.extensions_mut().insert(Endless);
                    response
                }
                "/panic" => panic!("a defect of the service"),
                "/slow" => {
                    began.send(()).unwrap();
                    permits.acquire().await.unwrap().forget();
                    Response::new(full("slow".into()))
                }
                "/upgrade" => {
                    let upgrade = hyper::upgrade::on(&mut request);
                    tokio::spawn(async move {
                        let mut io = TokioIo::new(upgrade.await.unwrap());
                        let mut word = [0; 4];
                        io.read_exact(&mut word).await.unwrap();
                        io.write_all(&word).await.unwrap();
                        io.shutdown().await.unwrap();
                    });
                    let mut response = Response::new(full(String::new()));
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    response.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
                    response.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
                    response
                }
                _ => {
                    assert!(request.extensions().get::<PeerAddress>().is_some());
                    let peer = request.extensions().get::<PeerCertificate>();
                    let user = peer.and_then(|p| p.user(Clock::system().now()));
                    Response::new(full(user.map_or("nobody", |u| u.username.as_str()).to_owned()))
                }
            })
        })
    }
}

struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

struct Running {
    pki: Pki,
    address: SocketAddr,
    began: mpsc::UnboundedReceiver<()>,
    permits: Arc<Semaphore>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

fn now() -> Timestamp {
    Clock::system().now()
}

async fn start(limits: Limits) -> Running {
    let pki = Pki::in_memory(&[], now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let tls = server_config(&pki).unwrap();
    let (sender, began) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(0));
    let echo = Echo { began: sender, permits: Arc::clone(&permits) };
    let server = tokio::spawn(serve(listener, tls, echo, limits, async {
        let _ = stopped.await;
    }));
    Running { pki, address, began, permits, stop: Some(stop), server }
}

fn client_config(running: &Running, identity: Option<&Identity>, alpn: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(running.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    config
}

async fn connect(running: &Running, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(running.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn http1(
    running: &Running,
    identity: Option<&Identity>,
) -> hyper::client::conn::http1::SendRequest<Empty<Bytes>> {
    let stream = connect(running, client_config(running, identity, "http/1.1")).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

async fn http2(
    running: &Running,
    identity: Option<&Identity>,
) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
    let stream = connect(running, client_config(running, identity, "h2")).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://localhost{path}")).header("host", "localhost").body(Empty::new()).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn the_user_of_a_client_certificate_reaches_the_service_over_both_protocols() {
    let running = start(Limits::default()).await;
    let jane = running.pki.issue_client("jane", "team-a", now()).unwrap();
    for (identity, name) in
        [(None, "nobody"), (Some(&jane), "jane"), (Some(running.pki.admin()), "kubernetes-admin")]
    {
        let response = http1(&running, identity).await.send_request(get("/")).await.unwrap();
        assert_eq!(text(response).await, name);
        let response = http2(&running, identity).await.send_request(get("/")).await.unwrap();
        assert_eq!(text(response).await, name);
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_and_others_are_served_on() {
    let running = start(Limits::default()).await;
    let foreign = Pki::in_memory(&[], now()).unwrap();
    // With TLS 1.3 the client learns of the refusal when it reads.
    if let Ok(mut stream) =
        connect(&running, client_config(&running, Some(foreign.admin()), "http/1.1")).await
    {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(!matches!(stream.read(&mut [0; 64]).await, Ok(1..)));
    }
    for rubbish in [&b"\x16\x03\x01\x00\x05rubbish"[..], b"\x16", b"\x00\x00\x00", b""] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(rubbish).await.unwrap();
    }
    let response = http1(&running, None).await.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_defect_of_the_service_ends_one_request_only() {
    let running = start(Limits::default()).await;
    assert!(http1(&running, None).await.send_request(get("/panic")).await.is_err());
    let mut sender = http2(&running, None).await;
    assert!(sender.send_request(get("/panic")).await.is_err());
    assert_eq!(text(sender.send_request(get("/")).await.unwrap()).await, "nobody", "the other streams go on");
    assert_eq!(text(http1(&running, None).await.send_request(get("/")).await.unwrap()).await, "nobody");
}

#[tokio::test]
async fn plain_http_gets_the_answer_of_a_go_server() {
    let running = start(Limits::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
}

#[tokio::test]
async fn sessions_are_resumed() {
    let running = start(Limits::default()).await;
    let config = client_config(&running, Some(running.pki.admin()), "http/1.1");
    for (kind, name) in
        [(HandshakeKind::Full, "kubernetes-admin"), (HandshakeKind::Resumed, "kubernetes-admin")]
    {
        let stream = connect(&running, config.clone()).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(text(sender.send_request(get("/")).await.unwrap()).await, name);
    }
}

#[tokio::test]
async fn hundreds_of_watches_share_one_connection() {
    let running = start(Limits::default()).await;
    let sender = http2(&running, None).await;
    let mut watches = Vec::new();
    for _ in 0..400 {
        let response = sender.clone().send_request(get("/watch")).await.unwrap();
        watches.push(response);
    }
    assert_eq!(text(sender.clone().send_request(get("/")).await.unwrap()).await, "nobody");
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let running = start(Limits::default()).await;
    let mut request = get("/upgrade");
    request.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
    request.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
    let response = http1(&running, None).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(b"ping").await.unwrap();
    let mut word = String::new();
    io.read_to_string(&mut word).await.unwrap();
    assert_eq!(word, "ping");
}

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_cut() {
    let running = start(Limits { handshake: SHORT, ..Limits::default() }).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut half_hello = TcpStream::connect(running.address).await.unwrap();
    half_hello.write_all(b"\x16\x03\x01").await.unwrap();
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    assert!(matches!(half_hello.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_first_header_is_cut() {
    let running = start(Limits { first_request: SHORT, ..Limits::default() }).await;
    for (alpn, half) in [("http/1.1", "GET / HTTP/1.1\r\nhost: "), ("h2", "PRI * HT")] {
        for sent in ["", half] {
            let mut stream = connect(&running, client_config(&running, None, alpn)).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let running = start(Limits { idle: SHORT, ..Limits::default() }).await;
    let stream = connect(&running, client_config(&running, None, "http/1.1")).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    sender.send_request(get("/")).await.unwrap().into_body().collect().await.unwrap();
    let _ = connection.await.unwrap();
}

#[tokio::test]
async fn a_watch_outlives_the_limits_of_headers() {
    let second = Duration::from_secs(1);
    let running = start(Limits { first_request: second, idle: second, ..Limits::default() }).await;
    let response = http1(&running, None).await.send_request(get("/watch")).await.unwrap();
    let ended = tokio::time::timeout(second * 3 / 2, response.into_body().frame()).await;
    assert!(ended.is_err(), "the watch is still open");
}

#[tokio::test]
async fn stopping_lets_requests_finish_and_cuts_the_rest() {
    let mut running = start(Limits { drain: Duration::from_secs(1), ..Limits::default() }).await;
    let stuck = http1(&running, None).await.send_request(get("/stuck")).await.unwrap();
    let over_http2 = http2(&running, None).await.send_request(get("/stuck")).await.unwrap();
    let mut sender = http1(&running, None).await;
    let slow = tokio::spawn(async move { text(sender.send_request(get("/slow")).await.unwrap()).await });
    let mut second = http2(&running, None).await;
    let slow2 = tokio::spawn(async move { text(second.send_request(get("/slow")).await.unwrap()).await });
    running.began.recv().await.unwrap();
    running.began.recv().await.unwrap();
    running.stop.take().unwrap().send(()).unwrap();
    while TcpStream::connect(running.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    running.permits.add_permits(2);
    assert_eq!(slow.await.unwrap(), "slow");
    assert_eq!(slow2.await.unwrap(), "slow");
    tokio::time::timeout(Duration::from_secs(60), running.server).await.unwrap().unwrap();
    assert!(stuck.into_body().collect().await.is_err());
    assert!(over_http2.into_body().collect().await.is_err());
}

#[tokio::test]
async fn watches_end_in_good_order_when_the_server_stops() {
    let mut running = start(Limits { drain: Duration::from_secs(3600), ..Limits::default() }).await;
    let over_http1 = http1(&running, None).await.send_request(get("/watch")).await.unwrap();
    let over_http2 = http2(&running, None).await.send_request(get("/watch")).await.unwrap();
    running.stop.take().unwrap().send(()).unwrap();
    assert_eq!(text(over_http1).await, "");
    assert_eq!(text(over_http2).await, "");
    tokio::time::timeout(Duration::from_secs(60), running.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_server_stops_at_once() {
    let mut running = start(Limits { drain: Duration::from_secs(3600), ..Limits::default() }).await;
    let mut idle = http1(&running, None).await;
    idle.send_request(get("/")).await.unwrap().into_body().collect().await.unwrap();
    let mut idle2 = http2(&running, None).await;
    idle2.send_request(get("/")).await.unwrap().into_body().collect().await.unwrap();
    let _silent = TcpStream::connect(running.address).await.unwrap();
    running.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), running.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_task_of_a_connection_is_small() {
    let running = start(Limits::default()).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let echo = Echo { began: mpsc::unbounded_channel().0, permits: Arc::clone(&running.permits) };
    let tls = server_config(&running.pki).unwrap();
    let (_drain, draining) = watch::channel(());
    let task = connection::run(stream, running.address, tls, echo, Limits::default(), draining);
    let size = size_of_val(&task);
    assert!(size < 1024, "{size} bytes for every idle watcher");
}
