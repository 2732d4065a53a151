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

/// Replaces a file at once; mode 0600. After a power cut it may be empty: for what can be written again.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let failed = |e| FileError::new("write", path, e);
    check_regular(path).map_err(failed)?;
    // A link stays a link: what it points to is replaced.
    let resolved = fs::canonicalize(path);
    let target = resolved.as_deref().unwrap_or(path);
    let draft = draft_of(target);
    let written = write_draft(&draft, content, false).and_then(|()| fs::rename(&draft, target));
    written.map_err(|e| {
        // The draft may not exist; the first error is the one to tell.
        let _ = fs::remove_file(&draft);
        failed(e)
    })
}

/// Replaces files of one directory, each at once, in the given order, and durably; mode 0600.
pub fn write_durably(dir: &Path, files: &[(&str, &[u8])]) -> Result<(), FileError> {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| dir.join(name)).collect();
    let written: Vec<io::Result<()>> = std::thread::scope(|scope| {
        // Syncs at the same time share one commit of the file system.
        let write = |(path, (_, content)): (&PathBuf, &(&str, &[u8]))| {
            let (draft, content) = (draft_of(path), content.to_vec());
            scope.spawn(move || write_draft(&draft, &content, true))
        };
        let writers: Vec<_> = paths.iter().zip(files).map(write).collect();
        let lost = |_| Err(io::Error::other("the writing thread ended early"));
        writers.into_iter().map(|writer| writer.join().unwrap_or_else(lost)).collect()
    });
    let outcome = paths.iter().zip(written).try_for_each(|(path, written)| {
        let replaced =
            written.and_then(|()| check_regular(path)).and_then(|()| fs::rename(draft_of(path), path));
        replaced.map_err(|e| FileError::new("write", path, e))
    });
    if outcome.is_err() {
        for path in &paths {
            let _ = fs::remove_file(draft_of(path));
        }
    }
    outcome?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| FileError::new("write", dir, e))
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write_draft(path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    if sync { file.sync_all() } else { Ok(()) }
}

/// The content of a file, `None` if there is none.
pub fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match check_regular(path).and_then(|()| fs::read_to_string(path)) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FileError::new("read", path, e)),
    }
}

/// Devices and pipes are neither read (it may never end) nor replaced.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(about) if !about.is_file() => Err(io::Error::other("not a regular file")),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
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
        write_durably(dir.path(), &[("key", b"three"), ("more", b"")]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        fs::create_dir(dir.path().join("dir")).unwrap();
        write_durably(dir.path(), &[("key", b"four"), ("dir", b"")]).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no draft is left behind");
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
        let text = write_private(Path::new("/dev/full"), b"").unwrap_err().to_string();
        assert!(text.contains("not a regular file"), "{text}");
        assert!(read_if_there(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_private(&link, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(link.is_symlink());
    }
}
