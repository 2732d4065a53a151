//! The command line.

use std::io::IsTerminal;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::{crds, demo, manifests, run, shards, up};

/// A Kubernetes cluster in one small process
#[derive(Parser)]
#[command(name = "shoal", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Example:\n  shoal up --ephemeral        # a cluster in memory, gone when it stops\n  shoal shards status         # who works on what, in any cluster"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Args),
    Run(run::Args),
    Crds(crds::Args),
    Manifests(manifests::Args),
    Shards(shards::Args),
    Demo(demo::Args),
    #[command(hide = true)]
    DemoReplica(demo::sharding::replica::Args),
}

/// Reads the command line and does what it says. `started` is when the process began.
pub fn run(started: Instant) -> anyhow::Result<()> {
    demo::process::end_with_parent();
    let cli = Cli::parse();
    match cli.command {
        Command::Up(args) => {
            log_for_people("warn");
            on_runtime(up::run(args, started))
        }
        // Its settings say how it logs.
        Command::Run(args) => on_runtime(run::run(args)),
        Command::Crds(args) => crds::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Shards(args) => {
            log_for_people("warn");
            on_runtime(shards::run(args))
        }
        Command::Demo(args) => {
            // A story has faults on purpose; what they cost its driver is no news.
            log_for_people("off");
            on_runtime(demo::run(args))
        }
        Command::DemoReplica(args) => {
            log_for_people("warn");
            on_runtime(demo::sharding::replica::run(args))
        }
    }
}

fn log_for_people(usual: &str) {
    let filter = EnvFilter::try_from_env("SHOAL_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}

/// Runs `task` on a runtime that stays small on large machines.
fn on_runtime(task: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 4))
        .enable_all()
        .build()
        .map_err(|e| anyhow::anyhow!("cannot start threads: {e}; raise the limit of processes (ulimit -u)"))?
        .block_on(task)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
