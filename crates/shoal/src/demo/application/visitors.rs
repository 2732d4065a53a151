//! People who visit a Service: they ask its endpoints as a load balancer would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};
use shoal_node::addresses::local;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Between two visits.
const PAUSE: Duration = Duration::from_millis(50);
/// A pod may end between the look at the endpoints and the visit: another door is tried.
const TRIES: usize = 5;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Who visits.
pub struct Visitors {
    inner: Arc<Inner>,
    visiting: Option<JoinHandle<()>>,
}

struct Inner {
    slices: Api<EndpointSlice>,
    service: String,
    turn: AtomicUsize,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// Visitors who keep pods busy, until this is dropped.
pub struct Load {
    _tasks: JoinSet<()>,
}

impl Visitors {
    /// Nobody visits yet.
    pub fn new(client: Client, service: &str) -> Visitors {
        let inner = Inner {
            slices: Api::default_namespaced(client),
            service: service.to_owned(),
            turn: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        Visitors { inner: Arc::new(inner), visiting: None }
    }

    /// One visit.
    pub async fn visit(&self, path: &str) -> anyhow::Result<String> {
        self.inner.visit(path).await
    }

    /// From now on somebody always visits, and it is counted.
    pub fn keep_visiting(&mut self) {
        let inner = self.inner.clone();
        self.visiting = Some(tokio::spawn(async move {
            loop {
                let count = match inner.visit("/").await {
                    Ok(_) => &inner.answered,
                    Err(_) => &inner.failed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
        }));
    }

    /// No more visits.
    pub async fn stop(&mut self) {
        if let Some(visiting) = self.visiting.take() {
            visiting.abort();
            let _ = visiting.await;
        }
    }

    /// Visits that were answered, and those that were not.
    pub fn counts(&self) -> (u64, u64) {
        (self.inner.answered.load(Ordering::Relaxed), self.inner.failed.load(Ordering::Relaxed))
    }

    /// So many visitors at once who keep pods busy.
    pub fn load(&self, visitors: usize) -> Load {
        let mut tasks = JoinSet::new();
        for _ in 0..visitors {
            let inner = self.inner.clone();
            tasks.spawn(async move {
                loop {
                    // A third of a processor each, whatever the machine has else to do.
                    let _ = inner.visit("/burn?ms=50").await;
                    sleep(Duration::from_millis(100)).await;
                }
            });
        }
        Load { _tasks: tasks }
    }
}

impl Inner {
    async fn visit(&self, path: &str) -> anyhow::Result<String> {
        let mut last = anyhow::anyhow!("there is no endpoint");
        for _ in 0..TRIES {
            let doors = self.doors().await.unwrap_or_default();
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            if let Some(door) = doors.get(turn % doors.len().max(1)) {
                match timeout(ANSWER, get(*door, path)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => last = error,
                    Err(_) => last = anyhow::anyhow!("{door} does not answer"),
                }
            }
            sleep(PAUSE).await;
        }
        Err(last)
    }

    /// The endpoints that are ready, at the addresses that this machine knows them by.
    async fn doors(&self) -> kube::Result<Vec<SocketAddr>> {
        let of = ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.service));
        let mut doors = Vec::new();
        for slice in self.slices.list(&of).await?.items {
            let Some(port) = slice.ports.iter().flatten().find_map(|port| port.port) else { continue };
            let Ok(port) = u16::try_from(port) else { continue };
            for endpoint in slice.endpoints.into_iter().flatten() {
                let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
                let ip = endpoint.addresses.first().and_then(|address| address.parse().ok());
                if let (true, Some(ip)) = (ready.unwrap_or(true), ip) {
                    doors.push(SocketAddr::new(local(ip), port));
                }
            }
        }
        doors.sort();
        Ok(doors)
    }
}

async fn get(door: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(door).await.with_context(|| format!("{door} is closed"))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {door}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => bail!("{door} answers {:?}", answer.lines().next().unwrap_or_default()),
    }
}
