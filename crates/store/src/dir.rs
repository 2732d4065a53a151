//! The data directory: its lock, the names in it, and how opening it can fail.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::format::{FileKind, VERSION};

/// Why a data directory cannot be used. One line each, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something else has that name.
    #[error("{} is not a directory; choose another --data-dir", .0.display())]
    NotADirectory(PathBuf),
    /// The directory cannot be created or written to.
    #[error(
        "cannot use the data directory {}: {source}; make it writable for this user or choose another --data-dir",
        path.display()
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{} is in use by process {pid}; stop it or choose another --data-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// As written into the lock by its holder.
        pid: String,
    },
    /// A file has another format version.
    #[error(
        "{} has format version {found}, this program reads version {VERSION}; use the program that wrote it, or choose another --data-dir",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file is damaged in a way that no interrupted write explains.
    #[error("{} is damaged at byte {offset}: {what}; {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins that cannot be read.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// What can be done.
        remedy: String,
    },
    /// A value is sealed and cannot be opened. Says why and what to do.
    #[error("{0}")]
    Locked(String),
    /// Files that should be there are not.
    #[error("the data in {} is incomplete: {what}; put the missing file back or restore the directory from a backup", path.display())]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}; check the disk and the permissions, then start again", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.to_owned();
        move |source| OpenError::Io { action, path, source }
    }
}

/// A locked data directory. The lock ends with this value, or with the process.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// The segments and snapshots in a directory, with the revisions in their names, ascending.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Left by an interrupted creation.
    pub temporary: Vec<PathBuf>,
    pub snapshots: Vec<(u64, PathBuf)>,
    pub segments: Vec<(u64, PathBuf)>,
}

impl DataDir {
    /// Creates the directory if need be and locks it.
    pub(crate) fn open(path: &Path) -> Result<DataDir, OpenError> {
        let unusable = |source: io::Error| OpenError::Unusable { path: path.to_owned(), source };
        if path.exists() && !path.is_dir() {
            return Err(OpenError::NotADirectory(path.to_owned()));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let name = path.join("LOCK");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .map_err(unusable)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let read = lock.read_to_string(&mut pid).map(|_| pid.trim());
                let pid = read.ok().filter(|pid| !pid.is_empty()).unwrap_or("(unknown)").to_owned();
                return Err(OpenError::InUse { path: path.to_owned(), pid });
            }
            Err(errno) => return Err(unusable(errno.into())),
        }
        let note = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        // Only the message to a second process depends on it; a full disk must not prevent reading.
        if let Err(error) = note(&mut lock) {
            tracing::warn!(path = %name.display(), %error, "cannot note the process in the lock file");
        }
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of a segment that begins at, or a snapshot of, a revision.
    pub(crate) fn name(&self, kind: FileKind, revision: u64) -> PathBuf {
        self.path.join(match kind {
            FileKind::Journal => format!("journal-{revision:020}.log"),
            FileKind::Snapshot => format!("snapshot-{revision:020}.snap"),
        })
    }

    /// What is in the directory. Files of other names are ignored.
    pub(crate) fn files(&self) -> Result<Files, OpenError> {
        let failed = || OpenError::io("read", &self.path);
        let mut files = Files::default();
        for entry in std::fs::read_dir(&self.path).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let number = |prefix: &str, suffix: &str| {
                name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse::<u64>().ok()
            };
            if number("journal-", ".log.tmp").or_else(|| number("snapshot-", ".snap.tmp")).is_some() {
                files.temporary.push(path);
            } else if let Some(revision) = number("journal-", ".log") {
                files.segments.push((revision, path));
            } else if let Some(revision) = number("snapshot-", ".snap") {
                files.snapshots.push((revision, path));
            }
        }
        files.segments.sort();
        files.snapshots.sort();
        Ok(files)
    }

    /// Opens a new temporary file for one that `publish` will give its name.
    pub(crate) fn create(&self, kind: FileKind, revision: u64) -> io::Result<File> {
        let path = temporary(&self.name(kind, revision));
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
    }

    /// Gives a complete and synced temporary file its name, durably.
    pub(crate) fn publish(&self, kind: FileKind, revision: u64) -> io::Result<PathBuf> {
        let path = self.name(kind, revision);
        std::fs::rename(temporary(&path), &path)?;
        self.sync()?;
        Ok(path)
    }

    /// Removes a temporary file that will not be published.
    pub(crate) fn discard(&self, kind: FileKind, revision: u64) {
        let _ = std::fs::remove_file(temporary(&self.name(kind, revision)));
    }

    /// Makes the names in the directory durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}
