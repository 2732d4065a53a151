//! WebSocket (RFC 6455), the side of the server.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Mutex;

use super::answer::{Answer, body, text};

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Larger messages are refused.
const LARGEST: usize = 4 * 1024 * 1024;

const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Answers a request for a WebSocket with one of `protocols`, the best first; `then` gets the socket and the protocol.
pub fn accept<F, R>(mut request: Request<Incoming>, protocols: &[&'static str], then: F) -> Response<Answer>
where
    F: FnOnce(Socket<TokioIo<Upgraded>>, &'static str) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let headers = request.headers();
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    let key = headers.get(SEC_WEBSOCKET_KEY).cloned();
    let is_one = has(UPGRADE, "websocket") && has(CONNECTION, "upgrade") && has(SEC_WEBSOCKET_VERSION, "13");
    let (true, Some(key)) = (is_one, key) else {
        return text(StatusCode::BAD_REQUEST, "this node speaks WebSocket only: unable to upgrade");
    };
    let Some(protocol) = chosen(headers, protocols) else {
        let message =
            format!("none of the requested protocols is known; this node knows {}", protocols.join(", "));
        return text(StatusCode::BAD_REQUEST, &message);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            then(Socket::new(TokioIo::new(upgraded)), protocol).await;
        }
    });
    let mut response = Response::new(body(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    if let Ok(value) = HeaderValue::from_str(&accept_key(key.as_bytes())) {
        out.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    response
}

fn chosen(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let wanted: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    known.iter().find(|known| wanted.contains(known)).copied()
}

fn accept_key(key: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    BASE64_STANDARD.encode(digest.as_ref())
}

/// A WebSocket.
pub struct Socket<S> {
    reader: ReadHalf<S>,
    writer: Writer<S>,
}

/// The side that sends; clones share it.
pub struct Writer<S>(Arc<Mutex<WriteHalf<S>>>);

impl<S> Clone for Writer<S> {
    fn clone(&self) -> Writer<S> {
        Writer(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub fn new(stream: S) -> Socket<S> {
        let (reader, writer) = tokio::io::split(stream);
        Socket { reader, writer: Writer(Arc::new(Mutex::new(writer))) }
    }

    pub fn writer(&self) -> Writer<S> {
        self.writer.clone()
    }

    /// The next message; nothing when the other side has closed. Not to be dropped half-way.
    pub async fn read(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut message = BytesMut::new();
        loop {
            let Some((last, kind, payload)) = self.read_frame().await? else { return Ok(None) };
            match kind {
                CLOSE => {
                    let _ = self.writer.frame(CLOSE, &payload).await;
                    return Ok(None);
                }
                PING => self.writer.frame(PONG, &payload).await?,
                PONG => {}
                _ => {
                    if message.len() + payload.len() > LARGEST {
                        return Err(std::io::Error::other("the message is too large"));
                    }
                    message.extend_from_slice(&payload);
                    if last {
                        return Ok(Some(message.freeze()));
                    }
                }
            }
        }
    }

    async fn read_frame(&mut self) -> std::io::Result<Option<(bool, u8, Vec<u8>)>> {
        let mut head = [0; 2];
        if self.reader.read_exact(&mut head).await.is_err() {
            return Ok(None);
        }
        let length = match head[1] & 0x7f {
            126 => usize::from(self.reader.read_u16().await?),
            127 => usize::try_from(self.reader.read_u64().await?).unwrap_or(usize::MAX),
            short => usize::from(short),
        };
        if length > LARGEST {
            return Err(std::io::Error::other("the frame is too large"));
        }
        let mut mask = [0; 4];
        if head[1] & 0x80 != 0 {
            self.reader.read_exact(&mut mask).await?;
        }
        let mut payload = vec![0; length];
        self.reader.read_exact(&mut payload).await?;
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        let kind = head[0] & 0x0f;
        let kind = if kind == CONTINUATION { BINARY } else { kind };
        Ok(Some((head[0] & 0x80 != 0, kind, payload)))
    }
}

impl<S: AsyncWrite> Writer<S> {
    /// Sends a message.
    pub async fn send(&self, payload: &[u8]) -> std::io::Result<()> {
        self.frame(BINARY, payload).await
    }

    /// Says that nothing more comes.
    pub async fn close(&self) -> std::io::Result<()> {
        self.frame(CLOSE, &1000_u16.to_be_bytes()).await?;
        self.0.lock().await.shutdown().await
    }

    async fn frame(&self, kind: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut head = vec![0x80 | kind];
        match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
            (Ok(short), _) if short < 126 => head.push(short),
            (_, Ok(length)) => {
                head.push(126);
                head.extend(length.to_be_bytes());
            }
            _ => {
                head.push(127);
                head.extend((payload.len() as u64).to_be_bytes());
            }
        }
        head.extend_from_slice(payload);
        let mut writer = self.0.lock().await;
        writer.write_all(&head).await?;
        writer.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_answered_as_the_standard_says() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn masked_and_cut_messages_are_put_together() {
        let (mut client, server) = tokio::io::duplex(1024);
        let mut socket = Socket::new(server);
        let frame = |head: u8, text: &[u8]| {
            let mut out = vec![head, 0x80 | u8::try_from(text.len()).unwrap(), 1, 2, 3, 4];
            out.extend(text.iter().zip([1, 2, 3, 4].iter().cycle()).map(|(byte, key)| byte ^ key));
            out
        };
        for part in [frame(0x02, b"one "), frame(0x89, b"ping"), frame(0x80, b"message"), frame(0x88, b"")] {
            client.write_all(&part).await.unwrap();
        }
        assert_eq!(socket.read().await.unwrap().unwrap(), "one message");
        assert_eq!(socket.read().await.unwrap(), None);
        let mut pong = [0; 6];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"\x8a\x04ping");
    }
}
