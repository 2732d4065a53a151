//! A cache of 100,000 Pods: memory, CPU until it is filled, and how long reads take; kube-rs's reflector beside it.
//!
//! Every side runs in a process of its own, for what it leaves in memory counts.

use std::future::ready;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config};
use serde::{Deserialize, Serialize};
use shoal_objects::selector::LabelSelector;
use shoal_runtime::cache::{Compression, InformerOptions, Informers, owner_uids};
use shoal_runtime::{Lister, ObjectKey};

use crate::pods;
use bench_rows::{Goal, Row, timed};

/// What a process of its own does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Serves pods.
    Serve,
    /// Our informer, bodies compressed.
    Ours,
    /// Our informer, bodies as they came.
    Plain,
    /// kube-rs's reflector.
    Kube,
}

/// What a process found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// MiB after it was filled.
    growth: f64,
    /// MiB at most.
    peak: f64,
    /// Seconds.
    cpu: f64,
    wall: f64,
    /// Microseconds.
    cold_get: f64,
    /// Nanoseconds.
    warm_get: f64,
    /// Milliseconds.
    select: f64,
    /// Nanoseconds.
    index: f64,
}

/// All rows of the cache.
pub fn run(quick: bool) -> Result<()> {
    let count: usize = if quick { 10_000 } else { 100_000 };
    let mut server = spawn(Role::Serve, count, None)?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().context("the server has no output")?).read_line(&mut line)?;
    let found = (|| {
        let measure = |role| -> Result<Found> {
            let output = spawn(role, count, Some(line.trim()))?.wait_with_output()?;
            serde_json::from_slice(&output.stdout).with_context(|| format!("{role:?} has found nothing"))
        };
        Ok::<_, anyhow::Error>((measure(Role::Ours)?, measure(Role::Plain)?, measure(Role::Kube)?))
    })();
    server.kill()?;
    server.wait()?;
    let (ours, plain, kube) = found?;
    rows(count, &ours, &plain, &kube)
}

fn rows(count: usize, ours: &Found, plain: &Found, kube: &Found) -> Result<()> {
    let scale = count as f64 / 100_000.0;
    let row = |what: &str, peer: String, goal: Goal, measured: f64, unit: &str, any_size: bool| {
        Row { what, peer, goal, measured, unit, any_size }.print()
    };
    let kube_memory = format!("kube-rs {:.0}", kube.growth);
    row(
        "cache: RSS of 100,000 pods, compressed",
        kube_memory.clone(),
        Goal::AtMost(120.0 * scale),
        ours.growth,
        "MiB",
        false,
    )?;
    row(
        "cache: peak over that",
        format!("kube-rs {:.2}", kube.peak / kube.growth),
        Goal::AtMost(1.5),
        ours.peak / ours.growth,
        "×",
        false,
    )?;
    row(
        "cache: RSS of 100,000 pods, as they came",
        kube_memory,
        Goal::AtMost(220.0 * scale),
        plain.growth,
        "MiB",
        false,
    )?;
    row("cache: peak over that", String::new(), Goal::AtMost(1.5), plain.peak / plain.growth, "×", false)?;
    row(
        "cache: CPU until synced",
        format!("kube-rs {:.2}", kube.cpu),
        Goal::AtMost(kube.cpu / 2.0),
        ours.cpu,
        "s",
        false,
    )?;
    row(
        "cache: time until synced",
        format!("kube-rs {:.2}", kube.wall),
        Goal::AtMost(kube.wall),
        ours.wall,
        "s",
        false,
    )?;
    row("cache: typed get, cold", String::new(), Goal::AtMost(25.0), ours.cold_get, "µs CPU", true)?;
    row(
        "cache: typed get, warm",
        format!("kube-rs {:.0}", kube.warm_get),
        Goal::AtMost(200.0),
        ours.warm_get,
        "ns CPU",
        true,
    )?;
    row(
        "cache: label selector over 100,000 pods",
        format!("kube-rs {:.1}", kube.select),
        Goal::AtMost(30.0 * scale),
        ours.select,
        "ms CPU",
        false,
    )?;
    row("cache: indexed lookup", String::new(), Goal::AtMost(1000.0), ours.index, "ns CPU", true)
}

fn spawn(role: Role, count: usize, port: Option<&str>) -> Result<Child> {
    let role = format!("{role:?}").to_lowercase();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--role", &role, "--count", &count.to_string()]).stdout(Stdio::piped());
    if let Some(port) = port {
        command.args(["--port", port]);
    }
    Ok(command.spawn()?)
}

/// Plays a role in this process.
pub fn play(role: Role, count: usize, port: u16) -> Result<()> {
    // One thread: memory that another thread's allocator keeps would be counted by chance.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = match role {
        Role::Serve => return runtime.block_on(pods::serve(count)),
        Role::Ours => runtime.block_on(informer(port, count, Compression::Lz4))?,
        Role::Plain => runtime.block_on(informer(port, count, Compression::None))?,
        Role::Kube => runtime.block_on(reflector_of_kube(port, count))?,
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn client(port: u16) -> Result<Client> {
    Ok(Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse()?))?)
}

async fn informer(port: u16, count: usize, compression: Compression) -> Result<Found> {
    let client = client(port)?;
    let before = memory("VmRSS:")?;
    let mut informer = None;
    let filled = timed(async {
        let informers = Informers::new(client, InformerOptions { compression, ..InformerOptions::default() });
        let pods = informers.of::<Pod>();
        pods.synced().await;
        informer = Some((informers, pods));
    })
    .await;
    let (_informers, informer) = informer.context("the informer was not started")?;
    let growth = memory("VmRSS:")? - before;
    let lister = informer.lister();
    anyhow::ensure!(lister.len() == count, "{} objects of {count}", lister.len());
    // Everything once more: the peak of a new list counts, too.
    informer.refresh();
    while informer.stats().unchanged.load(Relaxed) < count as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let peak = memory("VmHWM:")? - before;
    informer.add_index("owner", owner_uids);
    let keys: Vec<ObjectKey> =
        lister.metas().iter().step_by(count / 5000).map(|meta| meta.key().clone()).collect();
    let cold_get = each(keys.len(), || get_all(&lister, &keys)).as_nanos() as f64 / 1e3;
    let warm_get = least(9, || each(keys.len(), || get_all(&lister, &keys))).as_nanos() as f64;
    let selector = LabelSelector::parse("app=cart,tier in (front,back)").map_err(anyhow::Error::msg)?;
    let select =
        least(9, || each(1, || drop(black_box(lister.select_metas(None, &selector))))).as_secs_f64() * 1e3;
    let owners: Vec<String> =
        lister.metas().iter().step_by(count / 2000).flat_map(|meta| owner_uids(meta)).collect();
    let look_up = || owners.iter().for_each(|owner| drop(black_box(lister.metas_by_index("owner", owner))));
    let index = least(9, || each(owners.len(), look_up)).as_nanos() as f64;
    let (cpu, wall) = (filled.cpu.as_secs_f64(), filled.wall.as_secs_f64());
    Ok(Found { growth, peak, cpu, wall, cold_get, warm_get, select, index })
}

fn get_all(lister: &Lister<Pod>, keys: &[ObjectKey]) {
    for key in keys {
        black_box(lister.get(key));
    }
}

async fn reflector_of_kube(port: u16, count: usize) -> Result<Found> {
    let api: Api<Pod> = Api::all(client(port)?);
    let before = memory("VmRSS:")?;
    let (store, writer) = reflector::store();
    let filled = timed(async {
        let stream = watcher(api, watcher::Config::default()).reflect(writer).applied_objects();
        tokio::spawn(stream.for_each(|_| ready(())));
        let _ = store.wait_until_ready().await;
    })
    .await;
    let (growth, peak) = (memory("VmRSS:")? - before, memory("VmHWM:")? - before);
    anyhow::ensure!(store.len() == count, "{} objects of {count}", store.len());
    let refs: Vec<_> = store
        .state()
        .iter()
        .step_by(count / 5000)
        .map(|pod| reflector::ObjectRef::from_obj(&**pod))
        .collect();
    let warm_get =
        least(9, || each(refs.len(), || refs.iter().for_each(|name| drop(black_box(store.get(name))))))
            .as_nanos();
    let is_cart = |pod: &Pod| {
        pod.metadata.labels.as_ref().is_some_and(|labels| labels.get("app").is_some_and(|app| app == "cart"))
    };
    let select = least(9, || {
        each(1, || drop(black_box(store.state().into_iter().filter(|pod| is_cart(pod)).collect::<Vec<_>>())))
    });
    Ok(Found {
        growth,
        peak,
        cpu: filled.cpu.as_secs_f64(),
        wall: filled.wall.as_secs_f64(),
        warm_get: warm_get as f64,
        select: select.as_secs_f64() * 1e3,
        ..Found::default()
    })
}

/// CPU time of each of `count`: others on this machine shall not count.
fn each(count: usize, work: impl FnOnce()) -> Duration {
    let start = bench_rows::cpu();
    work();
    (bench_rows::cpu() - start) / u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

fn least(times: usize, mut work: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| work()).min().unwrap_or_default()
}

/// A figure of this process in MiB.
fn memory(field: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such figure")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
