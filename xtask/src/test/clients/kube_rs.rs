//! kube-rs and the controllers of kube-runtime: a program outside the workspace, like any operator.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::command::Counts;
use super::Ground;
use crate::workspace::cargo;

/// Builds the program and runs its uses.
pub fn run(ground: &Ground<'_>) -> Result<Counts> {
    let built = cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(ground.sources("kube-rs").join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&ground.workspace.target)
        .status();
    if !built.context("running cargo build")?.success() {
        bail!("does not build");
    }
    let program = ground.workspace.target.join("debug/kube-rs-uses");
    ground.check("kube-rs", &mut Command::new(program))
}
