//! The official Python client, installed into `target/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::command::Counts;
use super::super::tools;
use super::{Ground, install_step, installed};
use crate::workspace::Workspace;

/// A Python with the client, kopf and what its examples use; says where it is.
pub fn install(workspace: &Workspace) -> Result<PathBuf> {
    let requirements = workspace.root.join("tests/clients/python/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("reading {}", requirements.display()))?;
    let folder = workspace.target.join("tools/python");
    let python = folder.join("bin/python");
    installed(&folder, &wanted, || {
        println!("    python: installing what tests/clients/python/requirements.txt names");
        let mut venv = Command::new(tools::python()?);
        install_step(
            venv.args(["-m", "venv"]).arg(&folder),
            "Python's venv module is needed; Debian has it in python3-venv",
        )?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--requirement"]);
        install_step(pip.arg(&requirements), "the packages must be reachable with pip")
    })?;
    Ok(python)
}

/// Runs the uses.
pub fn run(ground: &Ground<'_>, python: &Path) -> Result<Counts> {
    ground.check("python", Command::new(python).arg(ground.sources("python").join("check.py")))
}
