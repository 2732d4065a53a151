//! Where a cluster keeps its data, and that only one process uses it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use shoal_apiserver::access::files::{self, FileError};
use tempfile::TempDir;

/// A data directory that is ours until this is dropped.
pub enum DataDir {
    /// On disk, locked. The lock ends with the process, however that ends.
    Kept { path: PathBuf, _lock: File },
    /// Nothing is kept; only files for clients are in this directory, which is removed in the end.
    Ephemeral(TempDir),
}

impl DataDir {
    /// Opens (and creates) a directory for this process alone.
    pub fn keep(path: PathBuf) -> anyhow::Result<DataDir> {
        files::create_private_dir(&path)?;
        let lock_path = path.join("lock");
        let failed = |e| FileError::new("write", &lock_path, e);
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = lock.read_to_string(&mut owner);
                let path = path.display();
                let owner = owner.trim();
                bail!("{path} is in use by process {owner}; stop it or choose another with --data-dir DIR");
            }
            Err(TryLockError::Error(e)) => return Err(FileError::new("lock", &lock_path, e).into()),
        }
        lock.set_len(0).and_then(|()| lock.rewind()).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        Ok(DataDir::Kept { path, _lock: lock })
    }

    /// A cluster that keeps nothing.
    pub fn ephemeral() -> anyhow::Result<DataDir> {
        let parent = std::env::temp_dir();
        let made = tempfile::Builder::new().prefix("shoal-").tempdir_in(&parent);
        Ok(DataDir::Ephemeral(made.map_err(|e| FileError::new("create a directory in", &parent, e))?))
    }

    /// Where files for clients go.
    pub fn path(&self) -> &Path {
        match self {
            DataDir::Kept { path, .. } => path,
            DataDir::Ephemeral(dir) => dir.path(),
        }
    }
}

/// The data directory of a user who chose none: `$SHOAL_HOME`, or `shoal` where programs keep data.
pub fn default_path() -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SHOAL_HOME")
        .or_else(|| {
            variable("XDG_DATA_HOME").filter(|path| path.is_absolute()).map(|path| path.join("shoal"))
        })
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/shoal")))
        .context("there is no home directory to keep data in; choose a place with --data-dir DIR")
}
