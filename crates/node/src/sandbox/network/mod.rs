//! A pod's own address, without a network namespace: binds and connects of its processes are done by their supervisor.
//!
//! A filter hands every `bind` and `connect` of a container to a thread of the stage outside. Wildcard binds become binds to
//! the pod's address, so that two replicas of one program do not collide; connects to a Service's cluster IP become
//! connects to one of its endpoints. Everything else goes on as it was asked for. See docs/designs/0003-pod-network.md.

mod decide;
mod notify;
mod sockaddr;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, Socket};

use decide::{Decision, bind, connect};
use notify::{Answer, Listener, Request, Syscall};

/// What the supervisor needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    /// The pod's address.
    pub pod_ip: IpAddr,
    /// The agent's abstract socket, which knows the Services.
    pub control: String,
}

/// Puts the calling thread and all that it starts under supervision. The supervisor is a thread that must be made first:
/// a thread that has left its pid namespace can make none. What cannot be supervised runs as it is.
pub struct Supervisor(std::sync::mpsc::Sender<Listener>);

impl Supervisor {
    /// Makes the thread.
    pub fn new(network: Network) -> std::io::Result<Supervisor> {
        let (sender, listeners) = std::sync::mpsc::channel::<Listener>();
        std::thread::Builder::new().name("network".to_owned()).spawn(move || {
            if let Ok(listener) = listeners.recv() {
                supervise(&listener, &network);
            }
        })?;
        Ok(Supervisor(sender))
    }

    /// Begins; from now on the calling thread's binds and connects are supervised.
    pub fn begin(self) -> std::io::Result<()> {
        let listener = notify::install()?;
        self.0.send(listener).map_err(|_| std::io::Error::other("the supervisor is gone"))
    }
}

fn supervise(listener: &Listener, network: &Network) {
    while let Ok(request) = listener.receive() {
        let decision = decision(&request, network);
        let (id, target) = match decision {
            (_, Decision::Continue) => {
                listener.answer(request.id, Answer::Continue);
                continue;
            }
            (_, Decision::Refuse(errno)) => {
                listener.answer(request.id, Answer::Error(errno));
                continue;
            }
            (_, Decision::Use(target)) => (request.id, target),
        };
        // A connect may block, so it gets a thread; there is nobody else whom it could hold up then.
        let other = listener.clone();
        let act = move || {
            let result = socket_of(&request).and_then(|socket| act(&socket, request.syscall, target));
            other.answer(
                id,
                match result {
                    Ok(()) => Answer::Done,
                    Err(error) => Answer::Error(error.raw_os_error().unwrap_or(libc::EACCES)),
                },
            );
        };
        match request.syscall {
            Syscall::Bind => act(),
            Syscall::Connect => {
                if std::thread::Builder::new().spawn(act).is_err() {
                    listener.answer(id, Answer::Error(libc::EAGAIN));
                }
            }
        }
    }
}

fn decision(request: &Request, network: &Network) -> (Option<SocketAddr>, Decision) {
    let Some(address) = address_of(request) else { return (None, Decision::Continue) };
    let decision = match request.syscall {
        Syscall::Bind => bind(address, network.pod_ip),
        Syscall::Connect => connect(
            address,
            network.pod_ip,
            &|address| super::report::resolve(&network.control, address),
            &is_listening,
        ),
    };
    (Some(address), decision)
}

/// The address that was given, read from the memory of who asks.
fn address_of(request: &Request) -> Option<SocketAddr> {
    use std::os::unix::fs::FileExt as _;
    let length = usize::try_from(request.length).ok()?.min(128);
    let mut bytes = vec![0; length];
    let memory = std::fs::File::open(format!("/proc/{}/mem", request.pid)).ok()?;
    memory.read_exact_at(&mut bytes, request.address).ok()?;
    sockaddr::parse(&bytes)
}

/// The socket, shared with who asks.
fn socket_of(request: &Request) -> std::io::Result<Socket> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", request.pid))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    let process = process.and_then(Pid::from_raw).ok_or_else(|| std::io::Error::other("it is gone"))?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    let socket: OwnedFd = pidfd_getfd(pidfd.as_fd(), request.fd, PidfdGetfdFlags::empty())?;
    Ok(Socket::from(socket))
}

fn act(socket: &Socket, syscall: Syscall, target: SocketAddr) -> std::io::Result<()> {
    // A socket of the other family reaches it by its mapped address.
    let target = match (socket.domain()?, target) {
        (socket2::Domain::IPV6, SocketAddr::V4(v4)) => {
            SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
        }
        _ => target,
    };
    match syscall {
        Syscall::Bind => socket.bind(&SockAddr::from(target)),
        Syscall::Connect => socket.connect(&SockAddr::from(target)),
    }
}

/// Whether a TCP socket listens there, on the pod's address.
fn is_listening(address: SocketAddr) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().any(|table| sockaddr::listens(table, address))
}
