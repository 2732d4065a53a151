//! Programs outside the workspace: one embeds the server and must serve; operators must pass their own tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::command::Counts;
use crate::workspace::{Workspace, cargo};

/// Builds and runs each one.
pub fn run(workspace: &Workspace) -> Result<Counts> {
    let mut counts = Counts::default();
    let checks: [(&str, Check); 3] = [("embed", serves), ("label_mirror", tests), ("web_app", tests)];
    for (name, check) in checks {
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

/// Says what is good about an example.
type Check = fn(&Workspace, &str) -> Result<String>;

/// The line with which the example says that it serves.
fn serves(workspace: &Workspace, name: &str) -> Result<String> {
    cargo_in(workspace, name, "build")?;
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

/// Runs the tests that an example has of itself.
fn tests(workspace: &Workspace, name: &str) -> Result<String> {
    cargo_in(workspace, name, "test")?;
    Ok("its tests pass".to_owned())
}

fn cargo_in(workspace: &Workspace, name: &str, command: &str) -> Result<()> {
    let folder = workspace.root.join("examples").join(name);
    // The versions that everything else is tested with; cargo leaves out what the example does not need.
    std::fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("copying Cargo.lock")?;
    let status = cargo()
        .args([command, "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&workspace.target)
        .status();
    if !status.with_context(|| format!("running cargo {command}"))?.success() {
        bail!("cargo {command} fails");
    }
    Ok(())
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
