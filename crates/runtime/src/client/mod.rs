//! A client for the cluster: found by itself, limited, traced, and with every write on record.

mod infer;
mod limit;
mod token;
mod unread;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tracing::Instrument as _;

pub use infer::{Error, Places, infer, infer_from};
pub use limit::Limiter;
pub use unread::send_unread;
pub use writes::{Cause, because, cause};

use token::TokenFile;

/// What is done with requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sent with every request.
    pub user_agent: String,
    /// Requests per second and how many may come at once; None leaves it to the server, which has its own fairness.
    pub limit: Option<(f64, u32)>,
    /// How long the server may take to begin its answer, watches included.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            user_agent: concat!("shoal/", env!("CARGO_PKG_VERSION")).to_owned(),
            limit: None,
            timeout: Duration::from_secs(60),
        }
    }
}

/// No answer came in time.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not begin to answer within {0:?}")]
pub struct TimedOut(pub Duration);

/// The same client, whose requests are limited, timed, traced and, when they write, audited.
///
/// The audit and the trace see the [`Cause`] and the span of the task that waits for the answer.
pub fn instrumented(client: Client, options: &Options) -> Client {
    authorized(client, None, options)
}

/// The same, whose requests carry the token of a file.
fn authorized(client: Client, token: Option<TokenFile>, options: &Options) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let limiter = options.limit.map(|(rate, burst)| Limiter::new(rate, burst));
    let way = Arc::new(Way { client, token, limiter, timeout: options.timeout });
    let service = tower::service_fn(move |request: Request<Body>| {
        let way = way.clone();
        // Lazy: this runs in the task that asks, where its cause and span are.
        async move {
            let span = tracing::trace_span!(
                "api_call",
                otel.kind = "client",
                method = request.method().as_str(),
                path = request.uri().path(),
                status = tracing::field::Empty,
            );
            way.send(request).instrument(span).await
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// What a request passes until it is with the server.
struct Way {
    client: Client,
    token: Option<TokenFile>,
    limiter: Option<Limiter>,
    timeout: Duration,
}

impl Way {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        if let Some(limiter) = &self.limiter {
            limiter.acquire().await;
        }
        crate::trace::inject(request.headers_mut());
        if let Some(token) = &self.token {
            token.authorize(request.headers_mut());
        }
        let record = writes::begin(request.method(), request.uri())?;
        let result = match tokio::time::timeout(self.timeout, self.client.send(request)).await {
            Ok(result) => result.map_err(tower::BoxError::from),
            Err(_) => Err(TimedOut(self.timeout).into()),
        };
        if let Ok(response) = &result {
            tracing::Span::current().record("status", response.status().as_u16());
            if let Some(token) = &self.token {
                token.answered(response.status());
            }
        }
        if let Some(record) = record {
            record.end(&result);
        }
        result
    }
}
