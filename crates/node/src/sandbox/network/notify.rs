//! The kernel's side: a filter that asks, and the questions. The only unsafe code of this crate.
//!
//! No library offers seccomp's user notification, so three system calls are made by hand. Each gets pointers to values of
//! exactly the type that the kernel documents, which live until it returns, and its result is checked.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;

/// What a process wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscall {
    /// `bind`
    Bind,
    /// `connect`
    Connect,
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Of the question.
    pub id: u64,
    /// The thread that asks.
    pub pid: u32,
    /// What it wants.
    pub syscall: Syscall,
    /// Its socket.
    pub fd: i32,
    /// Where in its memory the address is.
    pub address: u64,
    /// And how long it is.
    pub length: u64,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The kernel does what was asked for.
    Continue,
    /// It was done.
    Done,
    /// It fails with this number.
    Error(i32),
}

/// Where questions come in; clones share it.
#[derive(Clone)]
pub struct Listener(Arc<OwnedFd>);

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: u32 = 0;

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
}

/// Every `bind` and `connect` of the calling thread and its children asks from now on.
pub fn install() -> io::Result<Listener> {
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        instruction(load, 0, 0, 4),
        instruction(equal, 0, 3, ARCH),
        instruction(load, 0, 0, 0),
        instruction(equal, 2, 0, number(libc::SYS_bind)),
        instruction(equal, 1, 0, number(libc::SYS_connect)),
        instruction(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(give, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let length = u16::try_from(program.len()).unwrap_or(0);
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `filter` and the program behind it, both of which live until the call returns.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call gave a new descriptor, which nobody else has.
    Ok(Listener(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
}

impl Listener {
    /// Waits for the next question.
    pub fn receive(&self) -> io::Result<Request> {
        loop {
            // SAFETY: the type is made of numbers only, for which zero is a value; the kernel wants zeros.
            let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes a `seccomp_notif` to a place for one.
            let result =
                unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut question) };
            if result == 0 {
                let call = libc::c_long::from(question.data.nr);
                let syscall = if call == libc::SYS_bind { Syscall::Bind } else { Syscall::Connect };
                let [fd, address, length, ..] = question.data.args;
                // Descriptors are 32 bits wide, whatever else is in the register.
                let fd =
                    i32::from_ne_bytes(u32::try_from(fd & 0xffff_ffff).unwrap_or(u32::MAX).to_ne_bytes());
                let length = length & 0xffff_ffff;
                return Ok(Request { id: question.id, pid: question.pid, syscall, fd, address, length });
            }
            let error = io::Error::last_os_error();
            // Who asked may have been killed meanwhile.
            if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) {
                return Err(error);
            }
        }
    }

    /// Answers a question; if nobody waits for it any more, that is all right.
    pub fn answer(&self, id: u64, answer: Answer) {
        let (error, flags) = match answer {
            Answer::Continue => (0, u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1)),
            Answer::Done => (0, 0),
            Answer::Error(number) => (-number, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
        // SAFETY: the kernel reads a `seccomp_notif_resp` from one that lives until the call returns.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response);
        }
    }
}
