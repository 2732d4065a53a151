//! `cargo xtask soak`: the tests that take longer than anybody wants to wait for every day.

use std::process::Command;

use anyhow::{Context, Result};

use crate::simulate;
use crate::workspace::{Profile, Workspace, cargo};

/// What to repeat.
#[derive(clap::Args)]
pub struct Options {
    /// How often the server is killed while it writes.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// How often replicas of a sharded controller are killed, stopped, cut off and replaced.
    #[arg(long, default_value_t = 5)]
    sharding_rounds: u32,
    /// How many simulated worlds of the sharding protocol.
    #[arg(long, default_value_t = 1_000_000)]
    seeds: u64,
    /// Run a debug build: slower, with all checks.
    #[arg(long)]
    debug: bool,
}

/// Kills a server in the middle of durable writes, at another moment each time and every second time while it writes
/// snapshots too, and looks whether everything acknowledged is there; does the same to a whole cluster with workloads; then
/// plays with replicas of a sharded controller. True if every promise was kept.
pub fn run(options: &Options) -> Result<bool> {
    let durable = killed(options, "durability", "what_was_acknowledged_survives_kill_9")?;
    let living = killed(options, "living", "a_cluster_that_is_killed_at_any_moment")?;
    let simulated = simulate::seeds(options.seeds)?;
    Ok(sharding(options)? && simulated && durable && living)
}

/// A test of the binary that kills it once per round.
fn killed(options: &Options, file: &str, test: &str) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--package", "shoal", "--test", file]);
    if !options.debug {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", test]);
    command.env("SHOAL_SOAK_ROUNDS", options.rounds.to_string());
    Ok(command.status()?.success())
}

/// The story of sharding with 10,000 objects, several times over.
fn sharding(options: &Options) -> Result<bool> {
    let profile = if options.debug { Profile::Debug } else { Profile::Release };
    let binary = Workspace::load()?.build("shoal", profile)?;
    let mut command = Command::new(&binary);
    command.args(["demo", "sharding", "--objects", "10000", "--changes", "300", "--rounds"]);
    command.arg(options.sharding_rounds.to_string());
    let status = command.status().with_context(|| format!("running {}", binary.display()))?;
    Ok(status.success())
}
