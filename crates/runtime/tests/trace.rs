//! Traces over OTLP: from an event to the API calls it caused, in one trace.

#![cfg(feature = "otel")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use shoal_runtime::config::{Config, LogFormat, Logging};
use shoal_runtime::trace::otlp;
use shoal_runtime::{Action, Context, Controller, Manager, Result, logging};
use shoal_testkit::{Cluster, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The fields of a protobuf message that have a length.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    let mut found = Vec::new();
    while let Some(tag) = varint(&mut bytes) {
        let length = match tag & 7 {
            0 => {
                varint(&mut bytes).unwrap();
                continue;
            }
            1 => 8,
            5 => 4,
            _ => varint(&mut bytes).unwrap() as usize,
        };
        let (field, rest) = bytes.split_at(length);
        bytes = rest;
        found.push((tag >> 3, field.to_vec()));
    }
    found
}

fn inner(bytes: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(bytes).into_iter().filter(|(field, _)| *field == number).map(|(_, value)| value).collect()
}

/// A collector that takes one batch per connection.
async fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let received = bodies.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            let body = loop {
                let mut part = [0; 4096];
                let count = stream.read(&mut part).await.unwrap();
                bytes.extend_from_slice(&part[..count]);
                let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let header = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                assert!(header.starts_with("post /v1/traces http/1.1"), "{header}");
                let length = header.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if bytes.len() >= end + 4 + length.trim().parse::<usize>().unwrap() {
                    break bytes[end + 4..].to_vec();
                }
            };
            received.lock().extend(body);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    });
    (address, bodies)
}

/// A Secret for each ConfigMap.
async fn reconcile(context: Context<ConfigMap>) -> Result<Action> {
    let Some(map) = context.object() else { return Ok(Action::done()) };
    let secret = json!({"metadata": {"name": map.name_any(), "namespace": map.namespace()}});
    context.writer().apply::<Secret>(&serde_json::from_value(secret).unwrap(), None).await?;
    Ok(Action::done())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_its_reconcile_and_its_api_calls_arrive_as_one_trace() {
    let (address, bodies) = collector().await;
    let (layer, exporter) = otlp(&address, "test").unwrap();
    let logging = Logging { level: "error".to_owned(), format: LogFormat::Json };
    let (subscriber, _level) =
        logging::subscriber(&logging, shoal_objects::Clock::system(), std::io::sink, vec![layer]).unwrap();
    // Controllers work in tasks of their own, on any thread.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let cluster = Cluster::start().await;
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut manager = Manager::builder("web")
        .client(noting_traces(cluster.client(), sent.clone()))
        .config(Config::default())
        .embedded()
        .build()
        .await
        .unwrap();
    manager.add(Controller::of::<ConfigMap>("web").in_namespace("default").reconcile(reconcile));
    let stopper = manager.stopper();
    let running = tokio::spawn(manager.run());
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    eventually("a Secret", || async { secrets.get_opt("a").await.unwrap() }).await;
    stopper.stop();
    running.await.unwrap().unwrap();
    exporter.shutdown().await;

    let body = bodies.lock().clone();
    let spans: Vec<Vec<u8>> = inner(&body, 1)
        .iter()
        .flat_map(|resource| inner(resource, 2))
        .flat_map(|scope| inner(&scope, 2))
        .collect();
    let get = |span: &[u8], number: u64| inner(span, number).pop().unwrap_or_default();
    let named = |name: &str, parent: &[u8]| -> Vec<u8> {
        let found = spans.iter().find(|span| get(span, 5) == name.as_bytes() && get(span, 4) == parent);
        found.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let event = named("event", b"");
    let (queue, reconcile) = (named("queue", &get(&event, 2)), named("reconcile", &get(&event, 2)));
    let call = named("api_call", &get(&reconcile, 2));
    for span in [&queue, &reconcile, &call] {
        assert_eq!(get(span, 1), get(&event, 1), "one trace");
    }
    // The server can go on with it.
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let header = format!("PATCH 00-{}-{}-01", hex(&get(&event, 1)), hex(&get(&call, 2)));
    assert!(sent.lock().contains(&header), "{header} not in {:?}", sent.lock());
}

/// The same client; methods and traces of its requests are noted.
fn noting_traces(client: Client, sent: Arc<Mutex<Vec<String>>>) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let trace = request.headers().get("traceparent").map(|value| value.to_str().unwrap().to_owned());
        sent.lock().push(format!("{} {}", request.method(), trace.unwrap_or_default()));
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_told() {
    for address in ["https://collector:4318", "collector", "http://", "http://a b"] {
        let error = otlp(address, "test").map(|_| ()).unwrap_err();
        assert!(error.starts_with("the collector's address"), "{error}");
    }
}
