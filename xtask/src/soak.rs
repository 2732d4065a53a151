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
    /// How many objects with finalizers are deleted at once.
    #[arg(long, default_value_t = 10_000)]
    finalizers: u32,
    /// Run a debug build: slower, with all checks.
    #[arg(long)]
    debug: bool,
}

/// Kills a server in the middle of durable writes, at another moment each time and every second time while it writes
/// snapshots too, and looks whether everything acknowledged is there; does the same to a whole cluster with workloads; lets an
/// operator clean up after thousands of objects; then plays with replicas of a sharded controller. True if every promise was kept.
pub fn run(options: &Options) -> Result<bool> {
    let rounds = |command: &mut Command| {
        command.env("SHOAL_SOAK_ROUNDS", options.rounds.to_string());
    };
    let durable = test(options, "shoal", "durability", "what_was_acknowledged_survives_kill_9", rounds)?;
    let living = test(options, "shoal", "living", "a_cluster_that_is_killed_at_any_moment", rounds)?;
    let finalizers = "thousands_of_finalizers_are_run_when_everything_is_deleted_at_once";
    let cleaned = test(options, "shoal-runtime", "controller_faults", finalizers, |command| {
        command.env("FINALIZERS", options.finalizers.to_string());
    })?;
    let simulated = simulate::seeds(options.seeds)?;
    Ok(sharding(options)? && simulated && durable && living && cleaned)
}

/// Runs one test, longer than usual.
fn test(
    options: &Options,
    package: &str,
    file: &str,
    name: &str,
    lengthen: impl FnOnce(&mut Command),
) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--package", package, "--test", file]);
    if !options.debug {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", name]);
    lengthen(&mut command);
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
