//! Memory limits without cgroups: processes are looked at, and a container that has too much is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use shoal_objects::Quantity;
use tokio::task::AbortHandle;

use crate::pod::container::Run;
use crate::usage::{Processes, own_memory};

/// How often a container is looked at.
const PERIOD: Duration = Duration::from_millis(200);
/// More processes are not looked at, whatever a container forks.
const MOST_PROCESSES: usize = 10_000;

/// The container's limit in bytes.
pub fn limit(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let quantity = Quantity::parse(&limits.get("memory")?.0).ok()?;
    u64::try_from(quantity.value()).ok().filter(|limit| *limit > 0)
}

/// Watches a run of a container that has a limit and no cgroup, until the task is aborted.
pub fn watch(container: &Container, run: &Arc<Run>) -> Option<AbortHandle> {
    let limit = limit(container).filter(|_| run.cgroup.is_none())?;
    let run = run.clone();
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            let root = run.pid;
            // A machine that swaps can be slow to tell.
            let exceeds = tokio::task::spawn_blocking(move || exceeds(root, limit)).await;
            if exceeds.unwrap_or(false) {
                run.kill_for_memory();
                return;
            }
        }
    });
    Some(task.abort_handle())
}

/// Pages that processes share are counted for each of them at first, and shared out only when it matters: that is slow.
fn exceeds(root: i32, limit: u64) -> bool {
    let all = descendants(root);
    let sum = |of: fn(i32) -> u64| all.iter().fold(0_u64, |sum, pid| sum.saturating_add(of(*pid)));
    sum(own_memory) > limit && sum(fair_memory) > limit
}

/// Memory of its own and its share of what it shares with others, files aside.
fn fair_memory(pid: i32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return own_memory(pid);
    };
    let kib = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    match kib("Pss_Anon:") {
        Some(anonymous) => {
            let anonymous: u64 = anonymous;
            anonymous.saturating_add(kib("Pss_Shmem:").unwrap_or(0)).saturating_mul(1024)
        }
        None => own_memory(pid),
    }
}

/// A process and everything below it. Most kernels tell the children of each thread.
fn descendants(root: i32) -> Vec<i32> {
    if !Path::new("/proc/thread-self/children").exists() {
        return Processes::look().tree(root);
    }
    let mut all = vec![root];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied().filter(|_| all.len() < MOST_PROCESSES) {
        at += 1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_read_from_the_container() {
        let of =
            |resources| limit(&serde_json::from_value(json!({"name": "c", "resources": resources})).unwrap());
        assert_eq!(of(json!({"limits": {"memory": "64Mi"}})), Some(64 << 20));
        assert_eq!(of(json!({"limits": {"cpu": "1"}})), None);
        assert_eq!(of(json!({"limits": {"memory": "much"}})), None);
    }

    #[test]
    fn a_process_is_measured_with_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let all = descendants(me);
        assert!(all.contains(&i32::try_from(child.id()).unwrap()), "{all:?}");
        assert!(exceeds(me, 4096) && !exceeds(me, 1 << 40));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
