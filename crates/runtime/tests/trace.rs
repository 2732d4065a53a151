//! Traces over OTLP: from an event to the API calls it caused, in one trace.

#![cfg(feature = "otel")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use parking_lot::Mutex;
use shoal_runtime::client::{Options, instrumented};
use shoal_runtime::config::{LogFormat, Logging};
use shoal_runtime::trace::{Journeys, otlp};
use shoal_runtime::{ObjectKey, logging};
use shoal_testkit::Cluster;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber as _;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_its_reconcile_and_its_api_calls_arrive_as_one_trace() {
    let (address, bodies) = collector().await;
    let (layer, exporter) = otlp(&address, "test").unwrap();
    let logging = Logging { level: "error".to_owned(), format: LogFormat::Json };
    let (subscriber, _level) =
        logging::subscriber(&logging, shoal_objects::Clock::system(), std::io::sink, vec![layer]).unwrap();
    let cluster = Cluster::start().await;
    let client = instrumented(cluster.client(), &Options::default());
    async {
        let journeys: Journeys<ObjectKey> = Journeys::default();
        let key = ObjectKey::new("default", "a");
        journeys.event("web", &key, "added");
        let span = journeys.reconcile("web", &key);
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.list(&ListParams::default()).instrument(span).await.unwrap();
    }
    .with_subscriber(subscriber)
    .await;
    exporter.shutdown().await;
    let body = bodies.lock().clone();
    let spans: Vec<Vec<u8>> = inner(&body, 1)
        .iter()
        .flat_map(|resource| inner(resource, 2))
        .flat_map(|scope| inner(&scope, 2))
        .collect();
    let get = |span: &[u8], number: u64| inner(span, number).pop().unwrap_or_default();
    let named = |name: &str| -> Vec<u8> {
        spans
            .iter()
            .find(|span| get(span, 5) == name.as_bytes())
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    };
    let (event, queue, reconcile, call) =
        (named("event"), named("queue"), named("reconcile"), named("api_call"));
    for span in [&queue, &reconcile, &call] {
        assert_eq!(get(span, 1), get(&event, 1), "one trace");
    }
    assert_eq!(get(&queue, 4), get(&event, 2));
    assert_eq!(get(&reconcile, 4), get(&event, 2));
    assert_eq!(get(&call, 4), get(&reconcile, 2));
    assert!(get(&event, 4).is_empty());
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_told() {
    for address in ["https://collector:4318", "collector", "http://", "http://a b"] {
        let error = otlp(address, "test").map(|_| ()).unwrap_err();
        assert!(error.starts_with("the collector's address"), "{error}");
    }
}
