//! `cargo xtask simulate`: seeded worlds full of faults, in search of a broken promise.

use anyhow::Result;

use crate::workspace::cargo;

/// What to simulate.
#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Replicas that share slots, on a model of the API server.
    Sharding(Sharding),
}

#[derive(clap::Args)]
struct Sharding {
    /// How many seeds.
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one; tells its story if it fails.
    #[arg(long)]
    seed: Option<u64>,
    /// Remove one guard of the protocol: a violation must be found.
    #[arg(long, value_name = "GUARD")]
    without: Option<String>,
    /// Remove every guard in turn, with up to `--seeds` seeds each.
    #[arg(long)]
    mutants: bool,
    /// Threads; all cores if not given.
    #[arg(long)]
    threads: Option<usize>,
}

/// Enough to meet every pair of faults; more belongs to a run of its own.
const SEEDS: u64 = 20_000;

/// Replicas that share slots, on enough seeds for every test run.
pub fn sharding() -> Result<bool> {
    seeds(SEEDS)
}

/// The same on so many seeds.
pub fn seeds(seeds: u64) -> Result<bool> {
    let sharding = Sharding { seeds, first: 0, seed: None, without: None, mutants: false, threads: None };
    run(&Options { what: What::Sharding(sharding) })
}

/// Builds the simulator alone, in release mode, and runs it; true if nothing was found that should not be.
pub fn run(options: &Options) -> Result<bool> {
    let What::Sharding(sharding) = &options.what;
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "shoal-sharding", "--features", "simulator"]);
    command.args(["--example", "simulate", "--"]);
    command.args(["--seeds", &sharding.seeds.to_string(), "--first", &sharding.first.to_string()]);
    if let Some(seed) = sharding.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(guard) = &sharding.without {
        command.args(["--without", guard]);
    }
    if sharding.mutants {
        command.arg("--mutants");
    }
    if let Some(threads) = sharding.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    Ok(command.status()?.success())
}
