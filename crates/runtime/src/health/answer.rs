//! From a request to its answer, without sockets.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::{Check, Health, profile};
use crate::metrics::CONTENT_TYPE;

/// A caller: where the request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// This machine.
    Local,
    /// Anywhere else.
    Remote,
}

pub(super) async fn answer(
    health: &Health,
    caller: Caller,
    request: Request<Bytes>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if path.starts_with("/debug/") && caller == Caller::Remote {
        return text(
            StatusCode::FORBIDDEN,
            "answered to callers on this machine only: use kubectl port-forward\n",
        );
    }
    if path == "/debug/loglevel" && *request.method() == Method::PUT {
        return set_level(health, request.body());
    }
    if !reading {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
    }
    match path {
        "/healthz" | "/livez" => checks(&health.alive_checks(), verbose(query)),
        "/readyz" => checks(&health.ready_checks(), verbose(query)),
        "/debug/inspect" => json(&health.inspection()),
        "/debug/loglevel" => match &*health.0.level.read() {
            Some(level) => text(StatusCode::OK, &format!("{}\n", level.get())),
            None => no_level(),
        },
        "/debug/pprof/profile" | "/debug/pprof/heap" if !health.0.profiling.load(Ordering::Relaxed) => {
            text(StatusCode::NOT_FOUND, "profiles are off: switch them on with Builder::profiling(true)\n")
        }
        "/debug/pprof/profile" => profile::cpu(query).await,
        "/debug/pprof/heap" => {
            let dump = health.0.heap.read().clone();
            profile::heap(dump).await
        }
        _ => match &*health.0.metrics.read() {
            Some((served, metrics)) if served == path => {
                with_type(StatusCode::OK, CONTENT_TYPE, metrics.text())
            }
            _ => text(StatusCode::NOT_FOUND, "not found: try /healthz, /readyz, /metrics, /debug/inspect\n"),
        },
    }
}

fn checks(checks: &[Check], verbose: bool) -> Response<Full<Bytes>> {
    let failed = checks.iter().filter(|check| check.problem.is_some()).count();
    let status = if failed == 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if failed == 0 && !verbose {
        return text(status, "ok");
    }
    let lines: String = checks
        .iter()
        .filter(|check| verbose || check.problem.is_some())
        .map(|check| match &check.problem {
            None => format!("[+]{} ok\n", check.name),
            Some(problem) => format!("[-]{} failed: {problem}\n", check.name),
        })
        .collect();
    let end = if failed == 0 { "check passed\n" } else { "check failed\n" };
    text(status, &format!("{lines}{end}"))
}

fn set_level(health: &Health, body: &[u8]) -> Response<Full<Bytes>> {
    let level = health.0.level.read();
    let Some(level) = &*level else { return no_level() };
    let Ok(directives) = std::str::from_utf8(body) else {
        return text(StatusCode::BAD_REQUEST, "the body must be a level such as debug\n");
    };
    let before = level.get();
    match level.set(directives.trim()) {
        Ok(()) => {
            tracing::info!(before, after = level.get(), "log level changed");
            text(StatusCode::OK, &format!("{}\n", level.get()))
        }
        Err(message) => text(StatusCode::BAD_REQUEST, &format!("{message}\n")),
    }
}

fn no_level() -> Response<Full<Bytes>> {
    text(
        StatusCode::NOT_IMPLEMENTED,
        "logging was not set up by shoal_runtime::logging: its level cannot be changed\n",
    )
}

fn verbose(query: &str) -> bool {
    query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="))
}

fn json(value: &serde_json::Value) -> Response<Full<Bytes>> {
    with_type(StatusCode::OK, "application/json", format!("{value:#}\n"))
}

pub(super) fn text(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", message.to_owned())
}

pub(super) fn with_type(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}
