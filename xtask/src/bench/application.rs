//! The Application operator at work: three replicas in processes of their own, on a cluster with simulated nodes.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bodies::Template;
use super::client::succeed;
use super::cluster::{Cluster, NAMESPACE};
use super::create;
use super::lines::Lines;
use super::process::{Reading, resident};
use super::report::{Goal, Report, latencies, quantile};
use crate::server::Mode;
use crate::workspace::{Profile, Workspace};

const APPLICATIONS: &str = "/apis/apps.example.com/v1alpha1/namespaces/bench/applications";
/// Without an event for so long, nothing goes on any more.
const PATIENCE: Duration = Duration::from_secs(120);
/// Every object is looked at again so often.
const RESYNC: Duration = Duration::from_secs(10);

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
}

/// Measures everything on one cluster and prints the table.
pub async fn run(workspace: &Workspace, settings: &Settings) -> Result<()> {
    let binary = match &settings.binary {
        Some(binary) => binary.clone(),
        None => workspace.build("shoal", Profile::Release)?,
    };
    let folder = workspace.target.join("bench-application");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let mut report = Report::new(settings.quick);
    let scaled = |full: u64| if settings.quick { full / 10 } else { full };
    let (first, all) = (scaled(1_000), scaled(5_000));

    let audit = folder.join("audit.log");
    let further = ["--without", "application"];
    let mut cluster = Cluster::launch(&binary, &folder, Mode::Audited(&audit), 60, &further).await?;
    let pid = cluster.server.pid();
    let mut replicas = Replicas::start(&binary, &folder, &cluster.server.kubeconfig, 3).await?;
    let mut watch = Phases::open(&cluster).await?;

    println!("==> {first} Applications at once");
    let began = Reading::now(pid)?;
    let start = Instant::now();
    create::parallel(&cluster.target, pid, (64, 4), APPLICATIONS, &template(), first).await?;
    watch.all_running(first).await?;
    let took = start.elapsed().as_secs_f64();
    report.sized_row(
        &format!("{first} Applications at once, all Running"),
        "",
        Goal::AtMost(20.0),
        took,
        "s",
    );
    report.noise(&began.until_now()?);

    println!("==> edits");
    let edits = edit_to_rollout(&mut cluster, if settings.quick { 20 } else { 200 }).await?;
    report.row("edit → rollout started, p50", "", Goal::None, edits.0, "ms");
    report.row("edit → rollout started, p99", "", Goal::AtMost(200.0), edits.1, "ms");
    watch.all_running(first).await?;

    println!("==> {all} Applications");
    let rest = Template::split(&application("more-@"));
    create::parallel(&cluster.target, pid, (64, 4), APPLICATIONS, &rest, all - first).await?;
    watch.all_running(all).await?;
    let shares = replicas.shares()?;
    let even = all as f64 / shares.len() as f64;
    let off = shares.iter().map(|share| (*share as f64 - even).abs() / even).fold(0.0, f64::max);
    println!("    shares: {shares:?}");
    report.sized_row("largest distance from an even share", "", Goal::AtMost(5.0), off * 100.0, "%");

    println!("==> nothing happens");
    // What the last changes have stirred up settles first.
    tokio::time::sleep(RESYNC * 2).await;
    let before = written(&audit)?;
    tokio::time::sleep(RESYNC * 2).await;
    let writes = written(&audit)? - before;
    report.row("writes in two resyncs of all objects", "", Goal::AtMost(0.0), writes as f64, "");

    println!("==> one replica alone");
    replicas.end();
    let replicas = Replicas::start(&binary, &folder, &cluster.server.kubeconfig, 1).await?;
    replicas.until_it_has(all).await?;
    tokio::time::sleep(RESYNC).await;
    let memory = resident(replicas.running[0].child.id())?;
    report.sized_row(
        &format!("RSS of one replica with {all} Applications"),
        "",
        Goal::AtMost(60.0),
        memory,
        "MiB",
    );
    drop(replicas);
    cluster.server.stop()?;
    report.finish(settings.json.as_deref())
}

fn template() -> Template {
    Template::split(&application("app-@"))
}

fn application(name: &str) -> Value {
    json!({
        "apiVersion": "apps.example.com/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "image": "web:1",
            "port": 8080,
            "replicas": 1,
            "environment": [{"name": "ENV", "value": "production"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "healthCheck": {"readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}},
        },
    })
}

#[derive(Deserialize)]
struct Event {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    observed_generation: i64,
}

/// The phases of all Applications, as a watch tells them.
struct Phases {
    lines: Lines,
    running: HashMap<String, bool>,
}

impl Phases {
    async fn open(cluster: &Cluster) -> Result<Phases> {
        let lines = Lines::open(&cluster.target, &format!("{APPLICATIONS}?watch=true")).await?;
        Ok(Phases { lines, running: HashMap::new() })
    }

    async fn all_running(&mut self, count: u64) -> Result<()> {
        let (start, mut told) = (Instant::now(), Instant::now());
        loop {
            let running = self.running.values().filter(|running| **running).count() as u64;
            if running >= count {
                return Ok(());
            }
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                println!("    {:.0} s: {running} of {count} Running", start.elapsed().as_secs_f64());
            }
            let lines = self.lines.more(PATIENCE).await;
            for line in lines.with_context(|| format!("{running} of {count} are Running"))? {
                let Event { object } = serde_json::from_slice(&line)?;
                let current = object.status.observed_generation == object.metadata.generation;
                self.running.insert(object.metadata.name, object.status.phase == "Running" && current);
            }
        }
    }
}

/// From an edit of an Application to the event of its Deployment with the new image: p50 and p99 in milliseconds.
async fn edit_to_rollout(cluster: &mut Cluster, edits: u64) -> Result<(f64, f64)> {
    let mut latency = latencies()?;
    let path = "/apis/apps/v1/namespaces/bench/deployments?watch=true";
    let mut watch = Lines::open(&cluster.target, path).await?;
    for number in 0..edits {
        let name = format!("app-{number:07}");
        let image = format!("web:edit-{number}");
        let edit = json!({"apiVersion": "apps.example.com/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"image": image}});
        let path = format!("{APPLICATIONS}/{name}?fieldManager=editor&force=true");
        let sent = Instant::now();
        let request = cluster.target.request(Method::PATCH, &path, Bytes::from(edit.to_string()))?;
        succeed(&mut cluster.connection, request).await?;
        'seen: loop {
            for line in watch.more(PATIENCE).await? {
                let Event { object } = serde_json::from_slice(&line)?;
                let now = &object.spec["template"]["spec"]["containers"][0]["image"];
                if object.metadata.name == name && *now == json!(image) {
                    break 'seen;
                }
            }
        }
        latency.record(u64::try_from(sent.elapsed().as_nanos())?)?;
    }
    Ok((quantile(&latency, 0.5), quantile(&latency, 0.99)))
}

/// Writes of the operator so far, by the audit log: what replicas agree on among themselves and Events aside.
fn written(audit: &Path) -> Result<usize> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Line {
        verb: String,
        #[serde(default)]
        user_agent: String,
        #[serde(default)]
        object_ref: Resource,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Resource {
        resource: String,
    }
    let text = std::fs::read_to_string(audit).with_context(|| format!("reading {}", audit.display()))?;
    let mut count = 0;
    for line in text.lines() {
        let line: Line = serde_json::from_str(line)?;
        let reads = ["get", "list", "watch"].contains(&line.verb.as_str());
        let theirs = ["leases", "shardmaps", "events"].contains(&line.object_ref.resource.as_str());
        count += usize::from(line.user_agent.starts_with("application-operator") && !reads && !theirs);
    }
    Ok(count)
}

/// Processes of the operator; killed when dropped.
struct Replicas {
    running: Vec<Replica>,
}

struct Replica {
    child: Child,
    port: u16,
}

impl Replicas {
    async fn start(binary: &Path, folder: &Path, kubeconfig: &Path, count: usize) -> Result<Replicas> {
        let mut replicas = Replicas { running: Vec::new() };
        for number in 0..count {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let config = folder.join(format!("replica-{number}.yaml"));
            std::fs::write(
                &config,
                format!(
                    "metrics: {{port: {port}}}\nlogging: {{level: warn, format: text}}\nworkers: 8\nreconcileConfig: {{resyncPeriod: {}s}}\nstate: {{leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}}\n",
                    RESYNC.as_secs()
                ),
            )?;
            let log = std::fs::File::create(folder.join(format!("replica-{number}.log")))?;
            let child = Command::new(binary)
                .args(["run", "application", "--replicas", "sharded", "--config"])
                .arg(&config)
                .env("KUBECONFIG", kubeconfig)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("starting a replica of the operator")?;
            replicas.running.push(Replica { child, port });
        }
        let deadline = Instant::now() + PATIENCE;
        while !replicas.running.iter().all(|replica| replica.ask("/readyz").contains("200 OK")) {
            if Instant::now() > deadline {
                bail!("the replicas are not ready; see {}", folder.display());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(replicas)
    }

    /// How many Applications each one has.
    fn shares(&self) -> Result<Vec<u64>> {
        self.running.iter().map(Replica::applications).collect()
    }

    async fn until_it_has(&self, count: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.shares()?.iter().sum::<u64>() < count {
            if Instant::now() > deadline {
                bail!("the replica did not take over all Applications");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    fn end(&mut self) {
        for replica in self.running.drain(..) {
            drop(replica);
        }
    }
}

impl Replica {
    fn ask(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    /// The size of its cache, which holds its share only.
    fn applications(&self) -> Result<u64> {
        let metrics = self.ask("/metrics");
        let line = metrics.lines().find(|line| {
            line.starts_with("controller_informer_objects{") && line.contains("apps.example.com")
        });
        let value =
            line.and_then(|line| line.rsplit(' ').next()).context("no controller_informer_objects")?;
        Ok(value.parse()?)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
