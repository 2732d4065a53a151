//! Pseudo-terminals, read and written without blocking a thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A terminal: what a person has in front of them. Clones share it.
#[derive(Clone)]
pub struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    /// A new one.
    pub fn open() -> io::Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        // The descriptor is owned by the value that is registered, and nothing else closes it.
        #[allow(deprecated, reason = "the other form is unsafe, for types that might close their descriptor")]
        let registered = AsyncFd::new(master)?;
        Ok(Terminal(Arc::new(registered)))
    }

    /// The end that a program has.
    pub fn device(&self) -> io::Result<OwnedFd> {
        Ok(ioctl_tiocgptpeer(
            self.0.get_ref(),
            OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
        )?)
    }

    /// What the program wrote; nothing when it has ended.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd| rustix::io::read(fd, &mut *buffer).map_err(io::Error::from);
        let mut read = read;
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| read(fd.get_ref())) {
                // All programs have closed it.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Ok(0);
                }
                Ok(result) => return result,
                Err(_) => {}
            }
        }
    }

    /// What the person typed.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.0.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// The window changed its size.
    pub fn resize(&self, width: u16, height: u16) -> io::Result<()> {
        let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }
}
