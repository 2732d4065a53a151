//! Parts that a program in `benches` measures, because it needs crates that `xtask` does without.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::process::Reading;
use super::report::{Goal, Report};
use crate::workspace::{Profile, Workspace};

/// How to measure.
#[derive(clap::Args)]
pub struct Settings {
    /// Smaller runs: a first look, not a result. Rows that depend on the size are not judged.
    #[arg(long)]
    quick: bool,
    /// Also write the rows as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only these parts, comma-separated; an unknown name lists them.
    #[arg(long)]
    only: Option<String>,
}

/// A row as the program prints it.
#[derive(Deserialize)]
struct Line {
    what: String,
    peer: String,
    goal: Goal,
    measured: f64,
    unit: String,
    /// Whether the goal holds for a quick run too.
    any_size: bool,
}

/// Builds the package `program`, runs it and judges its rows.
pub fn run(workspace: &Workspace, program: &str, settings: &Settings) -> Result<()> {
    let binary = workspace.build(program, Profile::Release)?;
    // The server of some rows, as another process.
    let shoal = workspace.build("shoal", Profile::Release)?;
    let mut command = Command::new(&binary);
    command.arg("--shoal").arg(&shoal);
    command.args(settings.quick.then_some("--quick"));
    command.args(settings.only.iter().flat_map(|parts| ["--only", parts]));
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("running {program}"))?;
    let output = child.stdout.take().context("the program's output is not piped")?;

    let mut report = Report::new(settings.quick);
    let mut reading = Reading::now(child.id())?;
    for line in BufReader::new(output).lines() {
        let line: Line = serde_json::from_str(&line?).context("reading a row")?;
        let Line { what, peer, goal, measured, unit, any_size } = &line;
        match any_size {
            true => report.row(what, peer, *goal, *measured, unit),
            false => report.sized_row(what, peer, *goal, *measured, unit),
        }
        // The last row comes with the end of the program, of which nothing can be read any more.
        if let (Ok(usage), Ok(now)) = (reading.until_now(), Reading::now(child.id())) {
            report.noise(&usage);
            reading = now;
        }
    }
    if !child.wait()?.success() {
        bail!("{program} failed");
    }
    report.finish(settings.json.as_deref())
}
