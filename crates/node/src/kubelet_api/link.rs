//! A connection that speaks something else than HTTP from now on: messages of a WebSocket, or bytes as they come for SPDY.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Mutex;

use super::answer::{Answer, body, text};
use super::websocket::{self, Socket, Writer};

const SPDY: &str = "SPDY/3.1";
const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("x-stream-protocol-version");

type Stream = TokioIo<Upgraded>;

/// The connection.
pub enum Link {
    /// With messages.
    WebSocket(Socket<Stream>),
    /// With bytes, on which SPDY is spoken.
    Bytes(ReadHalf<Stream>, Arc<Mutex<WriteHalf<Stream>>>),
}

/// The side that sends; clones share it.
#[derive(Clone)]
pub enum Sender {
    /// Messages.
    WebSocket(Writer<Stream>),
    /// Bytes.
    Bytes(Arc<Mutex<WriteHalf<Stream>>>),
}

impl Link {
    /// The next piece; nothing when the other side has closed. Not to be dropped half-way.
    pub async fn read(&mut self) -> std::io::Result<Option<Bytes>> {
        match self {
            Link::WebSocket(socket) => socket.read().await,
            Link::Bytes(reader, _) => {
                let mut buffer = vec![0; 32 * 1024];
                let count = reader.read(&mut buffer).await?;
                buffer.truncate(count);
                Ok((count > 0).then(|| Bytes::from(buffer)))
            }
        }
    }

    /// The side that sends.
    pub fn sender(&self) -> Sender {
        match self {
            Link::WebSocket(socket) => Sender::WebSocket(socket.writer()),
            Link::Bytes(_, writer) => Sender::Bytes(writer.clone()),
        }
    }
}

impl Sender {
    /// Sends a piece.
    pub async fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Sender::WebSocket(writer) => writer.send(bytes).await,
            Sender::Bytes(writer) => {
                let mut writer = writer.lock().await;
                writer.write_all(bytes).await?;
                writer.flush().await
            }
        }
    }

    /// Says that nothing more comes.
    pub async fn close(&self) -> std::io::Result<()> {
        match self {
            Sender::WebSocket(writer) => writer.close().await,
            Sender::Bytes(writer) => writer.lock().await.shutdown().await,
        }
    }
}

/// Answers a request for a WebSocket or for SPDY with one of the protocols of its kind, the best first.
pub fn accept<F, R>(
    request: Request<Incoming>,
    websocket: &[&'static str],
    spdy: &[&'static str],
    then: F,
) -> Response<Answer>
where
    F: FnOnce(Link) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let wanted = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    match wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case(SPDY)) {
        true => accept_spdy(request, spdy, then),
        false => websocket::accept(request, websocket, |socket, _| then(Link::WebSocket(socket))),
    }
}

fn accept_spdy<F, R>(mut request: Request<Incoming>, known: &[&'static str], then: F) -> Response<Answer>
where
    F: FnOnce(Link) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let values = request.headers().get_all(PROTOCOL_HEADER).iter().filter_map(|value| value.to_str().ok());
    let wanted: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let Some(protocol) = known.iter().find(|known| wanted.contains(known)).copied() else {
        let message =
            format!("none of the requested protocols is known; this node knows {}", known.join(", "));
        return text(StatusCode::FORBIDDEN, &message);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
            then(Link::Bytes(reader, Arc::new(Mutex::new(writer)))).await;
        }
    });
    let mut response = Response::new(body(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static(SPDY));
    out.insert(PROTOCOL_HEADER, HeaderValue::from_static(protocol));
    response
}
