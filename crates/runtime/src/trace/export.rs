//! Traces for an OpenTelemetry collector, over OTLP in HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

/// How long a collector may take for a batch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Collectors answer with little.
const LONGEST_ANSWER: usize = 1 << 20;

/// Sends spans in the background. Shut it down before the process ends, or the last ones are lost.
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Sends what is left.
    pub async fn shutdown(self) {
        // It waits for its own thread, and that one for tasks of this runtime.
        let _ = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
    }
}

/// A layer for [`logging::init`](crate::logging::init) that sends spans to the collector at `endpoint`, such as
/// `http://localhost:4318`, in the name of `service`.
pub fn otlp(
    endpoint: &str,
    service: &str,
) -> Result<(Box<dyn Layer<Registry> + Send + Sync>, Exporter), String> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let uri: Uri =
        url.parse().map_err(|error| format!("the collector's address {endpoint:?} is wrong: {error}"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(format!(
            "the collector's address {endpoint:?} must begin with http://: use a collector on this host"
        ));
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Collector(Handle::current()))
        .with_endpoint(url)
        .with_timeout(TIMEOUT)
        .build()
        .map_err(|error| format!("traces cannot be sent: {error}"))?;
    let resource =
        Resource::builder_empty().with_attribute(KeyValue::new("service.name", service.to_owned())).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let ours =
        Targets::new().with_target("shoal_runtime", LevelFilter::TRACE).with_default(LevelFilter::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shoal")).with_filter(ours);
    Ok((Box::new(layer), Exporter(provider)))
}

/// Writes the current trace into the header of a request.
pub(super) fn inject(headers: &mut HeaderMap) {
    let context = Span::current().context();
    let span = context.span();
    let span = span.span_context();
    if span.is_valid() {
        let text = format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8());
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert("traceparent", value);
        }
    }
}

/// The way to the collector: a connection per batch. The exporter waits in a thread of its own, so the work is done in
/// a task of the runtime.
struct Collector(Handle);

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sending = self.0.spawn(async move { tokio::time::timeout(TIMEOUT, send(request)).await });
        Box::pin(async move { sending.await?? })
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

async fn send(mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let uri = request.uri().clone();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    if let Some(authority) = uri.authority() {
        request.headers_mut().insert(http::header::HOST, HeaderValue::from_str(authority.as_str())?);
    }
    *request.uri_mut() = uri.path().parse()?;
    let (parts, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(parts, body))
}
