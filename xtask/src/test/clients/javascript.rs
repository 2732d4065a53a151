//! The official JavaScript client, installed into `target/tools`.

use std::process::Command;

use anyhow::{Context, Result};

use super::super::command::Counts;
use super::{Ground, install_step, installed};

const REMEDY: &str = "Node.js 20 or newer with npm is needed; put node and npm on PATH";

/// Installs what the lock file names and runs the uses.
pub fn run(ground: &Ground<'_>) -> Result<Counts> {
    let sources = ground.sources("javascript");
    let folder = ground.workspace.target.join("tools/javascript");
    let read = |name: &str| {
        std::fs::read_to_string(sources.join(name)).with_context(|| format!("reading {name} of the client"))
    };
    let (manifest, lock) = (read("package.json")?, read("package-lock.json")?);
    installed(&folder, &format!("{manifest}{lock}"), || {
        println!("    javascript: installing what tests/clients/javascript/package-lock.json names");
        std::fs::write(folder.join("package.json"), &manifest)?;
        std::fs::write(folder.join("package-lock.json"), &lock)?;
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
        install_step(&mut npm, REMEDY)
    })?;
    // A module finds packages beside itself only, hence the copy.
    for entry in std::fs::read_dir(&sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "mjs") {
            let name = path.file_name().context("a file without a name")?;
            std::fs::copy(&path, folder.join(name)).with_context(|| format!("copying {}", path.display()))?;
        }
    }
    ground.check("javascript", Command::new("node").arg(folder.join("check.mjs")))
}
