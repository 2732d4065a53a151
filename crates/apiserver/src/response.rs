//! From what a handler returns to an HTTP response.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    VARY, WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::handlers::Call;
use crate::handlers::list::ListBody;
use crate::handlers::watch::WatchBody;
use crate::negotiate::{BodyFormat, Encoding};
use crate::protobuf;
use crate::serve::Endless;
use crate::status::{Failure, Outcome};

/// Bodies above this are compressed for clients that ask for it.
const GZIP_FROM: usize = 128 * 1024;
/// Lists with fewer objects are not worth collecting for compression.
const GZIP_LIST_FROM: usize = 100;

/// A response before the headers all have in common.
pub struct Reply {
    status: u16,
    content_type: &'static str,
    body: Body,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// All headers, of an answer that someone else gave.
    passed: Option<HeaderMap>,
    /// The body has no end of its own.
    is_endless: bool,
}

impl Reply {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// A copy of the document that is answered, and its format. A list is made whole for that.
    pub fn document(&mut self) -> Option<(Bytes, BodyFormat)> {
        if let Body::List(list) = &mut self.body {
            let mut whole = Vec::new();
            while let Some(chunk) = list.next_chunk() {
                whole.extend_from_slice(&chunk);
            }
            self.body = Body::Full(whole.into());
        }
        let format = match self.content_type {
            "application/json" => BodyFormat::Json,
            "application/yaml" => BodyFormat::Yaml,
            "application/vnd.kubernetes.protobuf" => BodyFormat::Protobuf,
            _ => return None,
        };
        match &self.body {
            Body::Full(bytes) => Some((bytes.clone(), format)),
            _ => None,
        }
    }

    /// Whether events are still to come.
    pub fn is_watch(&self) -> bool {
        matches!(self.body, Body::Watch(_))
    }

    fn new(status: u16, body: Body, content_type: &'static str) -> Reply {
        let is_endless = matches!(body, Body::Watch(_));
        Reply { status, content_type, body, headers: Vec::new(), passed: None, is_endless }
    }

    /// A whole body. An empty content type is left out.
    pub fn full(status: u16, body: impl Into<Bytes>, content_type: &'static str) -> Reply {
        Reply::new(status, Body::Full(body.into()), content_type)
    }

    /// An answer that someone else gave, as it is.
    pub fn passed(response: Response<Body>, is_endless: bool) -> Reply {
        let (parts, body) = response.into_parts();
        let reply = Reply::new(parts.status.as_u16(), body, "");
        Reply { passed: Some(parts.headers), is_endless, ..reply }
    }

    /// A list in JSON.
    pub fn list(body: ListBody) -> Reply {
        Reply::new(200, Body::List(body), "application/json")
    }

    /// A watch.
    pub fn watch(body: WatchBody, encoding: Encoding) -> Reply {
        Reply::new(200, Body::Watch(Box::new(body)), watch_type(encoding))
    }

    /// Plain text.
    pub fn text(status: u16, text: impl Into<Bytes>) -> Reply {
        Reply::full(status, text, "text/plain; charset=utf-8")
    }

    /// A JSON document.
    pub fn json(status: u16, value: &Value) -> Reply {
        let mut bytes = serde_json::to_vec(value).unwrap_or_default();
        bytes.push(b'\n');
        Reply::full(status, bytes, "application/json")
    }

    /// The HTTP response.
    pub fn finish(self, request: &HeaderMap, warnings: &[String]) -> Response<Body> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(headers) = self.passed {
            let mut response = Response::new(self.body);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            if self.is_endless {
                response.extensions_mut().insert(Endless);
            }
            return response;
        }
        let encoded = self.headers.iter().any(|(name, _)| name == CONTENT_ENCODING);
        let (body, compressed) = if encoded { (self.body, false) } else { compress(self.body, request) };
        let mut response = Response::new(body);
        if self.is_endless {
            response.extensions_mut().insert(Endless);
        }
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if status != StatusCode::NO_CONTENT && !self.content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        for warning in warnings {
            let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.append(WARNING, value);
            }
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Reply {
        let mut reply = Reply::json(failure.code.as_u16(), &failure.to_status());
        if let Some(seconds) = failure.retry_after {
            reply.headers.push((RETRY_AFTER, HeaderValue::from(seconds)));
        }
        reply
    }
}

/// The content type of a watch. There are no streams in YAML.
pub fn watch_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    }
}

/// A document in the representation the client asked for.
pub fn reply(call: &Call<'_>, status: u16, value: &Value) -> Outcome<Reply> {
    match call.accepted.encoding {
        Encoding::Json => Ok(Reply::json(status, value)),
        Encoding::Protobuf => {
            let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
            match protobuf::encode_response(text("apiVersion"), text("kind"), value) {
                Some(bytes) => Ok(Reply::full(status, bytes, "application/vnd.kubernetes.protobuf")),
                None => Ok(Reply::json(status, value)),
            }
        }
        Encoding::Yaml => Ok(Reply::full(status, to_yaml(value)?, "application/yaml")),
    }
}

/// YAML as Kubernetes' Go library writes it.
pub fn to_yaml(value: &Value) -> Outcome<String> {
    serde_saphyr::to_string(value).map_err(|e| Failure::internal(format!("writing YAML: {e}")))
}

/// Whether the client takes compressed bodies.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepts = request.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    accepts.split(',').any(|word| word.split(';').next().is_some_and(|w| w.trim() == "gzip"))
}

fn compress(body: Body, request: &HeaderMap) -> (Body, bool) {
    if !accepts_gzip(request) {
        return (body, false);
    }
    let whole = match body {
        Body::Full(bytes) => bytes,
        Body::List(mut list) if list.len() >= GZIP_LIST_FROM => {
            let mut out = Vec::new();
            while let Some(chunk) = list.next_chunk() {
                out.extend_from_slice(&chunk);
            }
            out.into()
        }
        other => return (other, false),
    };
    if whole.len() < GZIP_FROM {
        return (Body::Full(whole), false);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(whole.len() / 4), Compression::fast());
    match encoder.write_all(&whole).and_then(|()| encoder.finish()) {
        Ok(bytes) => (Body::Full(bytes.into()), true),
        Err(_) => (Body::Full(whole), false),
    }
}
