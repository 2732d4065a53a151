//! The programs that tests need beside cargo: found on PATH, else fetched into `target/tools`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::{Workspace, cargo};

const KUBECTL_MINOR: u64 = 30;
const PYTHON_MINOR: u64 = 9;
/// The Debian release whose packages we unpack.
const SUITE: &str = "trixie";

/// Where the tools are.
pub struct Tools {
    /// A PATH with all of them.
    pub path: OsString,
}

/// Finds or gets every tool. One that is missing and cannot be got is told here and fails the tests that need it.
pub fn get(workspace: &Workspace) -> Result<Tools> {
    let folder = workspace.target.join("tools");
    let own = match kubectl(&folder) {
        Ok(own) => own,
        Err(error) => {
            println!("    kubectl: {error:#}; put version 1.{KUBECTL_MINOR} or newer on PATH");
            None
        }
    };
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&inherited));
    Ok(Tools { path: std::env::join_paths(folders)? })
}

/// The folder to add to PATH for a kubectl that is new enough; None if PATH has one.
fn kubectl(folder: &Path) -> Result<Option<PathBuf>> {
    let unpacked = folder.join("root/usr/bin");
    if let Some(minor) = kubectl_minor(Path::new("kubectl")).filter(|minor| *minor >= KUBECTL_MINOR) {
        println!("    kubectl: 1.{minor}, on PATH");
        return Ok(None);
    }
    if kubectl_minor(&unpacked.join("kubectl")).is_none() {
        println!("    kubectl: none on PATH that is 1.{KUBECTL_MINOR} or newer, getting Debian's");
        unpack_debian(folder, "kubectl")?;
    }
    let minor = kubectl_minor(&unpacked.join("kubectl")).context("the unpacked kubectl does not run")?;
    println!("    kubectl: 1.{minor}, in {}", unpacked.display());
    Ok(Some(unpacked))
}

/// Whether `cargo nextest` can be used.
pub fn has_nextest() -> bool {
    let status = cargo()
        .args(["nextest", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A Python that is new enough for the checker.
pub fn python() -> Result<&'static str> {
    for name in ["python3", "python"] {
        let program = format!("import sys; sys.exit(sys.version_info < (3, {PYTHON_MINOR}))");
        let status = Command::new(name).args(["-c", &program]).stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) {
            return Ok(name);
        }
    }
    bail!("no Python 3.{PYTHON_MINOR} or newer on PATH (as python3 or python); install one and try again")
}

/// The minor version of the kubectl that tests use.
pub fn kubectl_version(tools: &Tools) -> Option<u64> {
    let folders = std::env::split_paths(&tools.path);
    folders
        .map(|folder| folder.join("kubectl"))
        .find(|program| program.is_file())
        .and_then(|p| kubectl_minor(&p))
}

/// The minor version of a kubectl, if it runs.
fn kubectl_minor(program: &Path) -> Option<u64> {
    let output = Command::new(program).args(["version", "--client", "--output", "json"]).output().ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let digits = version["clientVersion"]["minor"].as_str()?;
    digits.trim_end_matches(|last: char| !last.is_ascii_digit()).parse().ok()
}

/// Downloads a package with apt, which checks signatures, and unpacks it under `folder/root`. Nothing is installed
/// and no setting of the system is touched; the mirror is the one that the system's own apt uses.
fn unpack_debian(folder: &Path, package: &str) -> Result<()> {
    let apt = folder.join("apt");
    for part in ["state/lists/partial", "cache/archives/partial", "parts"] {
        std::fs::create_dir_all(apt.join(part))?;
    }
    std::fs::write(apt.join("status"), "")?;
    let keys = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    let signed = if keys.exists() { format!("[signed-by={}] ", keys.display()) } else { String::new() };
    let mut last = anyhow::anyhow!("apt knows no mirror of Debian; name one in DEBIAN_MIRROR");
    for mirror in mirrors()? {
        std::fs::write(apt.join("sources.list"), format!("deb {signed}{mirror} {SUITE} main\n"))?;
        let got = apt_get(&apt, &["update"]).and_then(|()| apt_get(&apt, &["download", package]));
        match got {
            Ok(()) => return unpack(&apt, &folder.join("root"), package),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Mirrors that apt is configured with, Debian's own first.
fn mirrors() -> Result<Vec<String>> {
    if let Ok(mirror) = std::env::var("DEBIAN_MIRROR") {
        return Ok(vec![mirror]);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"])
        .output()
        .context("apt-get is not here")?;
    let mut found: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

fn apt_get(apt: &Path, arguments: &[&str]) -> Result<()> {
    let set = |key: &str, file: &str| format!("{key}={}", apt.join(file).display());
    let output = Command::new("apt-get")
        .current_dir(apt)
        .args(["--quiet", "--option", &set("Dir::Etc::SourceList", "sources.list")])
        .args(["--option", &set("Dir::Etc::SourceParts", "parts")])
        .args(["--option", &set("Dir::State", "state")])
        .args(["--option", &set("Dir::State::Status", "status")])
        .args(["--option", &set("Dir::Cache", "cache")])
        .args(["--option", "Acquire::Languages=none", "--option", "APT::Sandbox::User="])
        .args(arguments)
        .output()
        .context("apt-get is not here")?;
    if !output.status.success() {
        bail!("apt-get {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn unpack(apt: &Path, root: &Path, package: &str) -> Result<()> {
    let prefix = format!("{package}_");
    for entry in std::fs::read_dir(apt)? {
        let file = entry?.path();
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(&prefix) && name.ends_with(".deb") {
            let status = Command::new("dpkg-deb").arg("--extract").arg(&file).arg(root).status();
            if !status.context("dpkg-deb is not here")?.success() {
                bail!("dpkg-deb cannot unpack {}", file.display());
            }
            return Ok(());
        }
    }
    bail!("apt-get said it downloaded {package}, but no such file is in {}", apt.display())
}
