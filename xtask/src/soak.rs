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
/// snapshots too, and looks whether everything acknowledged is there; does the same to a whole cluster; then plays with replicas of a sharded controller. True if
/// every promise was kept.
pub fn run(options: &Options) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--package", "shoal", "--test", "durability"]);
    if !options.debug {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", "what_was_acknowledged_survives_kill_9"]);
    command.env("SHOAL_SOAK_ROUNDS", options.rounds.to_string());
    let durable = command.status()?.success();
    let simulated = simulate::seeds(options.seeds)?;
    let living = living(options)?;
    Ok(sharding(options)? && simulated && durable && living)
}

/// A whole cluster with workloads, killed at one moment after the other: it goes on, and does nothing twice.
fn living(options: &Options) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--package", "shoal", "--test", "living"]);
    if !options.debug {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", "a_cluster_that_is_killed_at_any_moment"]);
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
