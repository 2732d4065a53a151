//! A whole cluster at work: `shoal up` with controllers, scheduler and simulated nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::bodies;
use super::client::{H2, Target, excerpt, succeed};
use super::process::{Reading, resident};
use super::report::{Goal, Report};
use super::{create, rollout};
use crate::kubeconfig;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// Where everything is created.
pub(super) const NAMESPACE: &str = "bench";
const PODS: &str = "/api/v1/namespaces/bench/pods";
pub(super) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/bench/deployments/web";

/// How long a part may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(600);
const ASK: Duration = Duration::from_millis(50);

/// How to measure.
#[derive(clap::Args)]
pub struct Settings {
    /// A tenth of the size: a first look, not a result. Rows that depend on the size are not judged.
    #[arg(long)]
    quick: bool,
    /// Also write the rows as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure this `shoal` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Measure only these parts, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
}

/// The parts of the run, in order.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Memory and CPU while nothing happens.
    Idle,
    /// 10,000 pods on 100 nodes.
    Pods,
    /// 100,000 pods on 1,000 nodes.
    ManyPods,
    /// Deletion of a namespace with 10,000 objects.
    Namespace,
    /// Rolling update of 1,000 replicas.
    Rollout,
    /// From the creation of a pod until its process serves.
    Start,
}

struct Bench {
    binary: PathBuf,
    folder: PathBuf,
    quick: bool,
    report: Report,
}

/// A running cluster.
pub(super) struct Cluster {
    pub(super) server: Server,
    pub(super) target: Arc<Target>,
    pub(super) connection: H2,
}

/// Measures everything and prints the table.
pub async fn run(workspace: &Workspace, settings: &Settings) -> Result<()> {
    let binary = match &settings.binary {
        Some(binary) => binary.clone(),
        None => workspace.build("shoal", Profile::Release)?,
    };
    let folder = workspace.target.join("bench-cluster");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let mut bench = Bench { binary, folder, quick: settings.quick, report: Report::new(settings.quick) };
    let wanted = |part: Part| settings.only.is_empty() || settings.only.contains(&part);
    if wanted(Part::Idle) {
        bench.idle().await?;
    }
    if wanted(Part::Pods) {
        bench.pods(100, 10_000, 10.0, 1_000.0).await?;
    }
    if wanted(Part::ManyPods) {
        bench.pods(1_000, 100_000, 120.0, 2_500.0).await?;
    }
    if wanted(Part::Namespace) {
        bench.namespace().await?;
    }
    if wanted(Part::Rollout) {
        bench.rollout().await?;
    }
    if wanted(Part::Start) {
        bench.start().await?;
    }
    bench.report.finish(settings.json.as_deref())
}

impl Bench {
    async fn launch(&self, nodes: usize) -> Result<Cluster> {
        Cluster::launch(&self.binary, &self.folder, Mode::Ephemeral, nodes, &[]).await
    }

    fn scaled(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }

    async fn idle(&mut self) -> Result<()> {
        println!("==> idle, with everything on");
        let (settle, window) = if self.quick { (3, 5) } else { (20, 30) };
        let cluster = self.launch(1).await?;
        tokio::time::sleep(Duration::from_secs(settle)).await;
        let began = Reading::now(cluster.server.pid())?;
        tokio::time::sleep(Duration::from_secs(window)).await;
        let usage = began.until_now()?;
        let percent = 100.0 * usage.server.as_secs_f64() / usage.elapsed.as_secs_f64();
        self.report.row(
            "idle RSS, everything on",
            "487 MiB",
            Goal::AtMost(60.0),
            resident(cluster.server.pid())?,
            "MiB",
        );
        self.report.row("idle CPU, everything on", "", Goal::AtMost(1.0), percent, "% of a core");
        cluster.server.stop()?;
        Ok(())
    }

    /// So many pods of one Deployment behind a Service: created, placed, running, and all in endpoints.
    async fn pods(&mut self, nodes: usize, pods: usize, seconds: f64, memory: f64) -> Result<()> {
        let (nodes, pods) = (self.scaled(nodes), self.scaled(pods));
        println!("==> {pods} pods on {nodes} nodes");
        let mut cluster = self.launch(nodes).await?;
        let services = "/api/v1/namespaces/bench/services";
        cluster.target.create(&mut cluster.connection, services, service()).await?;
        let began = Reading::now(cluster.server.pid())?;
        let start = Instant::now();
        cluster.apply(DEPLOYMENT, &deployment(pods, "1")).await?;
        cluster.until_available(pods, start).await?;
        let running = start.elapsed();
        cluster.until_in_endpoints(pods).await?;
        let all = start.elapsed().as_secs_f64();
        let usage = began.until_now()?;
        let rss = resident(cluster.server.pid())?;
        let what = format!("{pods} pods Running on {nodes} nodes");
        self.report.sized_row(&what, "", Goal::AtMost(seconds), running.as_secs_f64(), "s");
        self.report.noise(&usage);
        self.report.sized_row(&format!("{what}, and in endpoints"), "", Goal::AtMost(seconds), all, "s");
        self.report.row("pods per second", "20 (kwok)", Goal::AtLeast(1_000.0), pods as f64 / all, "/s");
        let each = usage.server.as_secs_f64() * 1e6 / pods as f64;
        self.report.row("CPU of everything per pod", "", Goal::None, each, "µs");
        self.report.sized_row(&format!("RSS with {pods} pods"), "", Goal::AtMost(memory), rss, "MiB");
        cluster.server.stop()?;
        Ok(())
    }

    async fn namespace(&mut self) -> Result<()> {
        let objects = self.scaled(10_000) as u64;
        println!("==> deletion of a namespace with {objects} objects");
        let mut cluster = self.launch(1).await?;
        let pid = cluster.server.pid();
        let template = bodies::Template::config_map("object");
        let path = "/api/v1/namespaces/bench/configmaps";
        create::parallel(&cluster.target, pid, (64, 4), path, &template, objects).await?;
        let began = Reading::now(pid)?;
        let start = Instant::now();
        let delete = cluster.target.request(Method::DELETE, "/api/v1/namespaces/bench", Bytes::new())?;
        succeed(&mut cluster.connection, delete).await?;
        cluster.until_gone("/api/v1/namespaces/bench").await?;
        let took = start.elapsed().as_secs_f64();
        let what = format!("namespace with {objects} objects deleted");
        self.report.sized_row(&what, "", Goal::AtMost(3.0), took, "s");
        self.report.noise(&began.until_now()?);
        cluster.server.stop()?;
        Ok(())
    }

    async fn rollout(&mut self) -> Result<()> {
        let replicas = self.scaled(1_000);
        println!("==> rolling update of {replicas} replicas");
        let mut cluster = self.launch(self.scaled(20).max(4)).await?;
        let start = Instant::now();
        cluster.apply(DEPLOYMENT, &deployment(replicas, "1")).await?;
        cluster.until_available(replicas, start).await?;
        let seen = rollout::run(&mut cluster, replicas).await?;
        let what = format!("rolling update of {replicas} replicas");
        self.report.sized_row(&what, "", Goal::None, seen.took.as_secs_f64(), "s");
        let limits = "moments beyond maxSurge or maxUnavailable";
        self.report.row(limits, "", Goal::AtMost(0.0), seen.violations as f64, "");
        self.report.row("most pods at one time", "", Goal::None, seen.most as f64, "");
        self.report.row("fewest available at one time", "", Goal::None, seen.fewest as f64, "");
        cluster.server.stop()?;
        Ok(())
    }
}

impl Bench {
    /// Pods as processes, one after the other.
    async fn start(&mut self) -> Result<()> {
        let pods = self.scaled(200).max(20);
        println!("==> start of {pods} pods as processes");
        let mut cluster = Cluster::connect(&self.binary, &self.folder, Mode::WithNode, &[]).await?;
        cluster.until("the node", "/api/v1/nodes", |list| ready(&list["items"][0])).await?;
        let mut took = Vec::with_capacity(pods);
        for index in 0..pods {
            let (name, start) = (format!("start-{index}"), Instant::now());
            cluster.target.create(&mut cluster.connection, PODS, sleeper(&name)).await?;
            let path = format!("{PODS}/{name}");
            while !cluster.read(&path).await?.is_some_and(|pod| ready(&pod)) {
                if start.elapsed() > PATIENCE {
                    bail!("after {PATIENCE:?} the pod {name} is not ready");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            took.push(start.elapsed().as_secs_f64() * 1e3);
            let delete = cluster.target.request(
                Method::DELETE,
                &format!("{path}?gracePeriodSeconds=0"),
                Bytes::new(),
            )?;
            succeed(&mut cluster.connection, delete).await?;
        }
        took.sort_by(f64::total_cmp);
        self.report.row("pod created until Ready, p50", "", Goal::None, took[pods / 2], "ms");
        let p99 = took[(pods * 99 / 100).min(pods - 1)];
        self.report.row("pod created until Ready, p99", "", Goal::AtMost(100.0), p99, "ms");
        cluster.server.stop()?;
        Ok(())
    }
}

impl Cluster {
    /// Starts `shoal up` with so many simulated nodes and waits until pods can be made and placed.
    pub(super) async fn launch(
        binary: &Path,
        folder: &Path,
        mode: Mode<'_>,
        nodes: usize,
        further: &[&str],
    ) -> Result<Cluster> {
        let count = nodes.to_string();
        let arguments = [&["--simulated-nodes", &count], further].concat();
        let mut cluster = Cluster::connect(binary, folder, mode, &arguments).await?;
        cluster
            .until("nodes without taints", "/api/v1/nodes", |list| {
                let nodes_there = list["items"].as_array().map_or(&[][..], Vec::as_slice);
                nodes_there.len() == nodes
                    && nodes_there
                        .iter()
                        .all(|node| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty))
            })
            .await?;
        Ok(cluster)
    }

    /// Starts `shoal up` and waits until pods can be made.
    async fn connect(binary: &Path, folder: &Path, mode: Mode<'_>, arguments: &[&str]) -> Result<Cluster> {
        let (kubeconfig, log) = (folder.join("kubeconfig"), folder.join("server.log"));
        let server = Server::start_with(binary, mode, arguments, &kubeconfig, &log)?;
        let target = Arc::new(Target::new(&kubeconfig::read(&server.kubeconfig)?)?);
        let mut connection = target.h2().await?;
        target.create(&mut connection, "/api/v1/namespaces", bodies::namespace(NAMESPACE)).await?;
        let mut cluster = Cluster { server, target, connection };
        cluster
            .until("the account of the namespace", "/api/v1/namespaces/bench/serviceaccounts/default", |_| {
                true
            })
            .await?;
        Ok(cluster)
    }

    async fn read(&mut self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.target.get(&mut self.connection, path).await?;
        match status {
            StatusCode::OK => Ok(Some(serde_json::from_slice(&body)?)),
            StatusCode::NOT_FOUND => Ok(None),
            status => bail!("GET {path}: {status}: {}", excerpt(&body)),
        }
    }

    /// Asks until it is so.
    pub(super) async fn until(
        &mut self,
        what: &str,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.read(path).await?.is_some_and(|object| holds(&object)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("after {PATIENCE:?} still not there: {what}");
            }
            tokio::time::sleep(ASK).await;
        }
    }

    async fn until_gone(&mut self, path: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.read(path).await?.is_some() {
            if Instant::now() > deadline {
                bail!("after {PATIENCE:?} still there: {path}");
            }
            tokio::time::sleep(ASK).await;
        }
        Ok(())
    }

    /// Waits until so many replicas are available, and tells how it goes.
    async fn until_available(&mut self, replicas: usize, start: Instant) -> Result<()> {
        let (deadline, mut told) = (Instant::now() + PATIENCE, Instant::now());
        loop {
            let deployment = self.read(DEPLOYMENT).await?.context("the Deployment is gone")?;
            let available = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0) as usize;
            if available >= replicas {
                return Ok(());
            }
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                let created = deployment["status"]["replicas"].as_u64().unwrap_or(0);
                println!(
                    "    {:.0} s: {created} created, {available} available",
                    start.elapsed().as_secs_f64()
                );
            }
            if Instant::now() > deadline {
                bail!("after {PATIENCE:?} only {available} of {replicas} replicas are available");
            }
            tokio::time::sleep(ASK).await;
        }
    }

    async fn until_in_endpoints(&mut self, pods: usize) -> Result<()> {
        let path = "/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices";
        let ready = |endpoint: &&Value| endpoint["conditions"]["ready"] == true;
        self.until("all pods in endpoints", path, |slices| {
            let slices = slices["items"].as_array().into_iter().flatten();
            slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten()).filter(ready).count()
                >= pods
        })
        .await
    }

    /// Server-side apply.
    pub(super) async fn apply(&mut self, path: &str, object: &Value) -> Result<()> {
        let path = format!("{path}?fieldManager=bench&force=true");
        let request = self.target.request(Method::PATCH, &path, object.to_string().into())?;
        succeed(&mut self.connection, request).await
    }
}

/// A Deployment whose image has this tag.
pub(super) fn deployment(replicas: usize, tag: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "web", "image": format!("web:{tag}"), "ports": [{"containerPort": 8080}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}
                }]}
            }
        }
    })
}

/// Whether a node or a pod says that it is ready.
fn ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|told| told["type"] == "Ready" && told["status"] == "True")
}

/// A pod that does nothing.
fn sleeper(name: &str) -> Bytes {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "sleep", "image": "sleeper"}]
        }
    })
    .to_string()
    .into()
}

fn service() -> Bytes {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    })
    .to_string()
    .into()
}
