//! Containers that outlive their agent, for agents that are asked to keep them: what the next agent needs to know.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use shoal_objects::Timestamp;

use crate::process::{terminate, write_private};
use crate::sandbox::{Join, Life};

const RECORD: &str = "kept.json";

/// A run of a container. It holds what commands that join it get, values of Secrets included: the file is private.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Which run.
    pub id: String,
    /// Its number.
    pub attempt: i32,
    /// When it started, in microseconds.
    pub started_at: i64,
    /// How commands join it.
    pub join: Join,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs; the process of its first stage.
    Runs(i32),
    /// It has ended with this code, at this time.
    Ended(i32, Option<Timestamp>),
}

/// File of the life of a run, in a container's directory.
pub fn life_path(home: &Path, attempt: i32) -> PathBuf {
    home.join(format!("{attempt}.life"))
}

/// Pipes of a container for its two outputs. They have names, so that the next agent finds them.
pub fn pipe_paths(home: &Path) -> [PathBuf; 2] {
    [home.join("stdout"), home.join("stderr")]
}

impl Kept {
    /// Notes a run in the container's directory.
    pub fn write(&self, home: &Path) -> std::io::Result<()> {
        let fresh = home.join("kept.new");
        write_private(&fresh, &serde_json::to_vec(self).map_err(std::io::Error::other)?)?;
        std::fs::rename(fresh, home.join(RECORD))
    }

    /// The run that an earlier agent has noted.
    pub fn read(home: &Path) -> Option<Kept> {
        serde_json::from_slice(&std::fs::read(home.join(RECORD)).ok()?).ok()
    }

    /// What became of it.
    pub fn fate(&self, home: &Path) -> Fate {
        let path = life_path(home, self.attempt);
        match Life::read(&path) {
            Some(life) if life.is_alive() => Fate::Runs(life.pid),
            life => {
                let modified = std::fs::metadata(&path).and_then(|found| found.modified()).ok();
                let at = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                let at = at.and_then(|at| i64::try_from(at.as_micros()).ok()).map(Timestamp);
                // Who was killed with its first stage could not say anything.
                Fate::Ended(life.and_then(|life| life.code).unwrap_or(137), at)
            }
        }
    }
}

/// Containers of a pod that an earlier agent has left.
pub fn left(pod_dir: &Path) -> Vec<(String, PathBuf)> {
    let homes = std::fs::read_dir(pod_dir.join("containers")).into_iter().flatten().flatten();
    homes.map(|home| (home.file_name().to_string_lossy().into_owned(), home.path())).collect()
}

/// Ends everything that an earlier agent has left in a pod's directory, but for `spared` runs.
pub fn end_all(pod_dir: &Path, spared: &dyn Fn(i32) -> bool) {
    for (_, home) in left(pod_dir) {
        let files = std::fs::read_dir(&home).into_iter().flatten().flatten().map(|file| file.path());
        for path in files.filter(|path| path.extension().is_some_and(|ending| ending == "life")) {
            if let Some(life) = Life::read(&path).filter(|life| life.is_alive() && !spared(life.pid)) {
                // Everything of the container dies with its first stage.
                terminate(life.pid, Signal::KILL);
            }
        }
    }
}
