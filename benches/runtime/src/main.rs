//! Measures the framework, and kube-rs doing the same in the same run. Prints one JSON object per row.

mod annotate;
mod cache;
mod latency;
mod pods;
mod queue;
mod workers;

use std::path::PathBuf;

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
    /// The `shoal` program, for what is measured over TLS.
    #[arg(long, value_name = "FILE")]
    shoal: Option<PathBuf>,
    /// What this process does for another one.
    #[arg(long, hide = true)]
    role: Option<cache::Role>,
    /// How many objects.
    #[arg(long, hide = true, default_value_t = 0)]
    count: usize,
    /// Where they are served.
    #[arg(long, hide = true, default_value_t = 0)]
    port: u16,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Annotate,
    Cache,
    Latency,
    Queue,
    Workers,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(role) = options.role {
        return cache::play(role, options.count, options.port);
    }
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Queue) {
        queue::run(options.quick)?;
    }
    if wanted(Part::Workers) {
        workers::run(options.quick)?;
    }
    if wanted(Part::Latency) {
        latency::run(options.quick)?;
    }
    if wanted(Part::Annotate) {
        annotate::run(options.quick, options.shoal.as_deref())?;
    }
    if wanted(Part::Cache) {
        cache::run(options.quick)?;
    }
    Ok(())
}
