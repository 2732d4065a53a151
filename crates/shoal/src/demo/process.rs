//! The processes of stories. Whatever happens to a story, none of them stays behind.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Tells a child of this binary to end with its parent.
pub const WITH_PARENT: &str = "SHOAL_ENDS_WITH_PARENT";

/// A process; killed when dropped.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it; it ends with this process at the latest.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Process> {
        command.env(WITH_PARENT, "1").stdin(Stdio::null());
        let child =
            command.spawn().context("cannot start a process of this story; check the limit of processes")?;
        Ok(Process { child })
    }

    /// Sends a signal; false if the process has ended.
    pub fn signal(&self, signal: Signal) -> bool {
        kill_process(Pid::from_child(&self.child), signal).is_ok()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        // The kernel counts in hundredths for every program, whatever its own tick is.
        Some(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `shoal up` in memory, and the kubeconfig for it.
pub struct Server {
    /// The process.
    pub process: Process,
    /// Its kubeconfig.
    pub kubeconfig: PathBuf,
    /// Who did what.
    pub audit: PathBuf,
}

impl Server {
    /// Starts it with further arguments and waits until it is ready.
    pub fn start(binary: &Path, folder: &Path, further: &[&str]) -> anyhow::Result<Server> {
        let (kubeconfig, audit) = (folder.join("kubeconfig"), folder.join("audit.log"));
        let mut command = Command::new(binary);
        command.args(["up", "--ephemeral", "--port", "0", "--kubeconfig"]).arg(&kubeconfig);
        command.args(further).arg("--audit-log").arg(&audit);
        command.stdout(Stdio::piped()).stderr(log(&folder.join("up.log"))?);
        let mut process = Process::spawn(&mut command)?;
        let output = process.child.stdout.take().context("the cluster's output cannot be read")?;
        let mut ready = String::new();
        BufReader::new(output).read_line(&mut ready)?;
        if !ready.starts_with("ready ") {
            let said = std::fs::read_to_string(folder.join("up.log")).unwrap_or_default();
            bail!("shoal up did not start: {}; try it alone", said.trim());
        }
        Ok(Server { process, kubeconfig, audit })
    }
}

/// Ends with the process that started this one, if it is part of a story.
pub fn end_with_parent() {
    if std::env::var_os(WITH_PARENT).is_some() {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// A new file for what a process says.
pub fn log(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}
