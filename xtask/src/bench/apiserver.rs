//! The API server's figures. Goals and the real server's figures stand beside the rows they belong to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::Method;

use super::bodies::{self, Deployment, Template};
use super::client::Target;
use super::process::resident;
use super::report::{Goal, Report, quantile};
use super::watch::{Plan, Transport, Watched};
use super::{Settings, create, custom, inside, watch};
use crate::kubeconfig;
use crate::server::{Mode, Server};
use crate::workspace::Workspace;

const WORKERS: usize = 64;
const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/bench/deployments";

/// The parts of the run, in order.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Start and idle memory.
    Start,
    /// Creates in memory, lists, memory with 22,000 ConfigMaps.
    Memory,
    /// Creates on disk.
    Disk,
    /// Watch latency and cost.
    Watch,
    /// 100,000 pods.
    Pods,
    /// Server-side apply.
    Apply,
    /// Custom kinds.
    Custom,
    /// The cluster inside a program, without sockets.
    Inside,
}

/// How large the run is.
struct Size {
    starts: usize,
    idle: Duration,
    warm_up: u64,
    creates: u64,
    sequential: u64,
    events_at_200: usize,
    events_at_1000: usize,
    pods: u64,
    deployments: u64,
    definitions: usize,
}

const FULL: Size = Size {
    starts: 10,
    idle: Duration::from_secs(10),
    warm_up: 2_000,
    creates: 20_000,
    sequential: 2_000,
    events_at_200: 2_000,
    events_at_1000: 10_000,
    pods: 100_000,
    deployments: 5_000,
    definitions: 50,
};

const QUICK: Size = Size {
    starts: 3,
    idle: Duration::from_secs(2),
    warm_up: 500,
    creates: 5_000,
    sequential: 500,
    events_at_200: 400,
    events_at_1000: 2_000,
    pods: 10_000,
    deployments: 1_000,
    definitions: 20,
};

/// Where the bench runs and what it has measured so far.
struct Bench<'a> {
    binary: PathBuf,
    folder: PathBuf,
    size: &'static Size,
    settings: &'a Settings,
    report: Report,
}

/// Measures everything and prints the table.
pub(super) async fn run(workspace: &Workspace, binary: PathBuf, settings: &Settings) -> Result<()> {
    let folder = workspace.target.join("bench");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let mut bench = Bench {
        binary,
        folder,
        size: if settings.quick { &QUICK } else { &FULL },
        settings,
        report: Report::new(settings.quick),
    };
    let wanted = |part: Part| settings.only.is_empty() || settings.only.contains(&part);
    if wanted(Part::Start) {
        bench.start().await?;
    }
    if wanted(Part::Memory) {
        bench.memory().await?;
    }
    if wanted(Part::Disk) {
        bench.disk().await?;
    }
    if wanted(Part::Watch) {
        bench.watch().await?;
    }
    if wanted(Part::Pods) {
        bench.pods().await?;
    }
    if wanted(Part::Apply) {
        bench.apply().await?;
    }
    if wanted(Part::Custom) {
        bench.custom().await?;
    }
    if wanted(Part::Inside) {
        inside::rows(workspace, &mut bench.report)?;
    }
    let _ = std::fs::remove_dir_all(&bench.folder);
    bench.report.finish(settings.json.as_deref())
}

impl Bench<'_> {
    fn launch(&self, mode: Mode<'_>) -> Result<(Server, Arc<Target>)> {
        // The server alone: the others are measured by `bench cluster`.
        let alone = ["--without", "controllers,scheduler,node,metrics,application"];
        let server = Server::start_with(
            &self.binary,
            mode,
            &alone,
            &self.folder.join("kubeconfig"),
            &self.folder.join("server.log"),
        )?;
        let target = Target::new(&kubeconfig::read(&server.kubeconfig)?)?;
        Ok((server, Arc::new(target)))
    }

    /// A server with the namespace `bench` and warm code paths.
    async fn launch_warm(&self, mode: Mode<'_>) -> Result<(Server, Arc<Target>)> {
        let (server, target) = self.launch(mode)?;
        let mut connection = target.h2().await?;
        for name in ["bench", "warm-up"] {
            target.create(&mut connection, "/api/v1/namespaces", bodies::namespace(name)).await?;
        }
        let path = "/api/v1/namespaces/warm-up/configmaps";
        let template = Template::config_map("warm");
        create::parallel(&target, server.pid(), self.clients(), path, &template, self.size.warm_up).await?;
        Ok((server, target))
    }

    fn clients(&self) -> (usize, usize) {
        (WORKERS, self.settings.connections)
    }

    /// From the start of the process to an answer of `/readyz`.
    async fn ready_after(&self, mode: Mode<'_>) -> Result<(Server, f64)> {
        let (server, target) = self.launch(mode)?;
        target.get_length(&mut target.h2().await?, "/readyz").await?;
        let elapsed = server.started.elapsed();
        Ok((server, elapsed.as_secs_f64() * 1e3))
    }

    async fn start(&mut self) -> Result<()> {
        println!("==> start and idle memory");
        let mut times = Vec::new();
        for _ in 0..self.size.starts {
            let (server, milliseconds) = self.ready_after(Mode::Ephemeral).await?;
            times.push(milliseconds);
            server.stop()?;
        }
        self.report.row("process start → /readyz", "3.5 s", Goal::AtMost(50.0), median(&mut times), "ms");
        let (server, _) = self.ready_after(Mode::Ephemeral).await?;
        tokio::time::sleep(self.size.idle).await;
        self.report.row("idle RSS", "305 MiB", Goal::AtMost(40.0), resident(server.pid())?, "MiB");
        server.stop()?;
        Ok(())
    }

    async fn memory(&mut self) -> Result<()> {
        println!("==> creates in memory");
        let (server, target) = self.launch_warm(Mode::Ephemeral).await?;
        self.creates(&server, &target, "in memory", 11_000.0).await?;

        let label = format!("RSS with {} ConfigMaps of 1 KB", self.size.creates + self.size.warm_up);
        let rss = resident(server.pid())?;
        self.report.sized_row(&label, "639 MiB", Goal::AtMost(130.0), rss, "MiB");

        let mut connection = target.h2().await?;
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..5 {
            let began = Instant::now();
            bytes = target.get_length(&mut connection, CONFIG_MAPS).await?;
            times.push(began.elapsed().as_secs_f64());
        }
        let label = format!("list of {} × 1 KB, bytes ({:.1} MB)", self.size.creates, bytes as f64 / 1e6);
        self.report.sized_row(&label, "0.27 s", Goal::AtMost(0.07), median(&mut times), "s");

        self.sequential(&server, &target, "in memory").await?;
        server.stop()?;
        self.audited().await
    }

    /// Creates by a ServiceAccount that may do nothing else, with an audit log.
    async fn audited(&mut self) -> Result<()> {
        let log = self.folder.join("audit.log");
        let (server, admin) = self.launch_warm(Mode::Audited(&log)).await?;
        let mut connection = admin.h2().await?;
        for (path, body) in bodies::creator_role() {
            admin.create(&mut connection, path, body).await?;
        }
        let accounts = "/api/v1/namespaces/bench/serviceaccounts";
        // With the controllers the account is already there, or about to be: a refusal is fine.
        let _ = admin.create(&mut connection, accounts, bodies::service_account()).await;
        let request = Bytes::from_static(br#"{"spec":{}}"#);
        let answer = admin.create(&mut connection, &format!("{accounts}/default/token"), request).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let token = answer["status"]["token"].as_str().context("no token in the answer")?.to_owned();
        let target = Arc::new(Target::with_token(&kubeconfig::read(&server.kubeconfig)?, token)?);
        self.creates(&server, &target, "in memory, audited, with RBAC", 9_000.0).await?;
        server.stop()?;
        let lines = std::fs::read(&log)?.iter().filter(|byte| **byte == b'\n').count() as u64;
        if lines < self.size.creates {
            bail!("the audit log has {lines} lines for {} creates", self.size.creates);
        }
        remove_file(&log)
    }

    async fn disk(&mut self) -> Result<()> {
        println!("==> creates on disk");
        let data = self.folder.join("creates");
        let (server, target) = self.launch_warm(Mode::Durable(&data)).await?;
        self.creates(&server, &target, "durable", 4_500.0).await?;
        self.sequential(&server, &target, "durable").await?;
        server.stop()?;
        remove(&data)
    }

    async fn creates(&mut self, server: &Server, target: &Arc<Target>, how: &str, goal: f64) -> Result<()> {
        let count = self.size.creates;
        let template = Template::config_map("cm");
        let done =
            create::parallel(target, server.pid(), self.clients(), CONFIG_MAPS, &template, count).await?;
        let label = format!("creates of 1 KB ConfigMaps, {WORKERS} workers, {how}");
        self.report.row(&label, "1,129/s", Goal::AtLeast(goal), done.rate, "/s");
        self.report.noise(&done.usage);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        let label = format!("server CPU per create, {how}");
        let limit = if how.contains("audited") { Goal::None } else { Goal::AtMost(90.0) };
        self.report.row(&label, "1,100–1,800 µs", limit, each(done.usage.server), "µs");
        let label = format!("client CPU per create, {how}");
        self.report.row(&label, "190–310 µs", Goal::None, each(done.usage.client), "µs");
        let label = format!("latency under that load, p99, {how}");
        self.report.row(&label, "138 ms", Goal::None, quantile(&done.latency, 0.99), "ms");
        Ok(())
    }

    async fn sequential(&mut self, server: &Server, target: &Target, how: &str) -> Result<()> {
        let template = Template::config_map("one");
        let done =
            create::sequential(target, server.pid(), CONFIG_MAPS, &template, self.size.sequential).await?;
        // The goal is the memory server's; on disk the row also shows what a flush costs here.
        let goal = if how == "durable" { Goal::None } else { Goal::AtMost(0.25) };
        let label = format!("sequential create p50, {how}");
        self.report.row(&label, "3.4 ms", goal, quantile(&done.latency, 0.5), "ms");
        self.report.noise(&done.usage);
        let label = format!("sequential create p99, {how}");
        self.report.row(&label, "8.4 ms", Goal::None, quantile(&done.latency, 0.99), "ms");
        Ok(())
    }

    async fn watch(&mut self) -> Result<()> {
        println!("==> watch");
        let (server, target) = self.launch_warm(Mode::Ephemeral).await?;
        let (slow, fast) = (self.size.events_at_200, self.size.events_at_1000);
        for (transport, how) in
            [(Transport::OneH2, "one HTTP/2 connection"), (Transport::ManyH1, "100 HTTP/1.1 connections")]
        {
            let one = self.watched(&server, &target, (transport, 1, 200, slow)).await?;
            let many = self.watched(&server, &target, (transport, 100, 200, slow)).await?;
            self.watch_rows(&many, &format!("200/s, {how}"), 5.0);
            let further = many.usage.server.as_secs_f64() - one.usage.server.as_secs_f64();
            let label = format!("server CPU per further watcher per event, 200/s, {how}");
            self.report.row(&label, "40 µs", Goal::AtMost(8.0), further * 1e6 / (99 * slow) as f64, "µs");
            let burst = self.watched(&server, &target, (transport, 100, 1000, fast)).await?;
            self.watch_rows(&burst, &format!("1,000/s, {how}"), 50.0);
        }
        server.stop()?;
        Ok(())
    }

    async fn watched(
        &self,
        server: &Server,
        target: &Arc<Target>,
        (transport, watchers, rate, events): (Transport, usize, u32, usize),
    ) -> Result<Watched> {
        let transport_name = if transport == Transport::OneH2 { "h2" } else { "h1" };
        let namespace = format!("watch-{transport_name}-{watchers}-{rate}");
        let mut connection = target.h2().await?;
        target.create(&mut connection, "/api/v1/namespaces", bodies::namespace(&namespace)).await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        watch::run(target, server.pid(), &Plan { path: &path, transport, watchers, rate, events }).await
    }

    fn watch_rows(&mut self, run: &Watched, how: &str, goal: f64) {
        let label = format!("create → watch event, 100 watchers, p50, {how}");
        self.report.row(&label, "6.4 ms at 50/s", Goal::None, quantile(&run.latency, 0.5), "ms");
        let label = format!("create → watch event, 100 watchers, p99, {how}");
        self.report.row(&label, "23 ms at 50/s", Goal::AtMost(goal), quantile(&run.latency, 0.99), "ms");
        self.report.noise(&run.usage);
        self.report.row(&format!("events lost, {how}"), "0", Goal::AtMost(0.0), run.lost as f64, "events");
        let each = run.usage.client.as_secs_f64() * 1e6 / run.latency.len().max(1) as f64;
        self.report.row(&format!("client CPU per event delivered, {how}"), "", Goal::None, each, "µs");
    }

    /// Every Deployment is applied once per row, each row to all of them.
    async fn apply(&mut self) -> Result<()> {
        println!("==> server-side apply");
        let (server, target) = self.launch_warm(Mode::Ephemeral).await?;
        let rows = [
            ("that creates it", Deployment::First, Goal::None),
            ("unchanged, for the first time", Deployment::First, Goal::None),
            ("unchanged", Deployment::First, Goal::AtMost(60.0)),
            ("with another image", Deployment::NewImage, Goal::AtMost(150.0)),
            ("with the old image", Deployment::First, Goal::AtMost(150.0)),
            ("without a variable", Deployment::WithoutVariable, Goal::AtMost(150.0)),
        ];
        for (what, version, goal) in rows {
            let (to, template) = (Arc::clone(&target), Template::deployment(version)?);
            let order = Arc::new(move |number: u64| {
                let path = format!("{DEPLOYMENTS}/web-{number:07}?fieldManager=bench");
                to.request(Method::PATCH, &path, template.body(number))
            });
            let count = self.size.deployments;
            let done = create::send_all(&target, server.pid(), self.clients(), count, order).await?;
            let label = format!("server CPU per apply of a 3 KB Deployment {what}");
            let each = done.usage.server.as_secs_f64() * 1e6 / count as f64;
            self.report.row(&label, "", goal, each, "µs");
            self.report.noise(&done.usage);
        }
        server.stop()?;
        Ok(())
    }

    async fn custom(&mut self) -> Result<()> {
        println!("==> custom kinds");
        let (server, target) = self.launch_warm(Mode::Ephemeral).await?;
        let mut connection = target.h2().await?;
        let mut times = custom::first_objects(&target, &mut connection, self.size.definitions).await?;
        let label = "definition sent → first object created, by the next request, p50";
        self.report.row(label, "", Goal::AtMost(5.0), median(&mut times), "ms");
        let slowest = times.last().copied().unwrap_or(f64::NAN);
        let label = "definition sent → first object created, by the next request, slowest";
        self.report.row(label, "", Goal::None, slowest, "ms");
        server.stop()?;
        Ok(())
    }

    async fn pods(&mut self) -> Result<()> {
        let count = self.size.pods;
        println!("==> {count} pods of {} bytes, on disk", bodies::POD_BYTES);
        let data = self.folder.join("pods");
        let (server, target) = self.launch_warm(Mode::Durable(&data)).await?;
        let mut connection = target.h2().await?;
        let accounts = "/api/v1/namespaces/bench/serviceaccounts";
        // With the controllers the account is already there, or about to be: a refusal is fine.
        let _ = target.create(&mut connection, accounts, bodies::service_account()).await;
        let path = "/api/v1/namespaces/bench/pods";
        let probe = target.create(&mut connection, path, Template::pod(0).body(9_999_999)).await?;
        let template = Template::pod(bodies::padding(probe.len())?);
        let done = create::parallel(&target, server.pid(), self.clients(), path, &template, count).await?;
        self.report.row("creates of pods, 64 workers, durable", "482/s", Goal::None, done.rate, "/s");
        self.report.noise(&done.usage);
        let label = format!("RSS with {count} pods of 3.4 KB");
        let rss = resident(server.pid())?;
        self.report.sized_row(&label, "4,512 MiB", Goal::AtMost(600.0), rss, "MiB");
        drop(connection);
        server.stop()?;
        self.restart(&data).await?;
        remove(&data)
    }

    async fn restart(&mut self, data: &Path) -> Result<()> {
        let count = self.size.pods;
        let mut times = Vec::new();
        let mut memory = Vec::new();
        for _ in 0..3 {
            let (server, milliseconds) = self.ready_after(Mode::Durable(data)).await?;
            times.push(milliseconds);
            memory.push(resident(server.pid())?);
            server.stop()?;
        }
        let label = format!("process start → /readyz with {count} pods on disk");
        self.report.sized_row(&label, "19.5 s", Goal::AtMost(1000.0), median(&mut times), "ms");
        let label = format!("RSS after restart with {count} pods");
        self.report.sized_row(&label, "3,622 MiB", Goal::AtMost(600.0), median(&mut memory), "MiB");
        Ok(())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn remove_file(file: &Path) -> Result<()> {
    std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))
}

fn remove(folder: &Path) -> Result<()> {
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}
