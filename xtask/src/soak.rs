//! `cargo xtask soak`: the tests that take longer than anybody wants to wait for every day.

use anyhow::Result;

use crate::workspace::cargo;

/// What to repeat.
#[derive(clap::Args)]
pub struct Options {
    /// How often the server is killed while it writes.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Run a debug build: slower, with all checks.
    #[arg(long)]
    debug: bool,
}

/// Kills a server in the middle of durable writes, at another moment each time and every second time while it writes
/// snapshots too, and looks whether everything acknowledged is there; true if it always was.
pub fn run(options: &Options) -> Result<bool> {
    let mut command = cargo();
    command.args(["test", "--package", "shoal", "--test", "durability"]);
    if !options.debug {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", "what_was_acknowledged_survives_kill_9"]);
    command.env("SHOAL_SOAK_ROUNDS", options.rounds.to_string());
    Ok(command.status()?.success())
}
