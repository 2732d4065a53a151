//! A controller that puts an annotation on each ConfigMap, against our server: how many a second, and at what cost.
//!
//! The cost of the controller alone is seen when the server is another process; that goes over TLS.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use shoal_runtime::config::{Config, Workers};
use shoal_runtime::{Action, Context, Controller, Manager};
use shoal_testkit::Cluster;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use bench_rows::{Goal, Row, Spent, timed};

const ANNOTATION: &str = "example.com/seen";
/// What client-go does against kube-apiserver, in objects a second.
const PEER: f64 = 831.0;

/// All rows. `shoal` is the program to start for those over TLS.
pub fn run(quick: bool, shoal: Option<&Path>) -> Result<()> {
    let count = if quick { 2_000 } else { 20_000 };
    let runtime = || Builder::new_multi_thread().enable_all().build();
    let inside = runtime()?.block_on(async {
        let cluster = Cluster::start().await;
        annotate_all(cluster.client(), count).await
    })?;
    let rate = |what: &str, spent: &Spent| {
        let (peer, goal) = (format!("client-go {PEER}"), Goal::AtLeast(5.0 * PEER));
        let measured = count as f64 / spent.wall.as_secs_f64();
        Row { what, peer, goal, measured, unit: "objects/s", any_size: true }.print()
    };
    rate("controller: annotates ConfigMaps, in process", &inside)?;
    let Some(shoal) = shoal else { return Ok(()) };
    let mut server = Server::start(shoal)?;
    let outside = runtime()?.block_on(async { annotate_all(client(&server.kubeconfig).await?, count).await });
    server.child.kill()?;
    server.child.wait()?;
    let outside = outside?;
    rate("controller: annotates ConfigMaps, over TLS", &outside)?;
    Row {
        what: "controller: CPU per annotated ConfigMap, over TLS",
        peer: "client-go 300-400".to_owned(),
        goal: Goal::AtMost(100.0),
        measured: outside.cpu.as_secs_f64() * 1e6 / count as f64,
        unit: "µs CPU",
        any_size: true,
    }
    .print()
}

/// `shoal up` with nothing on disk but its kubeconfig.
struct Server {
    child: Child,
    kubeconfig: String,
}

impl Server {
    fn start(shoal: &Path) -> Result<Server> {
        let arguments = ["up", "--ephemeral", "--port", "0"];
        let mut child = Command::new(shoal).args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().context("the server has no output")?).read_line(&mut ready)?;
        // ready https://127.0.0.1:6443 kubeconfig FILE (12 ms)
        let kubeconfig =
            ready.split(' ').nth(3).with_context(|| format!("the server says {ready:?}"))?.to_owned();
        Ok(Server { child, kubeconfig })
    }
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// ConfigMaps of 1 KB, made before the clock runs.
async fn fill(client: Client, count: usize) -> Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let tasks: Vec<_> = (0..8)
        .map(|part| {
            let maps = maps.clone();
            tokio::spawn(async move {
                for n in (part..count).step_by(8) {
                    let map =
                        json!({"metadata": {"name": format!("m{n}")}, "data": {"text": "x".repeat(900)}});
                    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
                }
                Ok::<_, anyhow::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// From the start of the manager until every object has its annotation, as the peer was measured: its watch included.
async fn annotate_all(client: Client, count: usize) -> Result<Spent> {
    fill(client.clone(), count).await?;
    let config = Config { workers: Workers(10), ..Config::default() };
    let mut manager = Manager::builder("bench").client(client).config(config).embedded().build().await?;
    let (written, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let all_done = done.clone();
    let controller = Controller::of::<ConfigMap>("annotate").in_namespace("default").reconcile(
        move |context: Context<ConfigMap>| {
            let (written, done) = (written.clone(), done.clone());
            async move {
                let Some(map) = context.object().filter(|map| map.name_any().starts_with('m')) else {
                    return Ok(Action::done());
                };
                if map.annotations().contains_key(ANNOTATION) {
                    return Ok(Action::done());
                }
                let patch = json!({"metadata": {"annotations": {ANNOTATION: "yes"}}});
                context.writer().patch_as_read(&*map, patch).await?;
                if written.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    done.notify_one();
                }
                Ok(Action::done())
            }
        },
    );
    manager.add(controller);
    let stopper = manager.stopper();
    let mut running = None;
    let spent = timed(async {
        running = Some(tokio::spawn(manager.run()));
        let _ = tokio::time::timeout(Duration::from_secs(120), all_done.notified()).await;
    })
    .await;
    stopper.stop();
    if let Some(running) = running {
        running.await??;
    }
    anyhow::ensure!(spent.wall < Duration::from_secs(119), "not all {count} objects were annotated");
    Ok(spent)
}
