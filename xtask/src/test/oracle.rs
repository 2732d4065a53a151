//! Replays recorded behaviour (`tests/oracle`) on a running `shoal up`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::command::{Counts, run_counted};
use super::tools::{self, Tools};
use crate::kubeconfig;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// The checker plays the kubelet and knows of no scheduler.
const PARTS: [&str; 2] = ["--without", "scheduler,node"];

/// Checks all scenarios in memory and then on disk. `only` narrows the choice.
pub fn run(workspace: &Workspace, tools: &Tools, only: &[String]) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let folder = workspace.target.join("oracle");
    let _ = std::fs::remove_dir_all(&folder);
    let data = folder.join("data");
    let mut counts = Counts::default();
    for (name, mode) in [("memory", Mode::Ephemeral), ("disk", Mode::Durable(&data))] {
        println!("  -> {name}");
        counts += check(workspace, tools, only, &binary, mode, &folder.join(name))?;
    }
    Ok(counts)
}

fn check(
    workspace: &Workspace,
    tools: &Tools,
    only: &[String],
    binary: &Path,
    mode: Mode<'_>,
    folder: &Path,
) -> Result<Counts> {
    let log = folder.join("server.log");
    let server = Server::start_with(binary, mode, &PARTS, &folder.join("kubeconfig"), &log)?;
    // The checker reads JSON itself but would ask kubectl to read YAML.
    let readable = folder.join("kubeconfig.json");
    std::fs::write(&readable, kubeconfig::to_json(&server.kubeconfig)?)?;
    let mut command = Command::new(tools::python()?);
    command
        .arg(workspace.root.join("tests/oracle/replay.py"))
        .args(["check", "--kubeconfig"])
        .arg(&readable)
        .env("PATH", &tools.path)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if !only.is_empty() {
        command.args(["--only", &only.join(",")]);
    }
    let mut counts = run_counted(&mut command)?;
    let status = server.stop()?;
    if !status.success() {
        println!("    shoal up ended with {status} after SIGTERM; its log: {}", log.display());
        counts.failed += 1;
    }
    Ok(counts)
}
