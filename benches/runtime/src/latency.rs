//! From a line of a watch to the start of its reconcile: informer, trigger, queue and worker together.
//!
//! A client without a server behind it tells the lines, so that only the framework is measured.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use hdrhistogram::Histogram;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use shoal_runtime::config::Config;
use shoal_runtime::{Action, Context, Controller, Manager};
use tokio::runtime::Builder;

use bench_rows::{Goal, Row};

/// Events of one second.
const RATE: u32 = 5_000;

/// Both rows.
pub fn run(quick: bool) -> Result<()> {
    let latencies = measure(if quick { 5_000 } else { 50_000 })?;
    for (what, quantile, goal) in [
        ("controller: event to reconcile started, 5,000/s, p50", 0.5, 0.3),
        ("controller: event to reconcile started, 5,000/s, p99", 0.99, 1.0),
    ] {
        Row {
            what,
            peer: String::new(),
            goal: Goal::AtMost(goal),
            measured: latencies.value_at_quantile(quantile) as f64 / 1e6,
            unit: "ms",
            any_size: true,
        }
        .print()?;
    }
    Ok(())
}

/// Where the lines of the watch go, once there is one.
type Lines = Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>>;

fn measure(count: u32) -> Result<Histogram<u64>> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lines = Lines::default();
        let mut manager = Manager::builder("bench")
            .client(client(&lines))
            .config(Config::default())
            .embedded()
            .build()
            .await?;
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let start = Instant::now();
        manager.add(Controller::of::<ConfigMap>("bench").reconcile(move |context: Context<ConfigMap>| {
            let now = start.elapsed().as_nanos() as u64;
            let told = context.object().and_then(|map| map.data.as_ref()?.get("t")?.parse::<u64>().ok());
            let _ = began.send(now.saturating_sub(told.unwrap_or_default()));
            std::future::ready(Ok(Action::done()))
        }));
        let stopper = manager.stopper();
        let running = tokio::spawn(manager.run());
        let sender = loop {
            if let Some(sender) = lines.lock().unwrap_or_else(PoisonError::into_inner).take() {
                break sender;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        // A thread of its own: tokio's timers are a millisecond apart.
        let producer = std::thread::spawn(move || {
            let first = Instant::now();
            for n in 0..count {
                let due = first + Duration::from_secs(1) / RATE * n;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let line = event(n, start.elapsed());
                if sender.unbounded_send(line).is_err() {
                    return;
                }
            }
            // The watch stays open until all were reconciled.
            std::thread::sleep(Duration::from_secs(1));
        });
        let mut latencies = Histogram::new(3)?;
        for _ in 0..count {
            latencies.record(begun.recv().await.context("the controller has ended")?)?;
        }
        stopper.stop();
        running.await??;
        drop(producer);
        Ok(latencies)
    })
}

/// An object of 1 KB that says when it was told.
fn event(n: u32, told: Duration) -> Bytes {
    let (version, text) = (2 + n, "x".repeat(700));
    Bytes::from(format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"m{n}\",\
         \"namespace\":\"team-{}\",\"uid\":\"{n:08x}-0000-4000-8000-000000000000\",\"resourceVersion\":\"{version}\",\
         \"creationTimestamp\":\"2026-10-01T00:00:00Z\",\"labels\":{{\"app\":\"web\"}}}},\
         \"data\":{{\"t\":\"{}\",\"text\":\"{text}\"}}}}}}\n",
        n % 50,
        told.as_nanos()
    ))
}

/// A server that has nothing yet and then tells what it is given.
fn client(lines: &Lines) -> Client {
    let lines = lines.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body: UnsyncBoxBody<Bytes, Infallible> = if query.contains("sendInitialEvents") {
            let refusal = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"no streamed lists","code":422}"#;
            Full::new(Bytes::from_static(refusal.as_bytes())).boxed_unsync()
        } else if query.contains("watch=true") {
            let (sender, told) = mpsc::unbounded();
            *lines.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            StreamBody::new(told.map(|line| Ok(Frame::data(line)))).boxed_unsync()
        } else {
            let empty =
                r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
            Full::new(Bytes::from_static(empty.as_bytes())).boxed_unsync()
        };
        let status = if query.contains("sendInitialEvents") { 422 } else { 200 };
        let response =
            Response::builder().status(status).header("content-type", "application/json").body(body);
        std::future::ready(response)
    });
    Client::new(service, "default")
}
