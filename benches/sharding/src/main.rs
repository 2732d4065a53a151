//! Measures sharding. Prints one JSON object per row.

mod group;
mod placement;
mod processes;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// Measures sharding; `cargo xtask bench sharding` builds this, runs it and judges the rows.
#[derive(Parser)]
struct Options {
    /// Smaller runs.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// The `shoal` whose processes are measured.
    #[arg(long, value_name = "FILE")]
    shoal: PathBuf,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What moves where, on paper.
    Placement,
    /// Replicas that are killed, stopped and scaled.
    Processes,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Placement) {
        placement::run(options.quick)?;
    }
    if wanted(Part::Processes) {
        processes::run(&options.shoal, options.quick)?;
    }
    Ok(())
}
