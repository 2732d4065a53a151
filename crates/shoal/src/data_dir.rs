//! Where a cluster keeps its data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use shoal_apiserver::access::encryption::EncryptionKeys;
use shoal_apiserver::access::files::{self, FileError};
use shoal_apiserver::access::pki::Pki;
use shoal_objects::Timestamp;
use shoal_store::{Options, Store};
use tempfile::TempDir;

/// The directory of a cluster.
pub enum DataDir {
    /// Data stays for the next start.
    Kept(PathBuf),
    /// Nothing is kept; only files for clients are in this directory, which is removed in the end.
    Ephemeral(TempDir),
}

impl DataDir {
    /// Opens (and creates) a directory.
    pub fn keep(path: PathBuf) -> anyhow::Result<DataDir> {
        // Pods begin elsewhere: a relative path would lead them astray.
        let path = std::path::absolute(&path).unwrap_or(path);
        files::create_private_dir(&path)?;
        Ok(DataDir::Kept(path))
    }

    /// A cluster that keeps nothing.
    pub fn ephemeral() -> anyhow::Result<DataDir> {
        let parent = std::env::temp_dir();
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        let made = tempfile::Builder::new().prefix("shoal-").tempdir_in(&parent);
        Ok(DataDir::Ephemeral(made.map_err(|e| FileError::new("create a directory in", &parent, e))?))
    }

    /// Where files for clients go.
    pub fn path(&self) -> &Path {
        match self {
            DataDir::Kept(path) => path,
            DataDir::Ephemeral(dir) => dir.path(),
        }
    }

    /// The objects. An open store keeps other processes out of the directory, so this comes first.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        Ok(match self {
            DataDir::Kept(path) => {
                let keys = Arc::new(EncryptionKeys::read(&path.join("pki/encryption.key"))?);
                let options = Options { seal: Some(keys.clone()), ..Options::default() };
                let store = Store::open(&path.join("store"), options)?;
                // A new key could open nothing that was there before: it is made when nothing is encrypted yet.
                keys.create_if_missing()?;
                store
            }
            DataDir::Ephemeral(_) => Store::memory(Options::default()),
        })
    }

    /// The keys; the server is to be known by `names` beside the usual ones.
    pub fn open_pki(&self, names: &[String], now: Timestamp) -> anyhow::Result<Pki> {
        Ok(match self {
            DataDir::Kept(path) => Pki::open(&path.join("pki"), names, now)?,
            DataDir::Ephemeral(_) => Pki::in_memory(names, now)?,
        })
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
