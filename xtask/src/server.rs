//! A `shoal up` process: started, waited for, stopped.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Where the objects live.
#[derive(Clone, Copy)]
pub enum Mode<'a> {
    /// In memory only.
    Ephemeral,
    /// In memory only, with a node that runs pods.
    WithNode,
    /// In memory only, with who did what in this file.
    Audited(&'a Path),
    /// In this folder.
    Durable(&'a Path),
}

/// A running server. Dropping it kills it; `stop` asks it to end.
pub struct Server {
    child: Child,
    /// The kubeconfig it wrote.
    pub kubeconfig: PathBuf,
    /// When it was started.
    pub started: Instant,
}

impl Server {
    /// Starts `shoal up` and waits until it says that it is ready. What it writes to stderr goes to `log`.
    pub fn start(binary: &Path, mode: Mode<'_>, kubeconfig: &Path, log: &Path) -> Result<Self> {
        Server::start_with(binary, mode, &[], kubeconfig, log)
    }

    /// The same with further arguments.
    pub fn start_with(
        binary: &Path,
        mode: Mode<'_>,
        further: &[&str],
        kubeconfig: &Path,
        log: &Path,
    ) -> Result<Self> {
        for file in [kubeconfig, log] {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            }
        }
        let mut command = Command::new(binary);
        command.args(["up", "--port", "0", "--kubeconfig"]).arg(kubeconfig);
        if !matches!(mode, Mode::WithNode) {
            // What is asked there was recorded on clusters without nodes, and without kinds of ours.
            command.args(["--without", "node,application"]);
        }
        match mode {
            Mode::Ephemeral | Mode::WithNode => command.arg("--ephemeral"),
            Mode::Audited(log) => command.arg("--ephemeral").arg("--audit-log").arg(log),
            Mode::Durable(folder) => command.arg("--data-dir").arg(folder),
        };
        command.args(further);
        let log_file = std::fs::File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        let Some(stdout) = child.stdout.take() else { bail!("the server's output is not readable") };
        let mut server = Server { child, kubeconfig: kubeconfig.to_path_buf(), started };
        server.await_ready(stdout, log)?;
        Ok(server)
    }

    fn await_ready(&mut self, stdout: impl Read + Send + 'static, log: &Path) -> Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        // The thread also keeps the pipe empty afterwards, so that the server never blocks on it.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.starts_with("ready ") {
                    let _ = tell.send(());
                }
            }
        });
        let said = || last_lines(&std::fs::read_to_string(log).unwrap_or_default());
        match told.recv_timeout(START_PATIENCE) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("shoal up ended ({status}) before it was ready: {}", said())
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("shoal up was not ready after {START_PATIENCE:?}: {}", said())
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end and waits.
    pub fn stop(mut self) -> Result<ExitStatus> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("the server has no process id")?;
        kill_process(pid, Signal::TERM).context("sending SIGTERM to the server")?;
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("shoal up did not end within {STOP_PATIENCE:?} of SIGTERM");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
