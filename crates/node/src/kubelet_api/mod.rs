//! The agent's own HTTPS API, which is the kubelet's: logs, exec, attach, port-forward, figures.
//!
//! Only who shows a certificate of the cluster's authority for the group `system:masters` is served: the API server.

mod answer;
mod channels;
mod link;
mod logs;
mod port_forward;
mod spdy;
mod spdy_channels;
mod stats;
mod streams;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shoal_runtime::ObjectKey;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::agent::Node;
use crate::pod::worker::View;
pub(crate) use answer::Query;
use answer::{Answer, text};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Who may ask.
const GROUP: &str = "system:masters";

/// Certificates of the agent, as PEM.
#[derive(Clone)]
pub struct ServerIdentity {
    /// What the agent shows.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
    /// The authority of those who may ask.
    pub client_ca_pem: String,
}

/// Begins to listen on a free port; gives the port and the work.
pub async fn serve(
    node: Arc<Node>,
    identity: &ServerIdentity,
) -> Result<(u16, impl Future<Output = ()> + Send + use<>), String> {
    let acceptor = TlsAcceptor::from(tls(identity)?);
    let listener = TcpListener::bind((node.host_ip.as_str(), 0)).await.map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let work = async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Too many open files, most likely.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (acceptor, node) = (acceptor.clone(), node.clone());
            tokio::spawn(async move {
                let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                    return;
                };
                let allowed = stream.get_ref().1.peer_certificates().is_some_and(is_allowed);
                let service = service_fn(move |request| {
                    let node = node.clone();
                    async move { Ok::<_, std::convert::Infallible>(route(&node, request, allowed).await) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades()
                    .await;
            });
        }
    };
    Ok((port, work))
}

fn tls(identity: &ServerIdentity) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let certificate =
        |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| format!("{e:?}"));
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&identity.client_ca_pem)?).map_err(|e| e.to_string())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| format!("{e:?}"))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate(&identity.certificate_pem)?], key)
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config))
}

/// Whether the certificate, which the authority has signed, is of the right group.
fn is_allowed(chain: &[CertificateDer<'_>]) -> bool {
    let Some(first) = chain.first() else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(first) else { return false };
    certificate.subject().iter_organization().any(|group| group.as_str().is_ok_and(|group| group == GROUP))
}

async fn route(node: &Arc<Node>, request: Request<Incoming>, allowed: bool) -> Response<Answer> {
    if !allowed {
        return text(StatusCode::FORBIDDEN, "Forbidden");
    }
    let path = request.uri().path().to_owned();
    let query = Query::of(request.uri());
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let get = matches!(*request.method(), Method::GET);
    match parts.as_slice() {
        ["healthz"] if get => text(StatusCode::OK, "ok"),
        ["pods" | "runningpods"] if get => stats::pods(node),
        ["stats", "summary"] if get => stats::summary(node),
        ["metrics", "resource"] if get => stats::resource_metrics(node),
        ["containerLogs", namespace, pod, container] if get => match find(node, namespace, pod) {
            Ok(view) => logs::answer(node, &view, container, &query).await,
            Err(missing) => missing,
        },
        ["exec" | "attach", namespace, pod, rest @ ..] => {
            // Some clients name the pod's uid before the container.
            let (Some(container), true) = (rest.last(), rest.len() <= 2) else {
                return text(StatusCode::NOT_FOUND, "404 page not found");
            };
            match find(node, namespace, pod) {
                Ok(view) => streams::answer(&view, parts[0] == "exec", container, &query, request),
                Err(missing) => missing,
            }
        }
        ["portForward", namespace, pod, ..] => match find(node, namespace, pod) {
            Ok(view) => port_forward::answer(&view, request),
            Err(missing) => missing,
        },
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

#[allow(clippy::result_large_err, reason = "the error is the answer")]
fn find(node: &Node, namespace: &str, pod: &str) -> Result<Arc<View>, Response<Answer>> {
    let found = node.pods.lock().get(&ObjectKey::new(namespace, pod)).cloned();
    found.ok_or_else(|| {
        text(StatusCode::NOT_FOUND, &format!("pod {namespace}/{pod} does not exist on this node"))
    })
}
