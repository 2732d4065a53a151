//! Fetches what the tables are made from: OpenAPI definitions from the Python package index, protobuf messages from the
//! crate registry. Both are pinned and kept in the work directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

const DEFINITIONS_PACKAGE: &str = "kubernetes-validate==1.37.0";
const DEFINITIONS_FILE: &str = "kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json";
const MESSAGES_CRATE: &str = "k8s-pb = \"=0.9.0\"";

/// The OpenAPI definitions of Kubernetes 1.36, by name.
pub fn definitions(work: &Path) -> anyhow::Result<serde_json::Map<String, Value>> {
    let file = work.join(DEFINITIONS_FILE);
    if !file.exists() {
        run(Command::new("pip").args(["download", "--no-deps", "-d", "."]).arg(DEFINITIONS_PACKAGE), work)?;
        let wheel = std::fs::read_dir(work)?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .find(|path| path.extension().is_some_and(|e| e == "whl"))
            .context("pip downloaded no wheel")?;
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg("."), work)?;
    }
    let mut whole: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    match whole["$defs"].take() {
        Value::Object(definitions) => Ok(definitions),
        _ => bail!("{} has no $defs", file.display()),
    }
}

/// The directory with the sources of the generated protobuf messages.
pub fn protobuf_messages(work: &Path) -> anyhow::Result<PathBuf> {
    let project = work.join("messages");
    let sources = project.join("vendor/k8s-pb/src");
    if !sources.exists() {
        std::fs::create_dir_all(project.join("src"))?;
        std::fs::write(project.join("src/lib.rs"), "")?;
        let manifest = format!(
            "[package]\nname = \"messages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{MESSAGES_CRATE}\n\n[workspace]\n"
        );
        std::fs::write(project.join("Cargo.toml"), manifest)?;
        run(Command::new("cargo").args(["vendor", "--quiet", "vendor"]), &project)?;
    }
    Ok(sources)
}

fn run(command: &mut Command, directory: &Path) -> anyhow::Result<()> {
    let done = command.current_dir(directory).output().with_context(|| format!("{command:?}"))?;
    if !done.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
