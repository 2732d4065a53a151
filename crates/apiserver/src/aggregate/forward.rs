//! Passing a request on, and the answer back.
//!
//! The delegate learns who is calling from headers that only this server may set; what a client sends of them is
//! dropped. Redirects are not followed, and nothing that goes wrong with the delegate takes longer than a minute.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, LOCATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use tokio::time::Sleep;

use super::remote::{Connection, Remote};
use super::{Back, Delegate};
use crate::access::UserInfo;
use crate::backend::resolve;
use crate::body::{Body, BodyError};
use crate::response::Reply;
use crate::serve::PeerAddress;
use crate::server::Inner;
use crate::status::{Failure, Outcome};

/// How long the header of an answer may take. Bodies that are not meant to stay open have as long again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const UNAVAILABLE: &str = "the server is currently unable to handle the request";

/// Lets a delegate answer.
pub async fn forward(
    server: &Arc<Inner>,
    delegate: &Delegate,
    user: &UserInfo,
    parts: &Parts,
    body: Bytes,
    is_long: bool,
) -> Outcome<Reply> {
    match &delegate.back {
        Back::Mounted(handler) => {
            let mut request = Request::new(body);
            *request.method_mut() = parts.method.clone();
            *request.uri_mut() = parts.uri.clone();
            *request.headers_mut() = passed_headers(&parts.headers);
            request.extensions_mut().insert(user.clone());
            Ok(Reply::passed(handler(request).await, is_long))
        }
        Back::Remote(remote) => to_remote(server, remote, user, parts, body, is_long).await,
    }
}

async fn to_remote(
    server: &Arc<Inner>,
    remote: &Remote,
    user: &UserInfo,
    parts: &Parts,
    body: Bytes,
    is_long: bool,
) -> Outcome<Reply> {
    let unavailable = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", UNAVAILABLE);
    if !remote.is_available() {
        return Err(unavailable());
    }
    let backend = resolve(server, &remote.namespace, &remote.service, remote.port).await;
    let backend = backend.map_err(|_| unavailable())?;
    let upgrade = wanted_upgrade(&parts.headers);
    let request = outgoing(remote, user, parts, body, upgrade.as_ref())?;
    let exchange = async {
        let sent = remote.send(&backend, request);
        sent.await.map_err(|why| {
            let text = format!("error trying to reach service: {why}");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text)
        })
    };
    let (response, connection) = match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
        Ok(answered) => answered?,
        Err(_) => return Err(too_slow()),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(response, connection, parts);
    }
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        let text = "the backend attempted to redirect this request, which is not permitted";
        return Err(Failure::new(StatusCode::BAD_GATEWAY, "", text));
    }
    let (mut head, body) = response.into_parts();
    remove_hops(&mut head.headers);
    let until = (!is_long && upgrade.is_none()).then(|| Box::pin(tokio::time::sleep(ANSWER_TIMEOUT)));
    let body = Body::streamed(Passed { body, until, _connection: connection });
    Ok(Reply::passed(Response::from_parts(head, body), is_long))
}

fn too_slow() -> Failure {
    let text = format!("the service did not answer within {} seconds", ANSWER_TIMEOUT.as_secs());
    Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text)
}

/// The protocol that a client wants to speak instead of HTTP.
fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut words = connection.flat_map(|value| value.split(',')).map(str::trim);
    words.any(|word| word.eq_ignore_ascii_case("upgrade")).then(|| headers.get(UPGRADE).cloned()).flatten()
}

fn outgoing(
    remote: &Remote,
    user: &UserInfo,
    parts: &Parts,
    body: Bytes,
    upgrade: Option<&HeaderValue>,
) -> Outcome<Request<Full<Bytes>>> {
    let bad = |e: &dyn std::fmt::Display| Failure::internal(format!("passing the request on: {e}"));
    let mut headers = passed_headers(&parts.headers);
    headers.insert(HOST, HeaderValue::from_str(&remote.host()).map_err(|e| bad(&e))?);
    add_user_headers(&mut headers, user)?;
    if let Some(PeerAddress(address)) = parts.extensions.get::<PeerAddress>()
        && let Ok(value) = HeaderValue::from_str(&address.ip().to_string())
    {
        headers.append("x-forwarded-for", value);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(|e| bad(&e))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// A client's headers without its credentials, without those that are about the connection, and without those by which
/// the server says who is calling.
fn passed_headers(given: &HeaderMap) -> HeaderMap {
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
fn remove_hops(headers: &mut HeaderMap) {
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

/// Says who is calling, in the way of authenticating proxies.
pub fn add_user_headers(headers: &mut HeaderMap, user: &UserInfo) -> Outcome<()> {
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| Failure::internal("the user cannot be named in a header"))
    };
    headers.insert("x-remote-user", value(&user.username)?);
    if !user.uid.is_empty() {
        headers.insert("x-remote-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("x-remote-group", value(group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escaped(key));
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// Keys may have characters that names of headers cannot have.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut out = String::new();
    for byte in key.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte.to_ascii_lowercase()));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Both ends agree to speak something else: bytes are copied until one of them is done.
fn switch(mut response: Response<Incoming>, connection: Connection, parts: &Parts) -> Outcome<Reply> {
    let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
