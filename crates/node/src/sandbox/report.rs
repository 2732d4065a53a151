//! What the stages tell the agent, over an abstract socket.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use serde::{Deserialize, Serialize};

/// How a start went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The command runs; the sender is the container's first process.
    Started {
        /// Which start.
        token: String,
        /// Whether it has namespaces of its own.
        namespaces: bool,
    },
    /// Where does this address of a Service lead?
    Resolve {
        /// Cluster IP and port.
        address: std::net::SocketAddr,
    },
    /// It does not, and why.
    Failed {
        /// Which start.
        token: String,
        /// For people.
        message: String,
    },
}

/// Tells the agent, and waits until it has heard.
pub fn send(control: &str, report: &Report) -> std::io::Result<()> {
    let mut heard = [0];
    ask(control, report)?.read_exact(&mut heard)
}

/// Asks the agent where a Service's address leads.
pub fn resolve(control: &str, address: std::net::SocketAddr) -> Option<std::net::SocketAddr> {
    let mut text = String::new();
    ask(control, &Report::Resolve { address }).ok()?.take(1024).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn ask(control: &str, report: &Report) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(control)?)?;
    stream.write_all(&serde_json::to_vec(report)?)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(stream)
}
