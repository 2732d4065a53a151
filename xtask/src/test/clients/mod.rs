//! Clients and operators of other projects on `shoal up`: over TLS, with the kubeconfig it writes and nothing else.
//!
//! Programs in `tests/clients` use a client and print a line per use. They are independent and run at the same time,
//! each on a server of its own.

mod javascript;
mod kopf;
mod kube_rs;
mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::command::{Counts, FAILED, run_reporting};
use super::tools::Tools;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// The uses play controllers and kubelets themselves, and count what is there.
const ALONE: [&str; 2] = ["--without", "controllers,scheduler,application"];

/// What all clients need.
struct Ground<'a> {
    workspace: &'a Workspace,
    tools: &'a Tools,
    /// The server's program.
    binary: PathBuf,
    /// Logs, kubeconfigs and home folders.
    folder: PathBuf,
}

/// Makes a client ready and runs its uses.
type Client = fn(&Ground<'_>) -> Result<Counts>;

/// The same with the Python that everything is installed for.
type InPython = fn(&Ground<'_>, &Path) -> Result<Counts>;

/// The Python ones share what is installed for them.
const CLIENTS: &[(&str, Client)] =
    &[("python", python_and_kopf), ("kube-rs", kube_rs::run), ("javascript", javascript::run)];

/// Runs all of them.
pub fn run(workspace: &Workspace, tools: &Tools) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let folder = workspace.target.join("clients");
    let _ = std::fs::remove_dir_all(&folder);
    let ground = &Ground { workspace, tools, binary, folder };
    let jobs = CLIENTS.iter().map(|(name, client)| (*name, move || client(ground)));
    Ok(at_once(CLIENTS.len(), jobs.collect()))
}

fn python_and_kopf(ground: &Ground<'_>) -> Result<Counts> {
    let python = &python::install(ground.workspace)?;
    let both: [(&str, InPython); 2] = [("python", python::run), ("kopf", kopf::run)];
    let jobs = both.into_iter().map(|(name, client)| (name, move || client(ground, python)));
    Ok(at_once(both.len(), jobs.collect()))
}

/// Does the jobs, so many at a time. One that cannot even run is one failure.
fn at_once<Job>(workers: usize, jobs: Vec<(&str, Job)>) -> Counts
where
    Job: FnOnce() -> Result<Counts> + Send,
{
    let queue = std::sync::Mutex::new(jobs.into_iter());
    let work = || {
        let mut counts = Counts::default();
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some((name, job)) = next else { return counts };
            counts += job().unwrap_or_else(|error| {
                let line = format!("FAILED {name}: {error:#}");
                println!("{line}");
                Counts::failure(line)
            });
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut total = Counts::default();
        for worker in running {
            total += worker.join().unwrap_or(FAILED);
        }
        total
    })
}

impl Ground<'_> {
    /// Runs a program against a new server and counts what it reports. The name is that of a folder for both.
    fn check(&self, name: &str, command: &mut Command) -> Result<Counts> {
        let folder = self.folder.join(name);
        let home = folder.join("home");
        std::fs::create_dir_all(&home).with_context(|| format!("creating {}", home.display()))?;
        let log = folder.join("server.log");
        let server =
            Server::start_with(&self.binary, Mode::Ephemeral, &ALONE, &folder.join("kubeconfig"), &log)?;
        command
            .env("KUBECONFIG", &server.kubeconfig)
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("PATH", &self.tools.path)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut counts = run_reporting(command)?;
        let status = server.stop()?;
        if !status.success() {
            let line = format!("FAILED {name}: shoal up ended with {status}; its log: {}", log.display());
            println!("{line}");
            counts += Counts::failure(line);
        }
        Ok(counts)
    }

    /// The folder of a client's program.
    fn sources(&self, name: &str) -> PathBuf {
        self.workspace.root.join("tests/clients").join(name)
    }
}

/// Runs `install` in an empty folder, unless it was already done there for the same `wanted`.
fn installed(folder: &Path, wanted: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = folder.join(".installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    install()?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// Runs a step of an installation; `remedy` is for when the program is missing.
fn install_step(command: &mut Command, remedy: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name}: {remedy}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.trim().lines().collect();
        bail!("{name} failed ({remedy}): {}", lines[lines.len().saturating_sub(5)..].join("\n"));
    }
    Ok(())
}
