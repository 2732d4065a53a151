//! Requests and answers.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::sync::mpsc;

/// The body of an answer.
pub type Answer = UnsyncBoxBody<Bytes, Infallible>;

pub fn body(bytes: impl Into<Bytes>) -> Answer {
    Full::new(bytes.into()).boxed_unsync()
}

pub fn text(status: StatusCode, text: &str) -> Response<Answer> {
    typed(status, "text/plain; charset=utf-8", text.to_owned())
}

pub fn json(value: &Value) -> Response<Answer> {
    typed(StatusCode::OK, "application/json", value.to_string())
}

pub fn typed(status: StatusCode, kind: &'static str, text: String) -> Response<Answer> {
    let mut response = Response::new(body(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// An answer that comes piece by piece.
pub fn streamed(pieces: mpsc::Receiver<Bytes>) -> Response<Answer> {
    let stream = futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    });
    let mut response =
        Response::new(StreamBody::new(stream.map(|piece| Ok(Frame::data(piece)))).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The options of a request.
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn of(uri: &Uri) -> Query {
        let decode =
            |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether one of these names is there and true.
    pub fn is_set(&self, names: &[&str]) -> bool {
        names.iter().any(|name| matches!(self.get(name), Some("1" | "true")))
    }
}
