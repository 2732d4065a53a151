//! Private files: readable by their owner only, and whole or absent, never half written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What failed, on which file, and what to do about it: one line.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {}; {}", path.display(), plain(source), remedy(source.kind()))]
pub struct FileError {
    /// The verb: read, write, create.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl FileError {
    /// Names the action and the file of an operating system error.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { action, path: path.to_owned(), source }
    }
}

/// The operating system's words without the number behind them.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => "make it writable for this user or choose another place",
        ErrorKind::ReadOnlyFilesystem => "choose a place on a writable file system",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free some disk space or choose another place"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file stands where a directory is needed: move it away or choose another place"
        }
        ErrorKind::IsADirectory => {
            "a directory stands where a file is needed: move it away or choose another place"
        }
        ErrorKind::NotFound => "create it or choose another place",
        _ => "check the file system or choose another place",
    }
}

/// Creates a directory and its parents, for its owner only. An existing one is left as it is.
pub fn create_private_dir(path: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| FileError::new("create", path, e))
}

/// Replaces a file at once and durably; mode 0600.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let failed = |e| FileError::new("write", path, e);
    if path.is_dir() {
        return Err(failed(ErrorKind::IsADirectory.into()));
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = parent.join(name);
    let written = write_and_sync(&draft, content).and_then(|()| fs::rename(&draft, path));
    if let Err(e) = written {
        // The draft may not exist; the first error is the one to tell.
        let _ = fs::remove_file(&draft);
        return Err(failed(e));
    }
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
}

fn write_and_sync(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// The content of a file, `None` if there is none.
pub fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FileError::new("read", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_file_is_replaced_and_stays_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left behind");
    }

    #[test]
    fn errors_name_the_file_and_a_remedy_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none/key");
        let text = write_private(&missing, b"").unwrap_err().to_string();
        assert!(text.contains("none/key: No such file or directory; create it"), "{text}");
        let text = write_private(dir.path(), b"").unwrap_err().to_string();
        assert!(text.contains("a directory stands where a file is needed"), "{text}");
        assert!(!text.contains('\n'));
    }
}
