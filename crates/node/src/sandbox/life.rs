//! The life of a container that outlives its agent, in a file: who it is, and at last how it ended.
//!
//! The first stage writes it, because the agent may be gone: one line with its process id and when that process began,
//! and one line with the exit code.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// What such a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The first stage's process.
    pub pid: i32,
    /// When it began, in the kernel's clock: process ids are used again.
    pub began: u64,
    /// How the container ended, if it has.
    pub code: Option<i32>,
}

impl Life {
    /// Reads a file.
    pub fn read(path: &Path) -> Option<Life> {
        parse(&std::fs::read_to_string(path).ok()?)
    }

    /// Whether the process is there.
    pub fn is_alive(&self) -> bool {
        began(self.pid) == Some(self.began)
    }
}

fn parse(text: &str) -> Option<Life> {
    let mut lines = text.lines();
    let (pid, began) = lines.next()?.split_once(' ')?;
    let code = lines.next().and_then(|line| line.parse().ok());
    Some(Life { pid: pid.parse().ok()?, began: began.parse().ok()?, code })
}

/// When a process began; nothing if it has ended.
pub fn began(pid: i32) -> Option<u64> {
    began_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn began_in(stat: &str) -> Option<u64> {
    // The name of a program may contain anything, but it is in brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // The 22nd field; the state is the third.
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began)
}

/// Begins a file with the calling process. It stays open: later the path may lead elsewhere.
pub fn begin(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let pid = rustix::process::getpid().as_raw_pid();
    writeln!(file, "{pid} {}", began(pid).unwrap_or(0))?;
    Ok(file)
}

/// Notes how the container ended.
pub fn end(mut file: &File, code: u8) -> std::io::Result<()> {
    writeln!(file, "{code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_id_and_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("life");
        let file = begin(&path).unwrap();
        let life = Life::read(&path).unwrap();
        assert!(life.is_alive() && life.code.is_none());
        assert!(!Life { began: life.began + 1, ..life }.is_alive());
        end(&file, 7).unwrap();
        assert_eq!(Life::read(&path), Some(Life { code: Some(7), ..life }));
    }

    #[test]
    fn what_is_half_written_says_nothing() {
        for text in ["", "12", "x 1\n", "1 x\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("12 34\n"), Some(Life { pid: 12, began: 34, code: None }));
        let stat = |state: &str| format!("1 (a) b) {state} {} 77 0", vec!["1"; 18].join(" "));
        assert_eq!((began_in(&stat("S")), began_in(&stat("Z")), began_in("1 (")), (Some(77), None, None));
    }
}
