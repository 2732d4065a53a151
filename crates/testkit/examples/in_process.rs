//! Measures the cluster in process, for `cargo xtask bench apiserver`: prints `name value` lines.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use shoal_testkit::{Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STARTS: usize = 51;
const EVENTS: usize = 2_000;
const WATCHERS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        let cluster = Cluster::start().await;
        starts.push(began.elapsed());
        drop(cluster);
    }
    starts.sort_unstable();
    println!("start_ms {:.3}", starts[STARTS / 2].as_secs_f64() * 1e3);
    let (one, many) = (cpu_of_events(1).await, cpu_of_events(WATCHERS).await);
    let further = (EVENTS * (WATCHERS - 1)) as f64;
    println!("watcher_us {:.3}", (many.saturating_sub(one)).as_secs_f64() * 1e6 / further);
}

/// CPU of this process while so many watchers see all events.
async fn cpu_of_events(watchers: usize) -> Duration {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    let mut readers = Vec::new();
    for _ in 0..watchers {
        let watch = http.open("GET", &format!("{MAPS}?watch=1"), &[], Bytes::new()).await;
        readers.push(tokio::spawn(async move {
            let mut chunks = watch.into_body().into_data_stream();
            let mut seen = 0;
            while seen < EVENTS
                && let Some(Ok(chunk)) = chunks.next().await
            {
                seen += chunk.iter().filter(|byte| **byte == b'\n').count();
            }
        }));
    }
    let before = cpu();
    write(&http).await;
    for reader in readers {
        // A reader that panicked has no more events to wait for.
        let _ = reader.await;
    }
    cpu() - before
}

async fn write(http: &Http) {
    let text = "x".repeat(900);
    for i in 0..EVENTS {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"k": text}});
        http.post(MAPS, &map).await;
        // Every event is delivered by itself, as under a steady load.
        tokio::task::yield_now().await;
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}
