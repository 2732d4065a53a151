//! Files that change all at once: readers see the old or the new ones, never both.
//!
//! The files lie in a directory of their own; `..data` leads to it, and what readers see leads through `..data`. A new
//! version is a new directory, and one rename of a link makes it the current one.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::payload::Payload;

const DATA: &str = "..data";

/// Makes `payload` the contents of `dir`. Nothing is touched when it is that already.
pub fn publish(dir: &Path, payload: &Payload) -> io::Result<()> {
    let current = fs::read_link(dir.join(DATA)).ok();
    if current.as_ref().is_some_and(|current| is_same(&dir.join(current), payload)) {
        return Ok(());
    }
    let fresh = fresh_name(dir);
    let base = dir.join(&fresh);
    fs::create_dir(&base)?;
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755))?;
    for (path, (bytes, mode)) in payload {
        let file = base.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, bytes)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
    }
    let link = dir.join("..data_tmp");
    let _ = fs::remove_file(&link);
    symlink(&fresh, &link)?;
    fs::rename(&link, dir.join(DATA))?;
    show(dir, payload)?;
    if let Some(old) = current {
        fs::remove_dir_all(dir.join(old))?;
    }
    Ok(())
}

fn fresh_name(dir: &Path) -> PathBuf {
    let mut number = 0_u64;
    loop {
        let name = PathBuf::from(format!("..version_{number}"));
        if !dir.join(&name).exists() {
            return name;
        }
        number += 1;
    }
}

/// What readers see: links for new names, none for old ones.
fn show(dir: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    for name in payload.keys().map(|path| first(path)) {
        let link = dir.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(&name), link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !payload.keys().any(|path| first(path) == name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_same(dir: &Path, payload: &Payload) -> bool {
    let mut files = 0;
    count_files(dir, &mut files);
    files == payload.len()
        && payload.iter().all(|(path, (bytes, mode))| {
            let file = dir.join(path);
            let same_mode =
                fs::metadata(&file).is_ok_and(|found| found.permissions().mode() & 0o777 == *mode);
            same_mode && fs::read(&file).is_ok_and(|found| found == *bytes)
        })
}

fn count_files(dir: &Path, files: &mut usize) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => count_files(&entry.path(), files),
            false => *files += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o644))).collect()
    }

    #[test]
    fn readers_see_the_new_files_through_the_same_paths() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(dir.path().join(path)).ok();
        publish(dir.path(), &payload(&[("a", "1"), ("d/b", "2")])).unwrap();
        assert_eq!((read("a"), read("d/b")), (Some("1".to_owned()), Some("2".to_owned())));
        let before = fs::read_link(dir.path().join(DATA)).unwrap();
        publish(dir.path(), &payload(&[("a", "1"), ("d/b", "2")])).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), before, "nothing changed");
        publish(dir.path(), &payload(&[("a", "3"), ("c", "4")])).unwrap();
        assert_eq!((read("a"), read("c"), read("d/b")), (Some("3".to_owned()), Some("4".to_owned()), None));
        assert_ne!(fs::read_link(dir.path().join(DATA)).unwrap(), before);
        assert!(!dir.path().join(before).exists(), "old versions are removed");
    }
}
