//! What is the same for every answer that is passed on: from extension API servers and from agents of nodes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, Response};
use http_body::SizeHint;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use tokio::time::Sleep;

use crate::backend::Connection;
use crate::body::{Body, BodyError, NextFrame};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// An answer as it comes; complete within `until`, unless it is meant to stay open.
pub fn pass(
    response: Response<Incoming>,
    connection: Connection,
    until: Option<Duration>,
    is_long: bool,
) -> Reply {
    let (mut head, body) = response.into_parts();
    remove_hops(&mut head.headers);
    let until = until.map(|until| Box::pin(tokio::time::sleep(until)));
    let body = Body::streamed(Passed { body, until, _connection: connection });
    Reply::passed(Response::from_parts(head, body), is_long)
}

/// The protocol that a client wants to speak instead of HTTP.
pub fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut words = connection.flat_map(|value| value.split(',')).map(str::trim);
    words.any(|word| word.eq_ignore_ascii_case("upgrade")).then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// A client's headers without its credentials, without those that are about the connection, and without those by which
/// the server says who is calling.
pub fn passed_headers(given: &HeaderMap) -> HeaderMap {
    let mut headers = given.clone();
    remove_hops(&mut headers);
    let is_ours = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("x-remote-") || name.starts_with("impersonate-")
    };
    let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours.iter().chain([&AUTHORIZATION, &HOST, &CONTENT_LENGTH]) {
        headers.remove(name);
    }
    headers
}

/// Headers that are between two ends of one connection.
pub fn remove_hops(headers: &mut HeaderMap) {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        connection.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"] {
        headers.remove(name);
    }
}

/// Both ends agree to speak something else: bytes are copied until one of them is done.
pub fn switch(
    mut response: Response<Incoming>,
    connection: Connection,
    client: Option<OnUpgrade>,
) -> Outcome<Reply> {
    let Some(client) = client else {
        return Err(Failure::bad_request("this connection cannot be upgraded"));
    };
    let backend = on(&mut response);
    tokio::spawn(async move {
        let _connection = connection;
        let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
        let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
        // How such a conversation ends is up to the two.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
    });
    let (head, _) = response.into_parts();
    Ok(Reply::passed(Response::from_parts(head, Body::Full(Bytes::new())), true))
}

/// The body of an answer, read as fast as the client reads it.
struct Passed {
    body: Incoming,
    /// When it must be complete, if it is not meant to stay open.
    until: Option<Pin<Box<Sleep>>>,
    _connection: Connection,
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|e| BodyError(e.to_string()))));
        }
        match &mut self.until {
            Some(until) => until
                .as_mut()
                .poll(cx)
                .map(|()| Some(Err(BodyError("the service took too long to answer".to_owned())))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
