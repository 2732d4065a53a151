//! Replicas of a sharded controller as processes of their own: `shoal demo sharding` tells the story and proves that no object ever
//! had two of them at once and none was left alone.

use std::process::Command;

use anyhow::{Context, Result};

use super::command::Counts;
use crate::workspace::{Profile, Workspace};

/// One claim: the verdict is good.
pub fn run(workspace: &Workspace) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let story = ["demo", "sharding", "--objects", "1000", "--changes", "50", "--lease", "4"];
    let status = Command::new(&binary).args(story).status();
    let passed = u64::from(status.context("running shoal demo sharding")?.success());
    Ok(Counts { passed, failed: 1 - passed, flaky: 0 })
}
