//! The engine behind `cargo xtask`: one file or folder per command.

mod bench;
mod codegen;
mod kubeconfig;
mod server;
mod simulate;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of this workspace that cargo has no command for.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Get missing tools, then run every test.
    Test(test::Options),
    /// Kill servers and replicas again and again, and look for what is lost.
    Soak(soak::Options),
    /// Search seeded worlds full of faults for a broken promise.
    Simulate(simulate::Options),
    /// Check the shape of the tree: crate arrows, file sizes, docs.
    Tidy,
    /// Write the table of built-in types anew.
    Codegen,
    /// Write docs/kubectl-transcript.md anew, by running kubectl.
    Transcript,
    /// Measure, and compare with the goals.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Tidy => tidy::run(),
        Command::Codegen => codegen::run().map(|()| true),
        Command::Transcript => test::write_transcript().map(|()| true),
        Command::Bench(options) => bench::run(&options).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
