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
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(control)?)?;
    stream.write_all(&serde_json::to_vec(report)?)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut heard = [0];
    stream.read_exact(&mut heard)
}
