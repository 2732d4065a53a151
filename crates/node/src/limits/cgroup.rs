//! Containers in cgroups (version 2) of their own, where the system has given this process a cgroup to itself: as a
//! service of systemd with `Delegate=yes`, or under `systemd-run --user --scope`.
//!
//! A cgroup whose controllers are handed on must hold no process itself, so the agent moves into a child of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use shoal_objects::Quantity;

use super::memory;
use crate::usage::Usage;

/// Where the agent goes.
const OWN: &str = "shoal-agent";
/// In which time a quota of CPU is counted, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// The cgroup below which containers get theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups(PathBuf);

impl Cgroups {
    /// Takes over the cgroup of this process, the first time; else why that cannot be.
    pub fn of_this_process() -> Result<&'static Cgroups, &'static str> {
        static TAKEN: OnceLock<Result<Cgroups, String>> = OnceLock::new();
        let taken = TAKEN.get_or_init(|| take(&own_cgroup()?, std::process::id()));
        taken.as_ref().map_err(String::as_str)
    }

    /// A cgroup with the limits of a container.
    pub fn create(&self, name: &str, container: &Container) -> io::Result<Cgroup> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        let cgroup = Cgroup { path, kept: false };
        for (file, text) in settings(container) {
            fs::write(cgroup.path.join(file), text)?;
        }
        // As kubelets do where there is no setting for it; not every kernel has swap.
        let _ = fs::write(cgroup.path.join("memory.swap.max"), "0");
        Ok(cgroup)
    }
}

/// The cgroup of one run of a container; gone when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Its processes outlive the agent.
    kept: bool,
}

impl Cgroup {
    /// The cgroup of a run that an earlier agent has left.
    pub fn left(path: PathBuf) -> Option<Cgroup> {
        path.is_dir().then_some(Cgroup { path, kept: true })
    }

    /// The same, for a run that outlives the agent.
    #[must_use]
    pub fn keep(mut self, kept: bool) -> Cgroup {
        self.kept = kept;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap_or_default()
    }

    /// Whether the kernel has killed it because of its memory.
    pub fn has_exceeded_memory(&self) -> bool {
        value(&self.read("memory.events"), "oom_kill").is_some_and(|count| count > 0)
    }

    /// What its processes use.
    pub fn usage(&self) -> Option<Usage> {
        let cpu = value(&self.read("cpu.stat"), "usage_usec")?.saturating_mul(1000);
        let memory: u64 = self.read("memory.current").trim().parse().ok()?;
        let idle = value(&self.read("memory.stat"), "inactive_file").unwrap_or(0);
        Some(Usage { cpu, memory: memory.saturating_sub(idle) })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whatever is left in it; a cgroup with processes cannot be removed.
        if !self.kept {
            let _ = fs::write(self.path.join("cgroup.kill"), "1");
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// `name 7`, one a line.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// What is written where for a container.
fn settings(container: &Container) -> Vec<(&'static str, String)> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let cpu = |list: Option<&BTreeMap<String, Text>>| {
        let quantity = Quantity::parse(&list?.get("cpu")?.0).ok()?;
        u64::try_from(quantity.milli_value()).ok()
    };
    let mut all = vec![("memory.oom.group", "1".to_owned())];
    if let Some(limit) = memory::limit(container) {
        all.push(("memory.max", limit.to_string()));
    }
    if let Some(limit) = cpu(limits).filter(|limit| *limit > 0) {
        let quota = limit.saturating_mul(CPU_PERIOD / 1000).max(1000);
        all.push(("cpu.max", format!("{quota} {CPU_PERIOD}")));
    }
    all.push(("cpu.weight", weight(cpu(requests).or(cpu(limits)).unwrap_or(0)).to_string()));
    all
}

/// From thousandths of a CPU to the weight that kubelets give: 1 to 10,000 for 2 to 262,144 shares.
fn weight(milli: u64) -> u64 {
    let shares = (milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
}

/// The cgroup of this process, if there is a hierarchy of version 2 and we are in it.
fn own_cgroup() -> Result<PathBuf, String> {
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let (cgroups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
    find(&cgroups, &mounts).ok_or_else(|| "there are no cgroups of version 2".to_owned())
}

fn find(cgroups: &str, mounts: &str) -> Option<PathBuf> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| Path::new(point).join(below))
    })
}

/// Takes over a cgroup in which there is nothing but this process.
fn take(base: &Path, process: u32) -> Result<Cgroups, String> {
    let failed = |what: &str, error: &io::Error| format!("{what} {}: {error}", base.display());
    let read =
        |file: &str| fs::read_to_string(base.join(file)).map_err(|error| failed("cannot read", &error));
    let controllers = read("cgroup.controllers")?;
    for needed in ["cpu", "memory"] {
        if !controllers.split_whitespace().any(|controller| controller == needed) {
            return Err(format!("{} has no controller of {needed}", base.display()));
        }
    }
    if read("cgroup.procs")?.split_whitespace().any(|other| other != process.to_string()) {
        return Err(format!("{} is shared with other processes", base.display()));
    }
    let own = base.join(OWN);
    let moved =
        fs::create_dir_all(&own).and_then(|()| fs::write(own.join("cgroup.procs"), process.to_string()));
    let given = moved.and_then(|()| fs::write(base.join("cgroup.subtree_control"), "+cpu +memory"));
    given.map_err(|error| {
        let _ = fs::write(base.join("cgroup.procs"), process.to_string());
        let _ = fs::remove_dir(&own);
        failed("not allowed to divide", &error)
    })?;
    Ok(Cgroups(base.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(resources: Value) -> Container {
        serde_json::from_value(json!({"name": "c", "resources": resources})).unwrap()
    }

    #[test]
    fn limits_and_requests_become_settings() {
        let all = settings(&container(
            json!({"limits": {"memory": "64Mi", "cpu": "1500m"}, "requests": {"cpu": "1"}}),
        ));
        let expected = [
            ("memory.oom.group", "1"),
            ("memory.max", "67108864"),
            ("cpu.max", "150000 100000"),
            ("cpu.weight", "39"),
        ];
        assert_eq!(all, expected.map(|(file, text)| (file, text.to_owned())));
        assert_eq!((weight(0), weight(u64::MAX)), (1, 10_000));
    }

    #[test]
    fn the_own_cgroup_is_found_below_its_mount() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 23 0:27 /user.slice /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let found = find("1:cpu:/\n0::/user.slice/run-7.scope\n", mounts);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/run-7.scope")));
        assert_eq!(find("0::/other", mounts), None);
        assert_eq!(find("1:cpu:/\n", mounts), None);
    }

    #[test]
    fn only_a_cgroup_of_our_own_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let write = |file: &str, text: &str| fs::write(base.join(file), text).unwrap();
        write("cgroup.controllers", "cpu io memory pids\n");
        write("cgroup.procs", "7\n8\n");
        assert!(take(base, 7).unwrap_err().contains("shared with other processes"));
        write("cgroup.procs", "7\n");
        let cgroups = take(base, 7).unwrap();
        assert_eq!(fs::read_to_string(base.join("shoal-agent/cgroup.procs")).unwrap(), "7");
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+cpu +memory");
        let cgroup = cgroups.create("run", &container(json!({"limits": {"memory": "1Mi"}}))).unwrap();
        assert_eq!(fs::read_to_string(cgroup.path().join("memory.max")).unwrap(), "1048576");
        let write = |file: &str, text: &str| fs::write(cgroup.path().join(file), text).unwrap();
        write("memory.events", "low 0\noom 3\noom_kill 0\n");
        assert!(!cgroup.has_exceeded_memory());
        write("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
        assert!(cgroup.has_exceeded_memory());
        write("cpu.stat", "usage_usec 5\nuser_usec 3\n");
        write("memory.current", "1000\n");
        write("memory.stat", "anon 1\ninactive_file 400\n");
        assert_eq!(cgroup.usage(), Some(Usage { cpu: 5000, memory: 600 }));
        fs::write(base.join("cgroup.controllers"), "cpu").unwrap();
        assert!(take(base, 7).unwrap_err().contains("no controller of memory"));
    }
}
