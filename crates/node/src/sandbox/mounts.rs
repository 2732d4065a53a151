//! The container's view of the file system: the host's, with volumes where the pod wants them.
//!
//! The new root is an empty directory in memory, onto which everything of the host's root is bound. Where a volume needs a
//! place that the host does not have, say `/etc/app`, the directory above it is replaced by one in memory onto which its
//! entries are bound, so nothing is ever created on the host.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::{Mount, SELF_PATH, Spec};

/// Where the host's root is while volumes are mounted.
const OLD: &str = "/.old";

/// Makes the view and enters it.
pub fn build(spec: &Spec, myself: &Path) -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |e: rustix::io::Errno| format!("cannot mount {what}: {e}")
    };
    let root = spec.root.as_path();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).map_err(failed("/"))?;
    in_memory(root)?;
    // Else binding the host's directories would bind it into itself.
    mount_change(root, MountPropagationFlags::UNBINDABLE).map_err(failed("the root"))?;
    copy_entries(Path::new("/"), root, &["proc"])?;
    for dir in ["proc", ".old", ".shoal", "tmp"] {
        make_dir(&root.join(dir))?;
    }
    if mount("proc", root.join("proc"), "proc", MountFlags::empty(), None).is_err() {
        // Where parts of the old one are hidden, a new one is forbidden.
        mount_bind_recursive("/proc", root.join("proc")).map_err(failed("/proc"))?;
    }
    rustix::process::pivot_root(root, root.join(".old")).map_err(failed("the new root"))?;
    rustix::process::chdir("/").map_err(failed("/"))?;

    let mut view = View::default();
    view.own.push(PathBuf::from("/"));
    view.own.push(PathBuf::from("/.shoal"));
    let own = |source: &Path, target: &str, read_only: bool| Mount {
        source: source.to_owned(),
        target: target.into(),
        read_only,
    };
    let mut mounts = vec![own(myself, SELF_PATH, false), own(&spec.tmp, "/tmp", false)];
    let mut wanted = spec.mounts.clone();
    wanted.sort_by_key(|mount| mount.target.components().count());
    mounts.extend(wanted);
    for mount in &mounts {
        view.mount(mount)?;
    }
    unmount(OLD, UnmountFlags::DETACH).map_err(failed("the new root"))?;
    let _ = fs::remove_dir(OLD);
    Ok(())
}

fn in_memory(path: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = CString::new("mode=0755,size=16m").map_err(|e| e.to_string())?;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
        .map_err(|e| format!("cannot mount {}: {e}", path.display()))
}

fn make_dir(path: &Path) -> Result<(), String> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot create {}: {e}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Binds every entry of a directory into an empty one; what cannot be bound is left out.
fn copy_entries(from: &Path, to: &Path, without: &[&str]) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|e| format!("cannot read {}: {e}", from.display()))?;
    for entry in entries.flatten() {
        if without.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_symlink() {
            if let Ok(leads) = fs::read_link(&source) {
                let _ = std::os::unix::fs::symlink(leads, &target);
            }
            continue;
        }
        let made = if kind.is_dir() { fs::create_dir(&target) } else { fs::File::create(&target).map(drop) };
        if made.is_ok() && mount_bind_recursive(&source, &target).is_err() {
            let _ = if kind.is_dir() { fs::remove_dir(&target) } else { fs::remove_file(&target) };
        }
    }
    Ok(())
}

/// What of the new view is ours.
#[derive(Default)]
struct View {
    /// Directories in memory, in which entries can be made.
    own: Vec<PathBuf>,
    /// Where volumes are.
    volumes: Vec<PathBuf>,
    /// Everything that was mounted: source, target, whether it is read-only.
    bound: Vec<(PathBuf, PathBuf, bool)>,
}

fn bind(source: &Path, target: &Path, read_only: bool) -> rustix::io::Result<()> {
    mount_bind_recursive(source, target)?;
    if read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY | kept_flags(target), c"")?;
    }
    Ok(())
}

impl View {
    fn mount(&mut self, wanted: &Mount) -> Result<(), String> {
        let told = |what: String| format!("cannot mount {}: {what}", wanted.target.display());
        let source = Path::new(OLD).join(wanted.source.strip_prefix("/").unwrap_or(&wanted.source));
        let is_dir =
            fs::metadata(&source).map_err(|e| told(format!("{}: {e}", wanted.source.display())))?.is_dir();
        let target = self.place(&wanted.target, is_dir).map_err(told)?;
        bind(&source, &target, wanted.read_only).map_err(|e| told(e.to_string()))?;
        self.bound.push((source, target.clone(), wanted.read_only));
        self.volumes.push(target);
        Ok(())
    }

    /// A file or directory to mount on, made if it is missing.
    fn place(&mut self, target: &Path, is_dir: bool) -> Result<PathBuf, String> {
        let name = target.file_name().ok_or("it is not a path below /")?;
        let parent = self.dir(target.parent().unwrap_or(Path::new("/")))?;
        let place = parent.join(name);
        let there = fs::symlink_metadata(&place);
        match there {
            Ok(found) if found.is_dir() && is_dir => return Ok(place),
            Ok(found) if found.is_file() && !is_dir => return Ok(place),
            Ok(found) if found.is_symlink() && is_dir => {
                if let Ok(real) = fs::canonicalize(&place)
                    && real.is_dir()
                {
                    return Ok(real);
                }
            }
            _ => {}
        }
        self.make_own(&parent)?;
        if let Ok(found) = fs::symlink_metadata(&place) {
            // Something of another kind is in the way.
            let _ = unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            let removed = if found.is_dir() { fs::remove_dir(&place) } else { fs::remove_file(&place) };
            removed.map_err(|e| e.to_string())?;
        }
        if is_dir {
            fs::create_dir(&place).map_err(|e| e.to_string())?;
            if !self.in_volume(&place) {
                self.own.push(place.clone());
            }
        } else {
            fs::File::create(&place).map_err(|e| e.to_string())?;
        }
        Ok(place)
    }

    /// A directory without symbolic links in its path, made if it is missing.
    fn dir(&mut self, path: &Path) -> Result<PathBuf, String> {
        match fs::canonicalize(path) {
            Ok(real) if real.is_dir() => Ok(real),
            Ok(_) => Err(format!("{} is not a directory", path.display())),
            Err(_) if path.parent().is_some() => self.place(path, true),
            Err(e) => Err(e.to_string()),
        }
    }

    fn in_volume(&self, path: &Path) -> bool {
        self.volumes.iter().any(|volume| path.starts_with(volume))
    }

    /// Makes sure that entries can be made in a directory without making them on the host.
    fn make_own(&mut self, dir: &Path) -> Result<(), String> {
        if self.in_volume(dir) || self.own.iter().any(|own| own == dir) {
            return Ok(());
        }
        let old = Path::new(OLD).join(dir.strip_prefix("/").unwrap_or(dir));
        in_memory(dir)?;
        copy_entries(&old, dir, &[])?;
        self.own.push(dir.to_owned());
        // What was mounted below before is hidden now.
        for (source, target, read_only) in self.bound.iter().filter(|(_, target, _)| target.starts_with(dir))
        {
            bind(source, target, *read_only).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// Flags that a mount of the host has cannot be taken away.
fn kept_flags(path: &Path) -> MountFlags {
    let Ok(found) = statvfs(path) else { return MountFlags::empty() };
    let mut flags = MountFlags::empty();
    for (has, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if found.f_flag.contains(has) {
            flags |= flag;
        }
    }
    flags
}
