//! Measures the framework, and kube-rs doing the same in the same run. Prints one JSON object per row.

mod queue;
mod row;
mod workers;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// Measures the framework; `cargo xtask bench runtime` builds this, runs it and judges the rows.
#[derive(Parser)]
struct Options {
    /// Smaller runs.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts, comma-separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Queue,
    Workers,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Queue) {
        queue::run(options.quick)?;
    }
    if wanted(Part::Workers) {
        workers::run(options.quick)?;
    }
    Ok(())
}
