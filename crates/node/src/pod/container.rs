//! One run of a container: its process, its log, its streams.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use shoal_objects::{Clock, Timestamp};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, mpsc};

use super::worker::Event;
use crate::limits::cgroup::Cgroup;
use crate::logs::{Log, Stream};
use crate::process::{LaunchError, Launcher, Started, Streams, terminate};
use crate::sandbox::{Join, Spec};
use crate::terminal::Terminal;

/// How long output may go on after the command has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// A running container, as others may use it.
pub struct Run {
    /// Which run, as in the pod's status.
    pub id: String,
    /// Its name in the pod.
    pub container: String,
    /// When it was started.
    pub since: Timestamp,
    /// Its log.
    pub log: Log,
    /// The container's first process.
    pub pid: i32,
    /// The process that the agent waits for.
    pub outer: i32,
    /// Its terminal, if it has one.
    pub terminal: Option<Terminal>,
    /// Its input, if it has one that is not a terminal.
    pub input: Mutex<Option<ChildStdin>>,
    /// Its cgroup, if it has one.
    pub cgroup: Option<Cgroup>,
    /// It was killed because of its memory.
    exceeded_memory: AtomicBool,
    join: Join,
    dir: PathBuf,
    launcher: Launcher,
}

/// What is needed to start one.
pub struct Order {
    /// Which run.
    pub id: String,
    /// Name of the container.
    pub container: String,
    /// What runs where.
    pub spec: Spec,
    /// The container's directory.
    pub dir: PathBuf,
    /// File of the log.
    pub log: PathBuf,
    /// Whether it has an input.
    pub stdin: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Its cgroup, if it has one.
    pub cgroup: Option<Cgroup>,
}

/// Starts a container; its end is told to `events`.
pub async fn start(
    launcher: &Launcher,
    clock: &Clock,
    order: Order,
    events: mpsc::UnboundedSender<Event>,
) -> Result<Arc<Run>, LaunchError> {
    let log = Log::create(&order.log, clock.clone())?;
    let streams = match order.tty {
        true => Streams::Terminal(Terminal::open()?),
        false => Streams::Pipes(order.stdin),
    };
    let join = Join {
        env: order.spec.env.clone(),
        working_dir: order.spec.working_dir.clone(),
        network: order.spec.network.clone(),
        cgroup: order.spec.cgroup.clone(),
        user: order.spec.user,
        group: order.spec.group,
        ..Join::default()
    };
    let started = launcher.start(order.spec, &order.dir, streams).await?;
    let Started { mut child, pid, namespaces, terminal } = started;
    let run = Arc::new(Run {
        id: order.id.clone(),
        container: order.container.clone(),
        since: clock.now(),
        log: log.clone(),
        pid,
        outer: child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0),
        terminal: terminal.clone(),
        input: Mutex::new(child.stdin.take()),
        cgroup: order.cgroup,
        exceeded_memory: AtomicBool::new(false),
        join: Join { pid, namespaces, ..join },
        dir: order.dir,
        launcher: launcher.clone(),
    });
    let mut pumps = tokio::task::JoinSet::new();
    match terminal {
        Some(terminal) => {
            pumps.spawn(pump_terminal(terminal, log.clone()));
        }
        None => {
            if let Some(output) = child.stdout.take() {
                pumps.spawn(pump(output, Stream::Stdout, log.clone()));
            }
            if let Some(output) = child.stderr.take() {
                pumps.spawn(pump(output, Stream::Stderr, log.clone()));
            }
        }
    }
    tokio::spawn(async move {
        let status = child.wait().await;
        let _ = tokio::time::timeout(LAST_OUTPUT, async { while pumps.join_next().await.is_some() {} }).await;
        log.close();
        let code = status.map_or(255, crate::sandbox::exit_code);
        let _ = events.send(Event::Ended { container: order.container, id: order.id, code });
    });
    Ok(run)
}

async fn pump(mut from: impl AsyncRead + Unpin, stream: Stream, log: Log) {
    let (mut buffer, mut rest) = (vec![0; 16 * 1024], Vec::new());
    while let Ok(count) = from.read(&mut buffer).await {
        // A full disk must not stop the program that fills it.
        if count == 0 {
            break;
        }
        let _ = log.write(stream, &buffer[..count], &mut rest);
    }
    let _ = log.finish(stream, &mut rest);
}

async fn pump_terminal(terminal: Terminal, log: Log) {
    let (mut buffer, mut rest) = (vec![0; 16 * 1024], Vec::new());
    while let Ok(count) = terminal.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let _ = log.write(Stream::Stdout, &buffer[..count], &mut rest);
    }
    let _ = log.finish(Stream::Stdout, &mut rest);
}

impl Run {
    /// Asks the command to end.
    pub fn terminate(&self) {
        terminate(self.outer, Signal::TERM);
    }

    /// Ends everything in the container.
    pub fn kill(&self) {
        match self.join.namespaces {
            true => terminate(self.pid, Signal::KILL),
            false => terminate(self.outer, Signal::KILL),
        }
    }

    /// Ends everything in the container because it has more memory than it may.
    pub fn kill_for_memory(&self) {
        self.exceeded_memory.store(true, Ordering::Release);
        self.kill();
    }

    /// Whether it ended because of its memory.
    pub fn has_exceeded_memory(&self) -> bool {
        let by_kernel = || self.cgroup.as_ref().is_some_and(Cgroup::has_exceeded_memory);
        self.exceeded_memory.load(Ordering::Acquire) || by_kernel()
    }

    /// Starts another command in the container.
    pub async fn exec(
        &self,
        command: Vec<String>,
        streams: Streams,
    ) -> Result<(tokio::process::Child, Option<Terminal>), LaunchError> {
        let join = Join { command, ..self.join.clone() };
        self.launcher.join(join, &self.dir, streams).await
    }

    /// Runs a command to its end: its exit code and what it printed, at most 10 KiB of it.
    pub async fn probe(&self, command: Vec<String>, timeout: Duration) -> Result<(i32, String), String> {
        let (mut child, _) = self.exec(command, Streams::Pipes(false)).await.map_err(|e| e.to_string())?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let run = async {
            let mut text = Vec::new();
            if let Some(output) = stdout {
                let _ = output.take(10 * 1024).read_to_end(&mut text).await;
            }
            if let Some(output) = stderr {
                let _ = output.take(10 * 1024).read_to_end(&mut text).await;
            }
            let code = child.wait().await.map_or(255, crate::sandbox::exit_code);
            (code, String::from_utf8_lossy(&text).trim().to_owned())
        };
        tokio::time::timeout(timeout, run)
            .await
            .map_err(|_| format!("command timed out after {}s", timeout.as_secs()))
    }

    /// Passes input to the command; without bytes: there is no more.
    pub async fn feed(&self, bytes: Option<&[u8]>) -> std::io::Result<()> {
        if let Some(terminal) = &self.terminal {
            return match bytes {
                Some(bytes) => terminal.write(bytes).await,
                None => Ok(()),
            };
        }
        let mut input = self.input.lock().await;
        match (bytes, input.as_mut()) {
            (Some(bytes), Some(pipe)) => {
                pipe.write_all(bytes).await?;
                pipe.flush().await
            }
            (None, _) => {
                *input = None;
                Ok(())
            }
            (Some(_), None) => Ok(()),
        }
    }
}

/// File of the log of a run.
pub fn log_path(dir: &Path, container: &str, attempt: i32) -> PathBuf {
    dir.join("containers").join(container).join(format!("{attempt}.log"))
}
