//! kopf's own example operators, as they are published in its source package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::command::Counts;
use super::{Ground, at_once, install_step, installed};

/// How many servers share the examples. Much of an example's time is waiting.
const SERVERS: usize = 4;

/// Runs every example that is in the package.
pub fn run(ground: &Ground<'_>, python: &Path) -> Result<Counts> {
    let package = &source_package(ground, python)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(package.join("examples"))? {
        let folder = entry?.path();
        if folder.join("example.py").is_file() {
            names.extend(folder.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    if names.is_empty() {
        bail!("no examples in {}", package.display());
    }
    names.sort();
    let check = ground.sources("kopf").join("check.py");
    let jobs = (0..SERVERS).map(|number| {
        let mine = names.iter().skip(number).step_by(SERVERS);
        let mut command = Command::new(python);
        command.arg(&check).arg(package).args(mine);
        ("kopf", move || ground.check(&format!("kopf-{number}"), &mut command))
    });
    Ok(at_once(SERVERS, jobs.collect()))
}

/// The unpacked source package. pip checks it against the hash in the requirements.
fn source_package(ground: &Ground<'_>, python: &Path) -> Result<PathBuf> {
    let requirements = ground.sources("kopf").join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("reading {}", requirements.display()))?;
    let folder = ground.workspace.target.join("tools/kopf");
    installed(&folder, &wanted, || {
        println!("    kopf: getting its source package for the examples");
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "kopf"]);
        pip.args(["--require-hashes", "--requirement"]).arg(&requirements).arg("--dest").arg(&folder);
        install_step(&mut pip, "the package must be reachable with pip")?;
        let archive = find(&folder, |path| path.extension().is_some_and(|end| end == "gz"))?;
        let mut unpack = Command::new(python);
        unpack.args(["-m", "tarfile", "--extract"]).arg(archive).arg(&folder);
        install_step(&mut unpack, "the archive must be whole")
    })?;
    find(&folder, |path| path.join("examples").is_dir())
}

fn find(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if wanted(&path) {
            return Ok(path);
        }
    }
    bail!("kopf's source package is not what it was: see {}", folder.display())
}
