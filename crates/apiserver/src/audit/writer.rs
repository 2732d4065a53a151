//! The file of the audit log: appended to, set aside when it is large, never in the way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use shoal_objects::Timestamp;

use super::AuditOptions;

/// Trouble is told once in this many seconds.
const TELL_EVERY: i64 = 60;

/// Appends lines.
pub struct Writer {
    path: PathBuf,
    max_bytes: u64,
    keep: usize,
    /// None after trouble: opened again with the next line.
    file: Option<File>,
    size: u64,
    /// The last line is not complete.
    torn: bool,
    told: Option<Timestamp>,
    lost: u64,
}

impl Writer {
    /// Opens the file for appending; creates it for its owner only.
    pub fn open(options: &AuditOptions) -> io::Result<Writer> {
        let mut writer = Writer {
            path: options.path.clone(),
            max_bytes: options.max_bytes.max(1),
            keep: options.keep,
            file: None,
            size: 0,
            torn: false,
            told: None,
            lost: 0,
        };
        writer.reopen()?;
        Ok(writer)
    }

    /// Appends a line; false if it is lost. Trouble is logged now and then, not with every line.
    pub fn write(&mut self, line: &[u8], now: Timestamp) -> bool {
        match self.append(line) {
            Ok(()) => {
                if self.lost > 0 {
                    tracing::warn!(lost = self.lost, "the audit log is written again");
                    (self.lost, self.told) = (0, None);
                }
                true
            }
            Err(error) => {
                self.lost += 1;
                self.file = None;
                if self.told.is_none_or(|told| now.seconds() - told.seconds() >= TELL_EVERY) {
                    self.told = Some(now);
                    let path = self.path.display();
                    tracing::error!(
                        lost = self.lost,
                        "cannot write the audit log {path}: {error}; events are lost"
                    );
                }
                false
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if self.torn {
            file.write_all(b"\n")?;
            self.size += 1;
        }
        self.torn = true;
        file.write_all(line)?;
        self.torn = false;
        self.size += line.len() as u64;
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let metadata = file.metadata()?;
        // A file that was there may be open to others; devices are none of our business.
        if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        self.size = metadata.len();
        self.file = Some(file);
        Ok(())
    }

    /// `log.1` becomes `log.2` and so on, `log` becomes `log.1`, and the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        let numbered = |n: usize| -> PathBuf { suffixed(&self.path, n) };
        if self.keep == 0 {
            remove_if_there(&self.path)?;
        } else {
            remove_if_there(&numbered(self.keep))?;
            for n in (1..self.keep).rev() {
                rename_if_there(&numbered(n), &numbered(n + 1))?;
            }
            rename_if_there(&self.path, &numbered(1))?;
        }
        self.torn = false;
        self.reopen()
    }
}

fn suffixed(path: &Path, n: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    unless_missing(fs::remove_file(path))
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    unless_missing(fs::rename(from, to))
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Level;

    fn options(dir: &Path, max_bytes: u64, keep: usize) -> AuditOptions {
        AuditOptions { max_bytes, keep, ..AuditOptions::new(dir.join("audit.log"), Level::Metadata) }
    }

    #[test]
    fn large_files_are_set_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), 10, 2);
        let mut writer = Writer::open(&options).unwrap();
        for n in 1..=5 {
            assert!(writer.write(format!("line {n}\n").as_bytes(), Timestamp(0)));
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("audit.log"), "line 5\n");
        assert_eq!(read("audit.log.1"), "line 4\n");
        assert_eq!(read("audit.log.2"), "line 3\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn the_file_is_for_its_owner_only_and_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), 1_000, 2);
        fs::write(&options.path, "old\n").unwrap();
        assert!(Writer::open(&options).unwrap().write(b"new\n", Timestamp(0)));
        assert_eq!(fs::read_to_string(&options.path).unwrap(), "old\nnew\n");
        assert_eq!(fs::metadata(&options.path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        // The kernel's own full disk.
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let mut options = options(Path::new("/"), u64::MAX, 2);
        options.path = full.to_owned();
        let mut writer = Writer::open(&options).unwrap();
        for second in 0..3 {
            assert!(!writer.write(b"line\n", Timestamp(second * 1_000_000)));
        }
        assert_eq!((writer.lost, writer.told), (3, Some(Timestamp(0))), "told once");
    }
}
