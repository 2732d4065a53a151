//! The replicas of the story, each a process.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use shoal_runtime::monotonic::Monotonic;

use super::trail::Micros;
use crate::demo::process::{Process, Server, log};

/// How replicas are started.
pub struct Fleet {
    binary: PathBuf,
    folder: PathBuf,
    kubeconfig: PathBuf,
    lease: Duration,
    work: Duration,
    workers: usize,
    clock: Monotonic,
    /// How many ended themselves.
    pub aborted: usize,
    /// In the order in which they were started; ended ones stay for the record.
    pub replicas: Vec<Replica>,
}

/// One replica of the sample controller.
pub struct Replica {
    /// For people.
    pub name: String,
    revision: String,
    /// Its process, until it has ended.
    process: Option<Process>,
    /// Where it writes down what it does.
    pub trail: PathBuf,
    /// When it was stopped and continued.
    pub pauses: Vec<(Micros, Micros)>,
    /// When it was certainly gone.
    pub gone: Option<Micros>,
    /// Whether it was killed, not asked.
    pub killed: bool,
    /// Until then it may end itself, because it was stopped or cut off.
    excused_until: Micros,
}

impl Fleet {
    /// None yet.
    pub fn new(
        binary: &Path,
        folder: &Path,
        server: &Server,
        lease: Duration,
        work: Duration,
        workers: usize,
    ) -> Fleet {
        Fleet {
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            kubeconfig: server.kubeconfig.clone(),
            lease,
            work,
            workers,
            clock: Monotonic::system(),
            aborted: 0,
            replicas: Vec::new(),
        }
    }

    /// The time on the clock of trails.
    pub fn now(&self) -> Micros {
        u64::try_from(self.clock.now().as_micros()).unwrap_or(u64::MAX)
    }

    /// Starts one more and returns its place.
    pub fn start(&mut self, revision: &str) -> anyhow::Result<usize> {
        let at = self.replicas.len();
        let name = format!("r{at:02}");
        let trail = self.folder.join(format!("{name}.trail"));
        let mut command = Command::new(&self.binary);
        command.args(["demo-replica", "--name", &name, "--revision", revision, "--kubeconfig"]);
        command.arg(&self.kubeconfig).arg("--trail").arg(&trail);
        command.args(["--lease-ms", &self.lease.as_millis().to_string()]);
        command.args(["--work-ms", &self.work.as_millis().to_string()]);
        command.args(["--workers", &self.workers.to_string()]);
        command.stdout(Stdio::null()).stderr(log(&self.folder.join(format!("{name}.log")))?);
        let process = Some(Process::spawn(&mut command)?);
        let revision = revision.to_owned();
        let pauses = Vec::new();
        self.replicas.push(Replica {
            name,
            revision,
            process,
            trail,
            pauses,
            gone: None,
            killed: false,
            excused_until: 0,
        });
        Ok(at)
    }

    /// Places of those that run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|at| self.replicas[*at].process.is_some()).collect()
    }

    /// `kill -9`.
    pub fn kill(&mut self, at: usize) {
        // Dropping kills and waits.
        drop(self.replicas[at].process.take());
        self.replicas[at].killed = true;
        self.replicas[at].gone = Some(self.now());
    }

    /// SIGSTOP.
    pub fn stop(&mut self, at: usize) {
        self.signal(at, Signal::STOP);
        let now = self.now();
        self.replicas[at].pauses.push((now, Micros::MAX));
        self.replicas[at].excused_until = Micros::MAX;
    }

    /// SIGCONT.
    pub fn resume(&mut self, at: usize) {
        let now = self.now();
        if let Some(pause) = self.replicas[at].pauses.last_mut() {
            pause.1 = now;
        }
        self.replicas[at].excused_until = now + self.excuse();
        self.signal(at, Signal::CONT);
    }

    /// Nobody reaches the API server from now on, or everybody does again.
    pub fn cut_off(&mut self, cut: bool) {
        let until = if cut { Micros::MAX } else { self.now() + self.excuse() };
        for at in self.running() {
            self.replicas[at].excused_until = until;
        }
    }

    /// Whoever stood still or was cut off has ended itself by then, or need not: its work was over, or its Lease was renewed.
    fn excuse(&self) -> Micros {
        u64::try_from(self.lease.as_micros()).unwrap_or(Micros::MAX)
    }

    /// SIGTERM.
    pub fn ask_to_leave(&self, at: usize) {
        self.signal(at, Signal::TERM);
    }

    fn signal(&self, at: usize, signal: Signal) {
        if let Some(process) = &self.replicas[at].process {
            process.signal(signal);
        }
    }

    /// Waits until it has ended after it was asked to.
    pub async fn left(&mut self, at: usize, patience: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let ended = self.replicas[at].process.as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                self.replicas[at].process = None;
                self.replicas[at].gone = Some(self.now());
                if !status.success() {
                    bail!("{} ended with {status}: {}", self.replicas[at].name, self.last_words(at));
                }
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "{} did not leave within {patience:?}: {}",
                    self.replicas[at].name,
                    self.last_words(at)
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts replicas anew that ended themselves, as a cluster would: who was stopped or cut off for too long with work under way may do
    /// that, because nothing else is sure to stop the work. Any other end is an error. What happened, in words.
    pub fn revive(&mut self) -> anyhow::Result<Vec<String>> {
        let mut told = Vec::new();
        for at in 0..self.replicas.len() {
            let Some(status) = self.replicas[at].process.as_mut().and_then(Process::ended) else { continue };
            self.replicas[at].process = None;
            self.replicas[at].gone = Some(self.now());
            let name = self.replicas[at].name.clone();
            let excused = self.now() <= self.replicas[at].excused_until;
            if status.signal() != Some(Signal::ABORT.as_raw()) || !excused {
                bail!("{name} ended with {status}: {}", self.last_words(at));
            }
            let revision = self.replicas[at].revision.clone();
            let new = self.start(&revision)?;
            self.aborted += 1;
            told.push(format!("{name} ended itself to be safe; {} is started", self.replicas[new].name));
        }
        Ok(told)
    }

    fn last_words(&self, at: usize) -> String {
        let file = self.folder.join(format!("{}.log", self.replicas[at].name));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().last().unwrap_or("it said nothing").to_owned()
    }

    /// CPU time of all replicas that run.
    pub fn cpu(&self) -> Duration {
        self.replicas.iter().filter_map(|replica| replica.process.as_ref()?.cpu()).sum()
    }
}
