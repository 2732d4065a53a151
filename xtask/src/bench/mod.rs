//! `cargo xtask bench`: measures release builds and compares with the goals.

mod apiserver;
mod application;
mod bodies;
mod client;
mod cluster;
mod create;
mod custom;
mod inside;
mod lines;
mod process;
mod program;
mod report;
mod rollout;
mod watch;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace::{Profile, Workspace};

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The API server, over real TLS sockets, from a second process.
    Apiserver(Settings),
    /// The framework, and kube-rs doing the same.
    Runtime(program::Settings),
    /// Sharding: what moves, how even it is, how fast slots change hands.
    Sharding(program::Settings),
    /// A whole cluster: controllers, scheduler and simulated nodes.
    Cluster(cluster::Settings),
    /// The Application operator: three replicas on a cluster with simulated nodes.
    Application(application::Settings),
}

/// How to measure.
#[derive(clap::Args)]
struct Settings {
    /// Fewer and smaller runs: a first look, not a result. Rows that depend on the size are not judged.
    #[arg(long)]
    quick: bool,
    /// Also write the rows as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// HTTP/2 connections that the 64 workers share (client-go uses one).
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Measure this `shoal` instead of building one, for example an older release.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Measure only these parts, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<apiserver::Part>,
}

/// Builds in release mode, continues there, and measures.
pub fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::load()?;
    if cfg!(debug_assertions) {
        return continue_in_release(&workspace);
    }
    let settings = match &options.what {
        What::Apiserver(settings) => settings,
        What::Runtime(settings) => return program::run(&workspace, "bench-runtime", settings),
        What::Sharding(settings) => return program::run(&workspace, "bench-sharding", settings),
        What::Cluster(settings) => return in_one_thread(cluster::run(&workspace, settings)),
        What::Application(settings) => return in_one_thread(application::run(&workspace, settings)),
    };
    let binary = match &settings.binary {
        Some(binary) => binary.clone(),
        None => workspace.build("shoal", Profile::Release)?,
    };
    in_one_thread(apiserver::run(&workspace, binary, settings))
}

/// One thread: the client shares the machine with the server it measures.
fn in_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// A debug client would be slower than the server it measures.
fn continue_in_release(workspace: &Workspace) -> Result<()> {
    let binary = workspace.build("xtask", Profile::Release)?;
    let error = std::process::Command::new(&binary).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("running {}", binary.display()))
}
