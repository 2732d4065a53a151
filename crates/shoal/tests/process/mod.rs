//! The binary as a child process, and clients that know nothing but a kubeconfig.

#![allow(dead_code, reason = "each test program uses its part")]

pub mod client;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Pid;
pub use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

pub const SHOAL: &str = env!("CARGO_BIN_EXE_shoal");

/// Nothing beside the API server, where a test counts what is stored and who watches.
pub const ALONE: [&str; 2] = ["--without", "controllers,scheduler,node,metrics,application"];

/// A running `shoal up`; killed when dropped.
pub struct Cluster {
    child: Child,
    pub ready: String,
}

impl Cluster {
    pub fn start(arguments: &[&str]) -> Cluster {
        let mut command = Command::new(SHOAL);
        command.args(arguments);
        Cluster::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Cluster {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.ends_with('\n'), "not ready: {ready:?}");
        Cluster { child, ready: ready.trim_end().to_owned() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kubeconfig(&self) -> String {
        self.ready.split(' ').nth(3).unwrap().to_owned()
    }

    pub fn port(&self) -> u16 {
        self.ready.split(' ').nth(1).unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code; waits for the end.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Ends the process without a warning. What the kernel has is still written: this is no power failure.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Resident memory in MiB.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary after some shell commands in the same process.
pub fn in_shell(before: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$@\""), "sh", SHOAL]).args(arguments);
    command
}

/// What a subcommand prints.
pub fn prints(arguments: &[&str]) -> String {
    let output = Command::new(SHOAL).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The objects of YAML documents.
pub fn objects(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The one of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

/// The one line of a start that fails.
pub fn fails(arguments: &[&str]) -> String {
    let mut command = Command::new(SHOAL);
    command.args(arguments);
    failure(command)
}

pub fn fails_in_shell(before: &str, arguments: &[&str]) -> String {
    failure(in_shell(before, arguments))
}

pub fn failure(mut command: Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(output.stdout.is_empty(), "never ready");
    let line = error.strip_suffix('\n').unwrap();
    assert!(line.starts_with("error: ") && line.contains("; ") && !line.contains('\n'), "{error}");
    line.to_owned()
}

/// GETs `path` with the credentials of a kubeconfig; the whole answer as text.
pub fn get(kubeconfig: &Path, path: &str) -> io::Result<String> {
    exchange(kubeconfig, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

/// POSTs a JSON object.
pub fn post(kubeconfig: &Path, path: &str, object: &Value) -> io::Result<String> {
    let body = object.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let about = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    exchange(kubeconfig, &format!("{head}{about}{body}"))
}

fn exchange(kubeconfig: &Path, request: &str) -> io::Result<String> {
    let mut stream = connect(kubeconfig)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

/// The credentials of a kubeconfig, and the address of its server.
pub fn tls(kubeconfig: &Path) -> io::Result<(ClientConfig, String)> {
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?).unwrap();
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let data = |of: &Value, key: &str| BASE64.decode(of[key].as_str().unwrap()).unwrap();
    let certificate = |pem: Vec<u8>| CertificateDer::from_pem_slice(&pem).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(data(cluster, "certificate-authority-data"))).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&data(user, "client-key-data")).unwrap();
    let tls = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate(data(user, "client-certificate-data"))], key)
        .unwrap();
    Ok((tls, cluster["server"].as_str().unwrap().strip_prefix("https://").unwrap().to_owned()))
}

/// A connection with the credentials of a kubeconfig.
pub fn connect(kubeconfig: &Path) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let (tls, address) = tls(kubeconfig)?;
    let session = ClientConnection::new(Arc::new(tls), ServerName::try_from("127.0.0.1").unwrap()).unwrap();
    Ok(StreamOwned::new(session, TcpStream::connect(address)?))
}
