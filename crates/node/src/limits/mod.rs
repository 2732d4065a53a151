//! What containers may not exceed: CPU, memory, and space on the disk.
//!
//! Where the system lets this process, containers have cgroups of their own (`cgroup`), and the kernel enforces limits of
//! CPU and memory. Elsewhere memory is watched (`memory`): who exceeds the limit is killed, shortly after the kernel would
//! have done it; CPU is not limited. The node says in a condition which one it is. Space on the disk is watched as kubelets
//! do it (`storage`).

pub mod cgroup;
pub mod memory;
pub mod storage;

use k8s_openapi::api::core::v1::Container;

use cgroup::{Cgroup, Cgroups};

/// Whether limits of CPU and memory are enforced by the kernel, and what is said about it.
pub fn statement() -> (bool, String) {
    match Cgroups::of_this_process() {
        Ok(_) => (true, "CPU and memory limits are enforced by cgroups".to_owned()),
        Err(why) => {
            let message = "memory limits are enforced by looking at processes five times a second, CPU limits are not; \
                           containers have no cgroups";
            (false, format!("{message}: {why}"))
        }
    }
}

/// A cgroup for one run of a container, where there can be one.
pub fn cgroup(run: &str, container: &Container) -> Option<Cgroup> {
    let cgroups = Cgroups::of_this_process().ok()?;
    let made = cgroups.create(run.trim_start_matches("shoal://"), container);
    if let Err(error) = &made {
        tracing::warn!(%error, "a container gets no cgroup");
    }
    made.ok()
}

/// Watches until it is dropped.
pub struct Watch(tokio::task::AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
