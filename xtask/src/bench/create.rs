//! Writes: many workers at once, or one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::Full;
use hyper::{Method, Request};

use super::bodies::Template;
use super::client::{Target, succeed};
use super::process::{Reading, Usage};
use super::report::latencies;

/// What a run of creates showed.
pub struct Creates {
    /// Per second.
    pub rate: f64,
    /// From before the request to the end of the answer.
    pub latency: Histogram<u64>,
    /// CPU meanwhile.
    pub usage: Usage,
}

/// What is sent for a number.
pub type Order = Arc<dyn Fn(u64) -> Result<Request<Full<Bytes>>> + Send + Sync>;

/// Creates `count` objects with `workers` tasks that share `connections` HTTP/2 connections. Any refusal is an error.
pub async fn parallel(
    target: &Arc<Target>,
    pid: u32,
    clients: (usize, usize),
    path: &str,
    template: &Template,
    count: u64,
) -> Result<Creates> {
    let (to, path, template) = (Arc::clone(target), path.to_owned(), template.clone());
    let order = Arc::new(move |number| to.request(Method::POST, &path, template.body(number)));
    send_all(target, pid, clients, count, order).await
}

/// Sends `count` requests with `workers` tasks that share `connections` HTTP/2 connections. Any refusal is an error.
pub async fn send_all(
    target: &Arc<Target>,
    pid: u32,
    (workers, connections): (usize, usize),
    count: u64,
    order: Order,
) -> Result<Creates> {
    let mut shared = Vec::new();
    for _ in 0..connections.max(1) {
        shared.push(target.h2().await?);
    }
    let next = Arc::new(AtomicU64::new(0));
    let began = Reading::now(pid)?;
    let mut tasks = Vec::new();
    for worker in 0..workers {
        let mut connection = shared[worker % shared.len()].clone();
        let (order, next) = (Arc::clone(&order), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            let mut latency = latencies()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(latency);
                }
                let request = order(number)?;
                let sent = Instant::now();
                succeed(&mut connection, request).await?;
                latency.saturating_record(nanoseconds(sent));
            }
        }));
    }
    let mut latency = latencies()?;
    for task in tasks {
        latency.add(task.await??)?;
    }
    let usage = began.until_now()?;
    Ok(Creates { rate: count as f64 / usage.elapsed.as_secs_f64(), latency, usage })
}

/// Creates `count` objects one after the other on one connection.
pub async fn sequential(
    target: &Target,
    pid: u32,
    path: &str,
    template: &Template,
    count: u64,
) -> Result<Creates> {
    let mut connection = target.h2().await?;
    let mut latency = latencies()?;
    let began = Reading::now(pid)?;
    for number in 0..count {
        let body = template.body(number);
        let sent = Instant::now();
        target.create_unread(&mut connection, path, body).await?;
        latency.saturating_record(nanoseconds(sent));
    }
    let usage = began.until_now()?;
    Ok(Creates { rate: count as f64 / usage.elapsed.as_secs_f64(), latency, usage })
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
