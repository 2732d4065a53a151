//! A cluster with a node, and kubectl for it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Cluster, SHOAL, get};

/// Nothing that a test waits for takes longer on a machine that works.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A running `shoal up` with one node.
pub struct World {
    pub cluster: Cluster,
    pub kubeconfig: PathBuf,
    pub home: TempDir,
    kubectl: Kubectl,
}

/// How kubectl is started: the program, before it what lets another user start it.
struct Kubectl {
    program: OsString,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The kubectl of PATH, else the one that `cargo xtask test` has fetched.
fn program() -> OsString {
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("kubectl"))
        .find(|program| program.is_file());
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools/root/usr/bin/kubectl");
    let found = on_path.or_else(|| fetched.is_file().then_some(fetched));
    found.expect("no kubectl on PATH; install one, or run `cargo xtask test`, which fetches it").into()
}

impl World {
    /// A cluster in memory that runs pods, its node ready.
    pub fn start() -> World {
        World::with(&["--ephemeral"])
    }

    /// The same with these arguments.
    pub fn with(arguments: &[&str]) -> World {
        let mut command = Command::new(SHOAL);
        command.args(["up", "--port", "0"]).args(arguments);
        World::spawn(command, tempfile::tempdir().unwrap())
    }

    /// A cluster that a command starts; `home` is for kubectl's own files.
    pub fn spawn(command: Command, home: TempDir) -> World {
        let cluster = Cluster::spawn(command);
        let kubeconfig = PathBuf::from(cluster.kubeconfig());
        let world = World { cluster, kubeconfig, home, kubectl: Kubectl { program: program() } };
        world.until_get("/api/v1/nodes/shoal", "a ready node", |node| condition(node, "Ready") == "True");
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        world.until_get(account, "an account", |account| !account["metadata"]["uid"].is_null());
        world
    }

    /// kubectl with these arguments, not started yet.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl.program);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// kubectl in a terminal of its own.
    pub fn terminal(&self, line: &str) -> Command {
        let line = format!("{} {line}", self.kubectl.program.to_string_lossy());
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs kubectl to its end.
    pub fn run(&self, arguments: &[&str], input: &str) -> Said {
        finish(self.kubectl(arguments), input)
    }

    /// Runs kubectl, which must succeed; what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments, "");
        assert_eq!(said.code, Some(0), "kubectl {arguments:?}: {said:?}");
        said.out
    }

    /// Applies objects.
    pub fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let said = self.run(&["apply", "-f", "-"], &list);
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// Creates a pod with these containers, and whatever else `spec` says.
    pub fn pod(&self, name: &str, mut spec: Value) {
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = 3.into();
        }
        let meta = json!({"name": name, "labels": {"app": name}});
        self.apply(&[json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})]);
    }

    /// A pod of one container that does nothing until it is told to end.
    pub fn idle(&self, name: &str) {
        self.pod(name, json!({"containers": [{"name": "main", "image": "sleeper"}]}));
        self.until_ready(name);
    }

    /// An object of the server; null if it is not there.
    pub fn get(&self, path: &str) -> Value {
        let answer = get(&self.kubeconfig, path).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        if head.starts_with("HTTP/1.1 404") {
            return Value::Null;
        }
        let whole =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        serde_json::from_str(&whole).unwrap_or_else(|e| panic!("{path}: {e}: {answer}"))
    }

    /// Waits until an object is as wanted.
    pub fn until_get(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        until(what, || {
            found = self.get(path);
            wanted(&found)
        })
        .unwrap_or_else(|why| panic!("{why}: {path}: {:#}", found["status"]));
        found
    }

    /// Waits until a pod is as wanted.
    pub fn until_pod(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_get(&format!("/api/v1/namespaces/default/pods/{name}"), what, wanted)
    }

    /// Waits until a pod is ready.
    pub fn until_ready(&self, name: &str) -> Value {
        self.until_pod(name, "ready", |pod| condition(pod, "Ready") == "True")
    }

    /// Waits until a pod has this phase.
    pub fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until_pod(name, phase, |pod| pod["status"]["phase"] == phase)
    }

    /// Waits until a pod is gone.
    pub fn until_gone(&self, name: &str) {
        self.until_pod(name, "gone", Value::is_null);
    }

    /// Waits until kubectl prints something.
    pub fn until_prints(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let mut said = String::new();
        until("printed", || {
            said = self.run(arguments, "").out;
            wanted(&said)
        })
        .unwrap_or_else(|why| panic!("{why}: kubectl {arguments:?}: {said}"));
        said
    }

    /// Messages of a pod's events of a reason.
    pub fn events(&self, pod: &str, reason: &str) -> Vec<String> {
        let all = self.get("/api/v1/namespaces/default/events");
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let mine = all.iter().filter(|e| e["involvedObject"]["name"] == pod && e["reason"] == reason);
        mine.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits for an event.
    pub fn until_event(&self, pod: &str, reason: &str, wanted: impl Fn(&str) -> bool) {
        let mut seen = Vec::new();
        until("told", || {
            seen = self.events(pod, reason);
            seen.iter().any(|message| wanted(message))
        })
        .unwrap_or_else(|why| panic!("{why}: {reason} of {pod}: {seen:#?}"));
    }
}

/// A body without the lengths of its parts.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

/// Looks until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            return Err(format!("still not {what}"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Runs a command to its end with this input.
pub fn finish(mut command: Command, input: &str) -> Said {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = input.to_owned();
    let writing = std::thread::spawn(move || {
        // Who does not read its input may be gone already.
        let _ = stdin.write_all(text.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A kubectl that goes on running; ended when dropped.
pub struct Running {
    pub child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// The next line; nothing at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads until a line is as wanted.
    pub fn until_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut seen = Vec::new();
        while let Some(line) = self.line() {
            if wanted(&line) {
                return line;
            }
            seen.push(line);
        }
        panic!("the output ended: {seen:#?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn condition(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

/// How often a pod's first container was started again.
pub fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0)
}

/// A container that runs a script of the shell.
pub fn shell(script: &str) -> Value {
    json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]})
}

/// A container that runs a Python program.
pub fn python(program: &str) -> Value {
    json!({"name": "main", "image": "python", "command": ["python3", "-u", "-c", program]})
}

/// Processes of this machine that have this text in their command line.
pub fn processes(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    // Arguments are divided by zeros; kubectl has them, too.
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text) && !line.contains("kubectl"))
        .count()
}
