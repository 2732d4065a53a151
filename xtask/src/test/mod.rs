//! `cargo xtask test`: gets missing tools, then runs every test and counts.

mod application;
mod clients;
mod command;
mod examples;
mod kubectl;
mod oracle;
mod sharding;
mod tools;
mod transcript;

use std::time::Instant;

use anyhow::Result;

use crate::simulate;
use crate::workspace::{Workspace, cargo};
use command::{Counts, run_counted};

/// Gigabytes that the target folder has after a run from nothing, and some more. Incremental builds add as much again.
const ROOM: u64 = 12;

/// What to run; everything by default.
#[derive(clap::Args)]
pub struct Options {
    /// Run only these steps, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Step>,
    /// Check these recorded scenarios or tags only, comma-separated.
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
}

/// The steps, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Unit and integration tests of all crates.
    Crates,
    /// What the framework can be built with besides: traces for a collector, CPU profiles.
    Features,
    /// Examples in the documentation.
    Docs,
    /// The sharding protocol in simulated worlds.
    Simulation,
    /// Replicas of a sharded controller as processes: killed, stopped, cut off, replaced and scaled.
    Sharding,
    /// Programs outside the workspace that embed the server.
    Examples,
    /// Recorded behaviour of a real API server, replayed on `shoal up`, in memory and on disk.
    Oracle,
    /// What people do with kubectl, on `shoal up`.
    Kubectl,
    /// The Application operator as pods of `shoal up`, by its usage guide, and its story.
    Application,
    /// Clients and operators of other projects, on `shoal up`: Python, kopf, kube-rs, JavaScript.
    Clients,
}

impl Step {
    const ALL: [Step; 10] = [
        Step::Crates,
        Step::Features,
        Step::Docs,
        Step::Simulation,
        Step::Sharding,
        Step::Examples,
        Step::Oracle,
        Step::Kubectl,
        Step::Application,
        Step::Clients,
    ];

    /// Programs of others, real time and the network: what fails once and not again is told as flaky. The remaining steps have a
    /// second try of their own, or none: a broken promise of the protocol is one, however seldom.
    fn has_a_second_try(self) -> bool {
        matches!(self, Step::Oracle | Step::Kubectl | Step::Clients)
    }

    fn title(self) -> &'static str {
        match self {
            Step::Crates => "tests of the crates",
            Step::Features => "traces and profiles, which are off by default",
            Step::Docs => "examples in the documentation",
            Step::Simulation => "the sharding protocol in simulated worlds",
            Step::Sharding => "replicas that are killed, stopped and scaled",
            Step::Examples => "programs outside the workspace",
            Step::Oracle => "recorded behaviour of a real API server",
            Step::Kubectl => "everyday use with kubectl",
            Step::Application => "the Application operator, by its usage guide",
            Step::Clients => "clients and operators of other projects",
        }
    }
}

/// Writes `docs/kubectl-transcript.md` anew.
pub fn write_transcript() -> Result<()> {
    transcript::write()
}

/// Runs the steps; true if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let workspace = Workspace::load()?;
    let started = Instant::now();
    let chosen: Vec<Step> =
        Step::ALL.into_iter().filter(|step| options.only.is_empty() || options.only.contains(step)).collect();
    tell_of_little_room(&workspace);
    println!("==> tools");
    let tools = tools::get(&workspace)?;
    let mut total = Counts::default();
    let mut failed_steps = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        let began = Instant::now();
        println!("==> {} ({} of {})", step.title(), index + 1, chosen.len());
        let once = || {
            let outcome = match step {
                Step::Crates => crates(),
                Step::Features => features(),
                Step::Docs => docs(),
                Step::Simulation => simulation(),
                Step::Sharding => sharding::run(&workspace),
                Step::Examples => examples::run(&workspace),
                Step::Oracle => oracle::run(&workspace, &tools, &options.scenarios),
                Step::Kubectl => kubectl::run(&workspace, &tools),
                Step::Application => application::run_all(&workspace, &tools),
                Step::Clients => clients::run(&workspace, &tools),
            };
            // A step that could not even run is one failure, and the others still tell what they know.
            outcome.unwrap_or_else(|error| {
                println!("    {error:#}");
                Counts::failure(format!("{}: {error:#}", step.title()))
            })
        };
        let mut counts = once();
        if counts.failed > 0 && step.has_a_second_try() {
            println!("    {counts}; once more");
            counts = counts.then(once());
        }
        println!("<== {}: {counts} in {:.1} s", step.title(), began.elapsed().as_secs_f64());
        if counts.failed > 0 {
            failed_steps.push(step.title());
        }
        total += counts;
    }
    println!("all steps: {:.1} s", started.elapsed().as_secs_f64());
    if !failed_steps.is_empty() {
        println!("failed: {}", failed_steps.join(", "));
    }
    for line in &total.told {
        println!("    {line}");
    }
    println!("{total}");
    Ok(total.failed == 0)
}

/// A full disk shows as failures of anything, most often of a compiler.
fn tell_of_little_room(workspace: &Workspace) {
    let Ok(room) = rustix::fs::statvfs(&workspace.root) else { return };
    let free = room.f_bavail * room.f_frsize / 1_000_000_000;
    if free < ROOM {
        println!(
            "    only {free} GB are free in {}: all tests from nothing need about {ROOM}; `cargo clean` makes room",
            workspace.root.display()
        );
    }
}

fn crates() -> Result<Counts> {
    if tools::has_nextest() {
        // A race that shows once in a thousand runs is told loudly, but does not hide what else the run has found.
        return tests(&["nextest", "run", "--no-tests", "pass", "--retries", "1"], &[]);
    }
    tests(&["test"], &["--all-targets"])
}

/// Only the tests that are others with these features. Of the whole workspace, because then all crates but the
/// framework itself are built as for the step before, and need not be built again.
fn features() -> Result<Counts> {
    let features = ["--features", "shoal-runtime/otel,shoal-runtime/profiling"];
    tests(&["test"], &[&features[..], &["--test", "trace", "--test", "profiles"]].concat())
}

fn tests(runner: &[&str], what: &[&str]) -> Result<Counts> {
    run_counted(cargo().args(runner).args(["--workspace", "--no-fail-fast"]).args(what))
}

/// One claim: no seed finds a broken promise.
fn simulation() -> Result<Counts> {
    let passed = u64::from(simulate::sharding()?);
    Ok(Counts { passed, failed: 1 - passed, ..Counts::default() })
}

fn docs() -> Result<Counts> {
    run_counted(cargo().args(["test", "--workspace", "--doc", "--no-fail-fast"]))
}
