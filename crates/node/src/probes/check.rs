//! One check of a container.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{grpc, tls};
use crate::pod::container::Run;

/// What is checked.
pub enum Check {
    /// A command in the container must exit with 0.
    Exec(Vec<String>),
    /// A page must be there.
    Http(Box<HTTPGetAction>, Box<Container>, String),
    /// Something must listen.
    Tcp(String, IntOrString, Box<Container>),
    /// The service must say that it serves.
    Grpc(String, u16, String),
    /// Nothing.
    Nothing,
}

impl Check {
    /// What a probe checks; `ip` is the pod's.
    pub fn of(probe: &Probe, container: &Container, ip: &str) -> Check {
        if let Some(exec) = &probe.exec {
            return Check::Exec(exec.command.clone().unwrap_or_default());
        }
        if let Some(get) = &probe.http_get {
            return Check::Http(Box::new(get.clone()), Box::new(container.clone()), ip.to_owned());
        }
        if let Some(socket) = &probe.tcp_socket {
            let host = socket.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| ip.to_owned());
            return Check::Tcp(host, socket.port.clone(), Box::new(container.clone()));
        }
        if let Some(grpc) = &probe.grpc {
            let port = u16::try_from(grpc.port).unwrap_or(0);
            return Check::Grpc(ip.to_owned(), port, grpc.service.clone().unwrap_or_default());
        }
        Check::Nothing
    }

    /// Checks; an error says why it failed.
    pub async fn run(&self, run: &Run, timeout: Duration) -> Result<(), String> {
        match self {
            Check::Exec(command) => match run.probe(command.clone(), timeout).await {
                Ok((0, _)) => Ok(()),
                Ok((_, output)) => Err(output),
                Err(why) => Err(why),
            },
            Check::Http(get, container, ip) => http_get(get, container, ip, timeout).await,
            Check::Tcp(host, port, container) => tcp(host, port, container, timeout).await,
            Check::Grpc(ip, port, service) => {
                let check = grpc::check(ip, *port, service);
                tokio::time::timeout(timeout, check).await.unwrap_or_else(|_| Err(slow(timeout)))
            }
            Check::Nothing => Ok(()),
        }
    }
}

fn slow(timeout: Duration) -> String {
    format!("no answer within {}s", timeout.as_secs())
}

/// A port by number, or by its name in the container.
pub fn port_number(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let ports = container.ports.as_deref().unwrap_or_default();
            let named =
                ports.iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("there is no port {port:?}"))
}

pub async fn tcp(
    host: &str,
    port: &IntOrString,
    container: &Container,
    timeout: Duration,
) -> Result<(), String> {
    let port = port_number(port, container)?;
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("dial tcp {host}:{port}: {error}")),
        Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

pub async fn http_get(
    get: &HTTPGetAction,
    container: &Container,
    ip: &str,
    timeout: Duration,
) -> Result<(), String> {
    let port = port_number(&get.port, container)?;
    let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    let path = get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let url = format!("{scheme}://{host}:{port}{path}");
    let exchange = async {
        let stream =
            TcpStream::connect((host, port)).await.map_err(|e| format!("dial tcp {host}:{port}: {e}"))?;
        let mut request = Request::get(&path).header("host", format!("{host}:{port}"));
        request = request.header("user-agent", "kube-probe/1.36").header("accept", "*/*");
        for header in get.http_headers.iter().flatten() {
            request = request.header(header.name.as_str(), header.value.as_str());
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
        match scheme.as_str() {
            "https" => ask(tls::connect(host, stream).await?, request).await,
            _ => ask(stream, request).await,
        }
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(Ok(status)) if (200..400).contains(&status) => Ok(()),
        Ok(Ok(status)) => Err(format!("HTTP probe failed with statuscode: {status}")),
        Ok(Err(why)) => Err(format!("Get {url:?}: {why}")),
        Err(_) => Err(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

/// The status of the answer to a request.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<u16, String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let driver = Driver(tokio::spawn(connection).abort_handle());
    let failed = |e: hyper::Error| match e.is_incomplete_message() || e.is_canceled() {
        true => "EOF".to_owned(),
        false => e.to_string(),
    };
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status().as_u16();
    // Read a little, so that simple servers do not complain of a broken connection.
    let _ = response.into_body().frame().await;
    drop(driver);
    Ok(status)
}

/// Ends the connection of a request that is given up.
pub struct Driver(pub tokio::task::AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
