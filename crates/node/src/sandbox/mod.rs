//! What a container's command runs in: user, mount, pid and UTS namespaces of its own, made by this program starting itself.
//!
//! Nothing happens between fork and exec of the agent, which has threads. Instead the program starts itself with a hidden
//! subcommand, whose stages each have one thread:
//!
//! ```text
//! agent ─▶ run: makes the namespaces ─▶ init: pid 1, mounts, tells the agent ─▶ the command
//! ```
//!
//! `run` dies with the agent, `init` dies with `run`, and with pid 1 the kernel ends everything in the namespace. So nothing
//! outlives the agent, whatever it forks; unless it is asked to ([`Keep`]): then `run` stays, supervises, holds the
//! outputs, and writes down how the container ended.

mod enter;
mod init;
mod join;
mod life;
mod mounts;
mod network;
mod report;
mod run;
mod settle;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub use life::Life;
pub use network::Network;
pub use report::{Report, send as send_report};
pub use settle::exit_code;

/// Where this program is inside a container.
pub const SELF_PATH: &str = "/.shoal/shoal";
/// Exit code of a container whose command could not be started, as of other runtimes.
pub const START_FAILED: u8 = 128;

/// Namespaces of users are for processes of one thread; the binary's allocator must not start another.
pub const ONE_THREAD: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false");

/// Everything that the stages need to know, handed over in a file that the last reader removes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    /// Which start this is, for the agent.
    pub token: String,
    /// Abstract socket on which the agent listens for reports.
    pub control: String,
    /// The agent's process: without it nothing is started.
    pub agent: i32,
    /// What is run.
    pub command: Vec<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub working_dir: String,
    /// An empty directory for the new root.
    pub root: PathBuf,
    /// The container's own `/tmp`.
    pub tmp: PathBuf,
    /// The pod's host name.
    pub hostname: String,
    /// What is to be seen where.
    pub mounts: Vec<Mount>,
    /// Whether the mounts beyond the node's own are wanted by the pod, so that it cannot do without.
    pub needs_mounts: bool,
    /// Whether standard input is a terminal.
    pub tty: bool,
    /// User and group inside; root if none is given.
    pub user: Option<u32>,
    /// See `user`.
    pub group: Option<u32>,
    /// Its address, if it has one of its own.
    pub network: Option<Network>,
    /// The cgroup it runs in.
    pub cgroup: Option<PathBuf>,
    /// The first process of a container whose processes it sees and shares, as ephemeral containers may.
    pub beside: Option<i32>,
    /// What it needs to outlive the agent, if it does.
    pub keep: Option<Keep>,
}

/// What a container needs that outlives its agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keep {
    /// File of its life.
    pub life: PathBuf,
    /// Its outputs, held open so that nothing breaks while no agent reads them.
    pub pipes: Vec<PathBuf>,
}

/// A file or directory of the host that is seen in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// On the host.
    pub source: PathBuf,
    /// In the container.
    pub target: PathBuf,
    /// Whether it cannot be written to.
    pub read_only: bool,
}

/// A command that joins a running container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Join {
    /// The container's first process, as the agent sees it.
    pub pid: i32,
    /// The agent's process.
    pub agent: i32,
    /// Whether there are namespaces to join.
    pub namespaces: bool,
    /// What is run.
    pub command: Vec<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub working_dir: String,
    /// Whether standard input is a terminal.
    pub tty: bool,
    /// As of [`Spec`].
    pub network: Option<Network>,
    /// As of [`Spec`].
    pub user: Option<u32>,
    /// As of [`Spec`].
    pub group: Option<u32>,
    /// As of [`Spec`].
    pub cgroup: Option<PathBuf>,
}

/// Runs a stage; `arguments` are what follows the hidden subcommand.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let text = |at: usize| arguments.get(at).and_then(|argument| argument.to_str()).unwrap_or_default();
    let code = match text(0) {
        "run" => run::run(text(1)),
        "init" => init::init(text(1)),
        "join" => join::join(text(1)),
        "enter" => enter::enter(&arguments[1..]),
        other => {
            complain(&format!("unknown stage {other:?}"));
            START_FAILED
        }
    };
    ExitCode::from(code)
}

/// Moves this process, and so all that it starts.
fn enter_cgroup(cgroup: Option<&PathBuf>) -> Result<(), String> {
    let Some(cgroup) = cgroup else { return Ok(()) };
    std::fs::write(cgroup.join("cgroup.procs"), "0")
        .map_err(|e| format!("cannot enter the container's cgroup: {e}"))
}

/// What the stages say for themselves goes where the command's errors go.
fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Reads a specification and removes its file: it holds values of Secrets.
fn take<T: for<'de> Deserialize<'de>>(path: &str) -> Result<T, String> {
    let text = std::fs::read(path).map_err(|e| format!("cannot read the container's settings: {e}"))?;
    let _ = std::fs::remove_file(path);
    serde_json::from_slice(&text).map_err(|e| format!("cannot read the container's settings: {e}"))
}
