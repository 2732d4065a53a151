//! The health check of gRPC services, `grpc.health.v1.Health/Check`.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::check::Driver;

const SERVING: u8 = 1;

/// Asks a service whether it serves.
pub async fn check(ip: &str, port: u16, service: &str) -> Result<(), String> {
    let stream = TcpStream::connect((ip, port)).await.map_err(|e| format!("dial tcp {ip}:{port}: {e}"))?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
    let _driver = Driver(tokio::spawn(connection).abort_handle());
    let request = Request::post(format!("http://{ip}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(message(service)))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let body = Limited::new(response.into_body(), 64 * 1024).collect().await.map_err(|e| e.to_string())?;
    let code = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    match (code.as_ref().map(|code| code.as_bytes()), status(&body.to_bytes())) {
        (Some(b"0") | None, Some(SERVING)) => Ok(()),
        (Some(b"0") | None, found) => {
            Err(format!("service unhealthy (responded with status {})", found.unwrap_or(0)))
        }
        (Some(code), _) => {
            Err(format!("the health check failed with code {}", String::from_utf8_lossy(code)))
        }
    }
}

/// A length-prefixed `HealthCheckRequest`.
fn message(service: &str) -> Bytes {
    let mut inner = BytesMut::new();
    if let Ok(length) = u8::try_from(service.len())
        && length > 0
        && length < 128
    {
        inner.put_slice(&[0x0a, length]);
        inner.put_slice(service.as_bytes());
    }
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(inner.len()).unwrap_or(0));
    out.put_slice(&inner);
    out.freeze()
}

/// The first field of a length-prefixed `HealthCheckResponse`.
fn status(body: &[u8]) -> Option<u8> {
    match body.get(5..)? {
        [0x08, status, ..] => Some(*status),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_grpc_has_them() {
        assert_eq!(&message("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(status(&[0, 0, 0, 0, 2, 8, 1]), Some(SERVING));
        assert_eq!(status(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(status(&[0]), None);
    }
}
