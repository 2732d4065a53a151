//! Create → watch event, with many watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::bodies::{NumberFinder, Template};
use super::client::{Target, send};
use super::process::{Reading, Usage};
use super::report::latencies;

/// How long after the last create an event may still come.
const PATIENCE: Duration = Duration::from_secs(15);

/// How the watchers connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// All on one HTTP/2 connection.
    OneH2,
    /// Each on its own HTTP/1.1 connection.
    ManyH1,
}

/// What to do.
pub struct Plan<'a> {
    /// Folder of the objects, `/api/v1/namespaces/X/configmaps`; must be empty.
    pub path: &'a str,
    /// How the watchers connect.
    pub transport: Transport,
    /// How many.
    pub watchers: usize,
    /// Creates per second.
    pub rate: u32,
    /// Creates in all.
    pub events: usize,
}

/// What a run showed.
pub struct Watched {
    /// From before the create was sent to the event's arrival, over all watchers.
    pub latency: Histogram<u64>,
    /// Events that did not come, over all watchers.
    pub lost: usize,
    /// CPU meanwhile.
    pub usage: Usage,
}

/// When each object's create was sent, in nanoseconds since `base`.
struct Sent {
    base: Instant,
    at: Vec<AtomicU64>,
}

impl Sent {
    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Opens the watchers, creates at the given rate, and waits until every watcher has seen every object.
pub async fn run(target: &Arc<Target>, pid: u32, plan: &Plan<'_>) -> Result<Watched> {
    // Object 0 only shows that every watcher is there; it is not measured.
    let total = plan.events + 1;
    let sent = Arc::new(Sent { base: Instant::now(), at: (0..total).map(|_| AtomicU64::new(0)).collect() });
    let (first_seen, mut first_seen_by) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    let mut shared = target.h2().await?;
    for _ in 0..plan.watchers {
        let path = format!("{}?watch=true", plan.path);
        let response = match plan.transport {
            Transport::OneH2 => send(&mut shared, target.request(Method::GET, &path, Bytes::new())?).await?,
            Transport::ManyH1 => target.h1().await?.send_request(target.request_h1(&path)?).await?,
        };
        if response.status() != StatusCode::OK {
            bail!("GET {path}: {}", response.status());
        }
        tasks.push(tokio::spawn(follow(response.into_body(), Arc::clone(&sent), first_seen.clone())));
    }
    let template = Template::config_map("w");
    let mut creator = target.h2().await?;
    target.create_unread(&mut creator, plan.path, template.body(0)).await?;
    for _ in 0..plan.watchers {
        tokio::time::timeout(PATIENCE, first_seen_by.recv()).await.context("a watcher saw nothing")?;
    }

    let began = Reading::now(pid)?;
    let mut creates = Vec::with_capacity(plan.events);
    let mut clock = tokio::time::interval(Duration::from_secs(1) / plan.rate);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 1..total {
        clock.tick().await;
        let (target, mut creator, path) = (Arc::clone(target), creator.clone(), plan.path.to_owned());
        let body = template.body(number as u64);
        sent.at[number].store(sent.now(), Ordering::Relaxed);
        creates.push(tokio::spawn(async move { target.create_unread(&mut creator, &path, body).await }));
    }
    for create in creates {
        create.await??;
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut latency = latencies()?;
    let mut lost = 0;
    let stops: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
    for (task, stop) in tasks.into_iter().zip(stops) {
        match tokio::time::timeout_at(deadline, task).await {
            Ok(seen) => {
                let seen = seen??;
                lost += seen.missing;
                latency.add(seen.latency)?;
            }
            Err(_) => {
                stop.abort();
                lost += plan.events;
            }
        }
    }
    Ok(Watched { latency, lost, usage: began.until_now()? })
}

/// What one watcher saw.
struct Seen {
    latency: Histogram<u64>,
    missing: usize,
}

/// Reads events until all objects were seen once or the stream ends.
async fn follow(mut body: Incoming, sent: Arc<Sent>, first_seen: mpsc::UnboundedSender<()>) -> Result<Seen> {
    let mut latency = latencies()?;
    let mut seen = vec![false; sent.at.len()];
    let mut missing = seen.len();
    let mut finder = NumberFinder::new("w");
    while missing > 0 {
        let Some(frame) = body.frame().await else { break };
        let frame = frame?;
        let now = sent.now();
        finder.push(frame.data_ref().map_or(&[], |data| data), |number| {
            if number == 0 {
                let _ = first_seen.send(());
            } else if let Some(at) = sent.at.get(number) {
                latency.saturating_record(now.saturating_sub(at.load(Ordering::Relaxed)));
            }
            if let Some(first) = seen.get_mut(number).filter(|seen| !**seen) {
                *first = true;
                missing -= 1;
            }
        });
    }
    Ok(Seen { latency, missing })
}
