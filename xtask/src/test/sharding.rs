//! Replicas of a sharded controller as processes of their own: `shoal demo sharding` tells the story and proves that no object ever
//! had two of them at once and none was left alone.

use anyhow::Result;

use super::command::{Counts, story};
use crate::workspace::{Profile, Workspace};

/// One claim: the verdict is good.
pub fn run(workspace: &Workspace) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let arguments = ["demo", "sharding", "--objects", "1000", "--changes", "50", "--lease", "4"];
    Ok(story(&binary, &arguments))
}
