//! Programs outside the workspace that embed the server: they must build, run and serve.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::command::Counts;
use crate::workspace::{Workspace, cargo};

/// Builds and runs each one.
pub fn run(workspace: &Workspace) -> Result<Counts> {
    let mut counts = Counts::default();
    for name in ["embed"] {
        match check(workspace, name) {
            Ok(line) => {
                println!("    {name}: {line}");
                counts.passed += 1;
            }
            Err(error) => {
                println!("    {name}: {error:#}");
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// The line with which the example says that it serves.
fn check(workspace: &Workspace, name: &str) -> Result<String> {
    let folder = workspace.root.join("examples").join(name);
    // The versions that everything else is tested with; cargo leaves out what the example does not need.
    std::fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("copying Cargo.lock")?;
    let built = cargo()
        .args(["build", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&workspace.target)
        .status();
    if !built.context("running cargo build")?.success() {
        bail!("does not build");
    }
    let program = workspace.target.join("debug").join(name);
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let outcome = serving(&mut child);
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

fn serving(child: &mut Child) -> Result<String> {
    let output = child.stdout.take().context("no output to read")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line.starts_with("serving https://") {
            return Ok(line);
        }
    }
    bail!("ended without serving")
}
