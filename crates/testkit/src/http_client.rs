//! Plain HTTP to a cluster, for tests that look at the wire.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use shoal_apiserver::access::UserInfo;
use shoal_apiserver::{Body, Server};

use crate::events::Events;

/// Sends requests as one user.
#[derive(Clone)]
pub struct Http {
    server: Server,
    user: UserInfo,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Http {
    pub(crate) fn new(server: Server, user: UserInfo) -> Http {
        Http { server, user }
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = self.open(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            // Only what others say through the server can end early.
            Err(_) => Bytes::new(),
        };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Sends a request and hands out the answer with its body unread, for watches.
    ///
    /// # Panics
    /// When method, path or headers cannot be written in HTTP.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path).extension(self.user.clone());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        #[allow(clippy::panic, reason = "a mistake in the test itself")]
        let request = match request.body(Full::new(body.into())) {
            Ok(request) => request,
            Err(error) => panic!("{method} {path}: {error}"),
        };
        self.server.handle(request).await
    }

    /// Opens a watch.
    ///
    /// # Panics
    /// When the server does not answer with 200.
    pub async fn watch(&self, path: &str) -> Events {
        let response = self.open("GET", path, &[], Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Events::new(response.into_body())
    }

    /// GET
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], Bytes::new()).await
    }

    /// POST of JSON
    pub async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], object.to_string()).await
    }

    /// PUT of JSON
    pub async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], object.to_string()).await
    }

    /// PATCH with a merge patch
    pub async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.send("PATCH", path, &[("content-type", "application/merge-patch+json")], patch.to_string()).await
    }

    /// DELETE
    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], Bytes::new()).await
    }
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
