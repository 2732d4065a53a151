//! One run of a container: its process, its log, its streams.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, Mode};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use shoal_objects::{Clock, Timestamp};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{self, Receiver};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, mpsc};

use super::kept::{Fate, Kept, life_path, pipe_paths};
use super::worker::Event;
use crate::limits::cgroup::Cgroup;
use crate::logs::{Log, Stream};
use crate::process::{Joined, LaunchError, Launcher, Started, Streams, terminate};
use crate::sandbox::{Join, Keep, Spec};
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
    /// Whether its input ends with the first client that was attached to it.
    pub stdin_once: bool,
    /// Whether it outlives the agent.
    pub is_kept: bool,
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
    /// Whether its input ends with the first client that was attached to it.
    pub stdin_once: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The number of this run, if it is to outlive the agent. Those with an input or a terminal do not.
    pub keep: Option<i32>,
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
    let keep = order.keep.filter(|_| !order.tty && !order.stdin);
    let mut outputs = None;
    let mut spec = order.spec;
    let streams = match (order.tty, keep) {
        (true, _) => Streams::Terminal(Terminal::open()?),
        (false, None) => Streams::Pipes(order.stdin),
        (false, Some(attempt)) => {
            let paths = pipe_paths(&order.dir);
            let (readers, files) = named_pipes(&paths)?;
            outputs = Some(readers);
            spec.keep = Some(Keep { life: life_path(&order.dir, attempt), pipes: paths.to_vec() });
            let [output, errors] = files;
            Streams::Files(output, errors)
        }
    };
    let join = Join {
        env: spec.env.clone(),
        working_dir: spec.working_dir.clone(),
        network: spec.network.clone(),
        cgroup: spec.cgroup.clone(),
        user: spec.user,
        group: spec.group,
        ..Join::default()
    };
    let started = launcher.start(spec, &order.dir, streams).await?;
    let Started { mut child, pid, namespaces, terminal } = started;
    let join = Join { pid, namespaces, ..join };
    if let Some(attempt) = keep {
        let (id, started_at) = (order.id.clone(), clock.now().0);
        if let Err(error) = (Kept { id, attempt, started_at, join: join.clone() }).write(&order.dir) {
            // Nobody would find it.
            let _ = child.start_kill();
            return Err(error.into());
        }
    }
    let run = Arc::new(Run {
        id: order.id.clone(),
        container: order.container.clone(),
        since: clock.now(),
        log: log.clone(),
        pid,
        outer: child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0),
        terminal: terminal.clone(),
        input: Mutex::new(child.stdin.take()),
        stdin_once: order.stdin_once,
        is_kept: keep.is_some(),
        cgroup: order.cgroup.map(|cgroup| cgroup.keep(keep.is_some())),
        exceeded_memory: AtomicBool::new(false),
        join,
        dir: order.dir,
        launcher: launcher.clone(),
    });
    let mut pumps = tokio::task::JoinSet::new();
    match terminal {
        Some(terminal) => {
            pumps.spawn(pump_terminal(terminal, log.clone()));
        }
        None => {
            if let Some([output, errors]) = outputs {
                pumps.spawn(pump(output, Stream::Stdout, log.clone()));
                pumps.spawn(pump(errors, Stream::Stderr, log.clone()));
            }
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

/// Pipes with names: what is read, and what the container writes to.
fn named_pipes(paths: &[PathBuf; 2]) -> std::io::Result<([Receiver; 2], [File; 2])> {
    let make = |path: &PathBuf| {
        let _ = std::fs::remove_file(path);
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let reader = pipe::OpenOptions::new().open_receiver(path)?;
        Ok::<_, std::io::Error>((reader, std::fs::OpenOptions::new().write(true).open(path)?))
    };
    let [(output, to_output), (errors, to_errors)] = [make(&paths[0])?, make(&paths[1])?];
    Ok(([output, errors], [to_output, to_errors]))
}

/// Takes over a container that an earlier agent has started; `outer` is its first stage, and its end is told to `events`.
pub fn adopt(
    launcher: &Launcher,
    clock: &Clock,
    (name, home, log): (&str, &Path, &Path),
    kept: &Kept,
    outer: i32,
    events: mpsc::UnboundedSender<Event>,
) -> std::io::Result<Arc<Run>> {
    let pid = Pid::from_raw(outer).ok_or_else(|| std::io::Error::other("there is no such process"))?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    // The descriptor is owned by the value that is registered, and nothing else closes it.
    #[allow(deprecated, reason = "the other form is unsafe, for types that might close their descriptor")]
    let ended = AsyncFd::new(ended)?;
    let log = Log::create(log, clock.clone())?;
    let mut pumps = tokio::task::JoinSet::new();
    for (path, stream) in pipe_paths(home).iter().zip([Stream::Stdout, Stream::Stderr]) {
        pumps.spawn(pump(pipe::OpenOptions::new().open_receiver(path)?, stream, log.clone()));
    }
    let run = Arc::new(Run {
        id: kept.id.clone(),
        container: name.to_owned(),
        log: log.clone(),
        pid: kept.join.pid,
        outer,
        terminal: None,
        input: Mutex::new(None),
        stdin_once: false,
        is_kept: true,
        cgroup: kept.join.cgroup.clone().and_then(Cgroup::left),
        exceeded_memory: AtomicBool::new(false),
        join: kept.join.clone(),
        since: Timestamp(kept.started_at),
        dir: home.to_owned(),
        launcher: launcher.clone(),
    });
    let (container, id) = (name.to_owned(), kept.id.clone());
    let (kept, home) = (kept.clone(), home.to_owned());
    tokio::spawn(async move {
        let _ = ended.readable().await;
        let _ = tokio::time::timeout(LAST_OUTPUT, async { while pumps.join_next().await.is_some() {} }).await;
        log.close();
        let code = match kept.fate(&home) {
            Fate::Ended(code, _) => code,
            Fate::Runs(_) => 137,
        };
        let _ = events.send(Event::Ended { container, id, code });
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

/// The first 10 KiB of an output; the rest is read and forgotten, so that it does not hold up who writes it.
async fn beginning(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(mut from) = from {
        let _ = (&mut from).take(10 * 1024).read_to_end(&mut text).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    text
}

impl Run {
    /// Its first process, if that has namespaces which another container can join.
    pub fn namespaces(&self) -> Option<i32> {
        self.join.namespaces.then_some(self.pid)
    }

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
    pub async fn exec(&self, command: Vec<String>, streams: Streams) -> Result<Joined, LaunchError> {
        let join = Join { command, ..self.join.clone() };
        self.launcher.join(join, &self.dir, streams).await
    }

    /// Runs a command to its end: its exit code and what it printed, at most 10 KiB of each output.
    pub async fn probe(&self, command: Vec<String>, timeout: Duration) -> Result<(i32, String), String> {
        let mut joined = self.exec(command, Streams::Pipes(false)).await.map_err(|e| e.to_string())?;
        let (stdout, stderr) = (joined.child.stdout.take(), joined.child.stderr.take());
        let run = async {
            let (mut text, errors, status) =
                tokio::join!(beginning(stdout), beginning(stderr), joined.child.wait());
            text.extend(errors);
            let code = status.map_or(255, crate::sandbox::exit_code);
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
