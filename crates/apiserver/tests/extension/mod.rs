//! An extension API server on loopback, with TLS, that serves `ext.test/v1` and misbehaves where asked to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

type AnyBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// The program, as its tests see it.
pub struct Extension {
    pub address: SocketAddr,
    /// Its certificate in base64.
    pub bundle: String,
    pub state: Arc<State>,
}

/// What it does and has seen.
#[derive(Default)]
pub struct State {
    /// Headers of the last request to an object, and its method.
    pub seen: Mutex<BTreeMap<String, Vec<String>>>,
    /// Told when `/slow` is asked.
    pub asked: Notify,
    /// Its discovery answers 500.
    pub is_broken: std::sync::atomic::AtomicBool,
    watch: Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>,
}

impl State {
    /// The stream of the next watch.
    pub fn watch(&self) -> mpsc::UnboundedSender<Bytes> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.watch.lock() = Some(receiver);
        sender
    }
}

impl Extension {
    /// Trusts client certificates of this authority only.
    pub async fn start(client_ca_pem: &str) -> Extension {
        let (tls, bundle) = tls(client_ca_pem);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, state) = (TlsAcceptor::from(tls.clone()), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(state.clone(), request));
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        Extension { address, bundle, state }
    }

    /// One that speaks TLS but no HTTP.
    pub async fn babbling(client_ca_pem: &str) -> (SocketAddr, String) {
        let (tls, bundle) = tls(client_ca_pem);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = TlsAcceptor::from(tls.clone()).accept(stream).await else { continue };
                let _ = stream.write_all(b"\x00\xff garbage\r\n\r\n").await;
                let _ = stream.shutdown().await;
            }
        });
        (address, bundle)
    }

    /// The APIService for it behind the Service `default/ext`.
    pub fn api_service(&self) -> Value {
        json!({
            "metadata": {"name": "v1.ext.test"},
            "spec": {
                "group": "ext.test", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
                "caBundle": self.bundle,
                "service": {"namespace": "default", "name": "ext", "port": self.address.port()},
            },
        })
    }
}

fn tls(client_ca_pem: &str) -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(vec!["ext.default.svc".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(client_ca_pem.as_bytes()).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), BASE64_STANDARD.encode(made.cert.pem()))
}

async fn answer(state: Arc<State>, mut request: Request<Incoming>) -> Result<Response<AnyBody>, Infallible> {
    let json = |value: Value| {
        let response = Response::builder().header("content-type", "application/json");
        response.body(Full::from(value.to_string()).boxed()).unwrap()
    };
    let code = |code: u16| Response::builder().status(code).body(Full::default().boxed()).unwrap();
    let path = request.uri().path().to_owned();
    Ok(match path.as_str() {
        "/apis/ext.test/v1" if state.is_broken.load(std::sync::atomic::Ordering::Relaxed) => code(500),
        "/apis/ext.test/v1" => json(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ext.test/v1", "resources": [
                {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                 "shortNames": ["fl"], "verbs": ["get", "list", "watch"]},
                {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            ],
        })),
        "/openapi/v3" => json(json!({"paths": {
            "apis/ext.test/v1": {"serverRelativeURL": "/openapi/v3/apis/ext.test/v1?hash=ABC"},
            "apis/apps/v1": {"serverRelativeURL": "/evil"},
        }})),
        "/openapi/v3/apis/ext.test/v1" => json(json!({"openapi": "3.0.0"})),
        "/apis/ext.test/v1/redirects" => {
            Response::builder().status(302).header("location", "/evil").body(Full::default().boxed()).unwrap()
        }
        "/apis/ext.test/v1/slow" => {
            state.asked.notify_one();
            std::future::pending().await
        }
        "/apis/ext.test/v1/cut" => {
            let frames = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"half\":")))]);
            let frames = frames.chain(futures::stream::pending());
            state.asked.notify_one();
            Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
        "/apis/ext.test/v1/echo" => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgrade.await.unwrap());
                let mut word = [0; 4];
                io.read_exact(&mut word).await.unwrap();
                io.write_all(&word).await.unwrap();
                io.shutdown().await.unwrap();
            });
            let response = Response::builder().status(101).header("upgrade", "echo");
            response.header("connection", "upgrade").body(Full::default().boxed()).unwrap()
        }
        _ if request.uri().query().is_some_and(|query| query.contains("watch=true")) => {
            let receiver = state.watch.lock().take().unwrap();
            let frames = futures::stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
            });
            Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
        path if path.starts_with("/apis/ext.test/v1/namespaces/") => {
            let mut seen = BTreeMap::<String, Vec<String>>::new();
            for (name, value) in request.headers() {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                seen.entry(name.to_string()).or_default().push(value);
            }
            seen.insert("path".into(), vec![request.uri().to_string()]);
            *state.seen.lock() = seen;
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            json(json!({"kind": "Flunder", "apiVersion": "ext.test/v1", "sent": sent}))
        }
        _ => code(404),
    })
}
