//! A program outside the server that answers reviews over TLS, as webhooks do.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::Value;
use shoal_apiserver::access::pki::Pki;
use shoal_apiserver::serve::{self, Limits, PeerAddress};
use shoal_objects::Clock;
use tokio::net::TcpListener;

/// What the program does about a review.
#[allow(dead_code, reason = "not every test needs all of them")]
pub enum Reaction {
    /// Answers with this.
    Json(Value),
    /// Answers with bytes that may be anything.
    Bytes(Vec<u8>),
    /// Sends the caller elsewhere.
    Redirect(&'static str),
    /// Never answers.
    Hang,
}

/// The running program.
#[derive(Clone)]
pub struct Program {
    /// Where it listens.
    pub address: SocketAddr,
    /// The authority to trust, as a `caBundle`.
    pub bundle: String,
    /// Paths and reviews so far.
    pub asked: Arc<Mutex<Vec<(String, Value)>>>,
    peers: Arc<Mutex<BTreeSet<SocketAddr>>>,
    react: fn(&str, &Value) -> Reaction,
}

impl Program {
    /// Starts the program; certificates are for its address and these names.
    pub async fn start(names: &[&str], react: fn(&str, &Value) -> Reaction) -> Program {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let pki = Pki::in_memory(&names, Clock::system().now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let program = Program {
            address: listener.local_addr().unwrap(),
            bundle: BASE64_STANDARD.encode(pki.ca_pem()),
            asked: Arc::default(),
            peers: Arc::default(),
            react,
        };
        let tls = serve::server_config(&pki).unwrap();
        tokio::spawn(serve::serve(listener, tls, program.clone(), Limits::default(), std::future::pending()));
        program
    }

    /// How many connections were used so far.
    #[allow(dead_code, reason = "not every test counts")]
    pub fn connections(&self) -> usize {
        self.peers.lock().len()
    }
}

impl tower_service::Service<Request<Incoming>> for Program {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let program = self.clone();
        Box::pin(async move {
            if let Some(PeerAddress(peer)) = request.extensions().get::<PeerAddress>() {
                program.peers.lock().insert(*peer);
            }
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            program.asked.lock().push((path.clone(), review.clone()));
            let bytes = match (program.react)(&path, &review) {
                Reaction::Json(value) => value.to_string().into_bytes(),
                Reaction::Bytes(bytes) => bytes,
                Reaction::Redirect(to) => {
                    let moved = Response::builder().status(302).header("location", to);
                    return Ok(moved.body(Full::default()).unwrap());
                }
                Reaction::Hang => std::future::pending().await,
            };
            Ok(Response::new(Full::new(Bytes::from(bytes))))
        })
    }
}
