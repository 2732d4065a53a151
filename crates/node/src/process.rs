//! Processes of containers: started, signalled, joined and waited for.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use shoal_objects::Entropy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::sandbox::{Join, ONE_THREAD, Report, Spec};
use crate::terminal::Terminal;

/// How long a container may take to report that its command runs.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Says where a Service's address leads.
pub type Resolver = Box<dyn Fn(SocketAddr) -> Option<SocketAddr> + Send + Sync>;

/// Starts processes that die with this one.
///
/// A process is tied to the life of the *thread* that started it, so all are started by one thread that lives as long as
/// the agent.
#[derive(Clone)]
pub struct Launcher {
    inner: Arc<Inner>,
}

struct Inner {
    thread: Handle,
    /// The program and its hidden subcommand.
    program: Vec<String>,
    control: String,
    waiting: Mutex<HashMap<String, oneshot::Sender<(Report, i32)>>>,
    entropy: Entropy,
    resolver: OnceLock<Resolver>,
    _end: oneshot::Sender<()>,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The container says so.
    #[error("{0}")]
    Refused(String),
    /// The machine says so.
    #[error("cannot start a process: {0}")]
    Io(#[from] std::io::Error),
}

/// Where a process's input comes from and its output goes.
pub enum Streams {
    /// Pipes; the flag tells whether there is an input.
    Pipes(bool),
    /// A terminal.
    Terminal(Terminal),
    /// Output and errors go to these files; there is no input.
    Files(File, File),
}

/// A process with its namespaces.
pub struct Started {
    /// What the agent started and waits for.
    pub child: Child,
    /// The container's first process, as the agent sees it.
    pub pid: i32,
    /// Whether it has namespaces of its own.
    pub namespaces: bool,
    /// The terminal, if it has one.
    pub terminal: Option<Terminal>,
}

/// A command in a running container. When this is dropped before its end, it is killed with all of its process group:
/// the stage that started it would leave it behind.
pub struct Joined {
    /// The stage; it ends as the command does.
    pub child: Child,
    /// The terminal, if it has one.
    pub terminal: Option<Terminal>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        // None once it was waited for: the number may be another's then.
        let stage = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(stage) = stage {
            let _ = rustix::process::kill_process_group(stage, Signal::KILL);
        }
    }
}

impl Launcher {
    /// A launcher; `program` is how this program is told to be a sandbox, `control` the name of the socket on which the
    /// stages reach the agent.
    pub fn new(program: Vec<String>, entropy: Entropy, control: String) -> std::io::Result<Launcher> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("processes".to_owned()).spawn(move || {
            let _ = runtime.block_on(ended);
        })?;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&control)?;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        let inner = Arc::new(Inner {
            thread,
            program,
            control,
            waiting: Mutex::default(),
            entropy,
            resolver: OnceLock::new(),
            _end: end,
        });
        let weak = Arc::downgrade(&inner);
        inner.thread.spawn(async move {
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            while let (Ok((stream, _)), Some(inner)) = (listener.accept().await, weak.upgrade()) {
                tokio::spawn(async move {
                    // A stage that says nothing has nothing to say.
                    let _ = tokio::time::timeout(START_TIMEOUT, hear(stream, &inner)).await;
                });
            }
        });
        Ok(Launcher { inner })
    }

    /// Who knows the Services; the first one stays.
    pub fn set_resolver(&self, resolver: Resolver) {
        let _ = self.inner.resolver.set(resolver);
    }

    /// Where the stages reach the agent.
    pub fn control(&self) -> &str {
        &self.inner.control
    }

    /// Starts a container. `dir` is a private directory for its settings.
    pub async fn start(&self, mut spec: Spec, dir: &Path, streams: Streams) -> Result<Started, LaunchError> {
        let token = self.inner.entropy.uid();
        spec.token.clone_from(&token);
        spec.control.clone_from(&self.inner.control);
        spec.agent = process_id();
        spec.tty = matches!(streams, Streams::Terminal(_));
        let path = dir.join(format!("{token}.json"));
        write_private(&path, &serde_json::to_vec(&spec).map_err(std::io::Error::other)?)?;
        let (told, report) = oneshot::channel();
        self.inner.waiting.lock().insert(token.clone(), told);
        let spawned = self.spawn("run", &path, streams, spec.keep.is_some()).await;
        let result = async {
            let (mut child, terminal) = spawned?;
            // Waiting closes the input otherwise.
            let input = child.stdin.take();
            let reported = tokio::select! {
                biased;
                report = report => report.ok(),
                status = child.wait() => {
                    return Err(LaunchError::Refused(format!("the sandbox ended before the command ran: {}", status?)));
                }
                () = tokio::time::sleep(START_TIMEOUT) => None,
            };
            match reported {
                Some((Report::Started { namespaces, .. }, pid)) => {
                    child.stdin = input;
                    Ok(Started { child, pid, namespaces, terminal })
                }
                Some((Report::Resolve { .. }, _)) => Err(LaunchError::Refused("an odd report".to_owned())),
                Some((Report::Failed { message, .. }, _)) => {
                    let _ = child.wait().await;
                    Err(LaunchError::Refused(message))
                }
                None => {
                    let _ = child.kill().await;
                    Err(LaunchError::Refused("the command did not start in time".to_owned()))
                }
            }
        }
        .await;
        self.inner.waiting.lock().remove(&token);
        let _ = std::fs::remove_file(&path);
        result
    }

    /// Starts a command in a running container.
    pub async fn join(&self, mut join: Join, dir: &Path, streams: Streams) -> Result<Joined, LaunchError> {
        join.agent = process_id();
        join.tty = matches!(streams, Streams::Terminal(_));
        let path = dir.join(format!("{}.json", self.inner.entropy.uid()));
        write_private(&path, &serde_json::to_vec(&join).map_err(std::io::Error::other)?)?;
        let (child, terminal) = self.spawn("join", &path, streams, false).await?;
        Ok(Joined { child, terminal })
    }

    async fn spawn(
        &self,
        stage: &str,
        path: &Path,
        streams: Streams,
        keep: bool,
    ) -> Result<(Child, Option<Terminal>), LaunchError> {
        let (program, arguments) = self
            .inner
            .program
            .split_first()
            .ok_or_else(|| LaunchError::Refused("the agent does not know its own program".to_owned()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(stage)
            .arg(path)
            .env_clear()
            .env(ONE_THREAD.0, ONE_THREAD.1)
            .kill_on_drop(!keep);
        if !keep {
            // What is kept makes a session of its own, for which it must not lead a group yet.
            command.process_group(0);
        }
        let terminal = match streams {
            Streams::Pipes(input) => {
                command.stdin(if input { Stdio::piped() } else { Stdio::null() });
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                None
            }
            Streams::Files(output, errors) => {
                command.stdin(Stdio::null()).stdout(output).stderr(errors);
                None
            }
            Streams::Terminal(terminal) => {
                let end = |end: &OwnedFd| end.try_clone().map(Stdio::from);
                let device = terminal.device()?;
                command.stdin(end(&device)?).stdout(end(&device)?).stderr(end(&device)?);
                Some(terminal)
            }
        };
        let spawned = self.inner.thread.spawn(async move { command.spawn() }).await;
        Ok((spawned.map_err(std::io::Error::other)??, terminal))
    }
}

async fn hear(mut stream: tokio::net::UnixStream, inner: &Inner) -> std::io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::getuid().as_raw() {
        return Ok(());
    }
    let mut text = Vec::new();
    (&mut stream).take(64 * 1024).read_to_end(&mut text).await?;
    let report: Report = serde_json::from_slice(&text)?;
    let token = match &report {
        Report::Started { token, .. } | Report::Failed { token, .. } => token,
        Report::Resolve { address } => {
            let found = inner.resolver.get().and_then(|resolve| resolve(*address));
            let text = found.map(|address| address.to_string()).unwrap_or_default();
            return stream.write_all(text.as_bytes()).await;
        }
    };
    if let Some(waiting) = inner.waiting.lock().remove(token) {
        let _ = waiting.send((report, peer.pid().unwrap_or(0)));
    }
    stream.write_all(b"!").await
}

fn process_id() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Writes a file that nobody else may read.
pub fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)
}

/// Asks a container's command to end.
pub fn terminate(child: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child) {
        // It may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// A directory that only its owner may enter, with all above it.
pub fn private_dir(path: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(path.to_owned())
}

/// Keeps what is borrowed from a terminal alive.
pub fn is_terminal(fd: impl AsFd) -> bool {
    rustix::termios::isatty(fd)
}
