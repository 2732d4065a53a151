//! Replays recorded behaviour (`tests/oracle`) on a running `shoal up`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::command::{Counts, run_counted};
use super::tools::{self, Tools};
use crate::kubeconfig;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// The checker plays the kubelet and knows of no scheduler.
const PARTS: [&str; 2] = ["--without", "scheduler,node,application"];
/// The same, and controllers come from elsewhere.
const BARE: [&str; 2] = ["--without", "controllers,scheduler,node,metrics,application"];
/// What a scenario about controllers is tagged with.
const CONTROLLERS: &str = "controllers";

/// Checks all scenarios in memory and then on disk. `only` narrows the choice.
pub fn run(workspace: &Workspace, tools: &Tools, only: &[String]) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let folder = workspace.target.join("oracle");
    let _ = std::fs::remove_dir_all(&folder);
    let data = folder.join("data");
    let mut counts = Counts::default();
    for (name, mode) in [("memory", Mode::Ephemeral), ("disk", Mode::Durable(&data))] {
        println!("  -> {name}");
        let run = Run { binary: &binary, mode, parts: &PARTS, folder: &folder.join(name), beside: false };
        counts += check(workspace, tools, only, &run)?;
    }
    if only.is_empty() || only.iter().any(|wanted| wanted == CONTROLLERS) {
        println!("  -> controllers in a process of their own, over TLS");
        let apart = folder.join("apart");
        let run = Run { binary: &binary, mode: Mode::Ephemeral, parts: &BARE, folder: &apart, beside: true };
        counts += check(workspace, tools, &[CONTROLLERS.to_owned()], &run)?;
    }
    Ok(counts)
}

/// What is checked, and how it is started.
struct Run<'a> {
    binary: &'a Path,
    mode: Mode<'a>,
    parts: &'a [&'a str],
    folder: &'a Path,
    /// With `shoal run controllers` beside it.
    beside: bool,
}

/// A process that ends with this.
struct Beside(Child);

impl Beside {
    /// `shoal run controllers` for the cluster of a kubeconfig.
    fn start(binary: &Path, kubeconfig: &Path, folder: &Path) -> Result<Beside> {
        let config = folder.join("controllers.yaml");
        std::fs::write(&config, "metrics: {enabled: false}\nlogging: {level: warn, format: text}\n")?;
        let log = std::fs::File::create(folder.join("controllers.log"))?;
        let mut command = Command::new(binary);
        command.args(["run", CONTROLLERS, "--config"]).arg(&config).env("KUBECONFIG", kubeconfig);
        Ok(Beside(command.stdin(Stdio::null()).stderr(log).spawn().context("starting the controllers")?))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check(workspace: &Workspace, tools: &Tools, only: &[String], run: &Run<'_>) -> Result<Counts> {
    let folder = run.folder;
    let log = folder.join("server.log");
    let server = Server::start_with(run.binary, run.mode, run.parts, &folder.join("kubeconfig"), &log)?;
    let beside = match run.beside {
        true => Some(Beside::start(run.binary, &server.kubeconfig, folder)?),
        false => None,
    };
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
    drop(beside);
    let status = server.stop()?;
    if !status.success() {
        println!("    shoal up ended with {status} after SIGTERM; its log: {}", log.display());
        counts.failed += 1;
    }
    Ok(counts)
}
