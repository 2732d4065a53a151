//! Passing a request on, and the answer back.
//!
//! The delegate learns who is calling from headers that only this server may set; what a client sends of them is
//! dropped. Redirects are not followed, and nothing that goes wrong with the delegate takes longer than a minute.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, LOCATION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;

use super::passing::{pass, passed_headers, switch, wanted_upgrade};
use super::remote::Remote;
use super::{Back, Delegate};
use crate::access::UserInfo;
use crate::backend::resolve;
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
        return switch(response, connection, parts.extensions.get::<OnUpgrade>().cloned());
    }
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        let text = "the backend attempted to redirect this request, which is not permitted";
        return Err(Failure::new(StatusCode::BAD_GATEWAY, "", text));
    }
    let until = (!is_long && upgrade.is_none()).then_some(ANSWER_TIMEOUT);
    Ok(pass(response, connection, until, is_long))
}

fn too_slow() -> Failure {
    let text = format!("the service did not answer within {} seconds", ANSWER_TIMEOUT.as_secs());
    Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text)
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
