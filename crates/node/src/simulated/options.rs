//! How many nodes are played, how large they are and how their pods behave.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shoal_objects::Quantity;
use shoal_runtime::config::duration;

/// A pod says with this annotation how long it takes to start, as in `2s`.
pub const START_DELAY: &str = "simulated.shoal.dev/start-delay";
/// A pod says with this annotation how long it runs before it ends by itself.
pub const RUN_FOR: &str = "simulated.shoal.dev/run-for";
/// A pod says with this annotation which code it ends with.
pub const EXIT_CODE: &str = "simulated.shoal.dev/exit-code";
/// A pod says with this annotation why it never starts, as in `ErrImagePull`.
pub const WAITING: &str = "simulated.shoal.dev/waiting";
/// A Node says with this label that its machine has died: it renews nothing, and its pods are left as they are.
pub const DEAD: &str = "simulated.shoal.dev/dead";

/// A pod says with this annotation how much CPU it uses, as in `250m`.
pub const CPU_USAGE: &str = "simulated.shoal.dev/cpu-usage";
/// A pod says with this annotation how much memory it uses, as in `64Mi`.
pub const MEMORY_USAGE: &str = "simulated.shoal.dev/memory-usage";

/// The code of containers that fail by the rate of failures.
const FAILED: i32 = 1;
/// How long a container that fails by the rate of failures runs.
const FAILS_AFTER: Duration = Duration::from_secs(1);
/// Delay before the second restart; doubles with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// Settings of simulated nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many.
    pub nodes: u32,
    /// Names are this, a dash and a number.
    pub prefix: String,
    /// What each node has: `cpu`, `memory`, `ephemeral-storage`, `pods`, and whatever else.
    pub capacity: BTreeMap<String, Quantity>,
    /// Nodes are spread over so many zones.
    pub zones: u32,
    /// How long pods take to start.
    pub start_delay: Duration,
    /// How long pods of Jobs run before they end.
    pub job_duration: Duration,
    /// How long pods take to end when they are deleted; never longer than their grace.
    pub stop_delay: Duration,
    /// Which part of all starts ends in a failure, from 0 to 1.
    pub failure_rate: f64,
    /// Which part of their requests pods use, if they do not say it.
    pub usage: f64,
}

impl Default for Options {
    fn default() -> Options {
        let giga = |count: i64| Quantity::new(count << 30, shoal_objects::quantity::Format::BinarySi);
        let count = |count: i64| Quantity::new(count, shoal_objects::quantity::Format::DecimalSi);
        Options {
            nodes: 1,
            prefix: "simulated".to_owned(),
            capacity: BTreeMap::from([
                ("cpu".to_owned(), count(32)),
                ("memory".to_owned(), giga(256)),
                ("ephemeral-storage".to_owned(), giga(1024)),
                ("pods".to_owned(), count(110)),
            ]),
            zones: 3,
            start_delay: Duration::ZERO,
            job_duration: Duration::from_secs(1),
            stop_delay: Duration::ZERO,
            failure_rate: 0.0,
            usage: 0.5,
        }
    }
}

/// How a run of a pod's containers ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// After this time.
    pub after: Duration,
    /// With this code.
    pub code: i32,
}

impl Options {
    /// The name of a node, counted from 0.
    pub fn name(&self, index: u32) -> String {
        format!("{}-{index}", self.prefix)
    }

    /// Which of our nodes has this name.
    pub fn index(&self, name: &str) -> Option<u32> {
        let number = name.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let plain = number.len() == 1 || !number.starts_with(['0', '+']);
        number.parse().ok().filter(|index| *index < self.nodes && plain)
    }

    /// How long a pod takes to start.
    pub fn start_delay(&self, pod: &Pod) -> Duration {
        annotation(pod, START_DELAY).and_then(|text| duration::parse(text).ok()).unwrap_or(self.start_delay)
    }

    /// Why a pod never starts.
    pub fn waiting<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        annotation(pod, WAITING)
    }

    /// How this run of a pod ends, if it does. `restarts` were before.
    pub fn end(&self, pod: &Pod, restarts: i32) -> Option<End> {
        let wanted = annotation(pod, RUN_FOR).and_then(|text| duration::parse(text).ok());
        let code = annotation(pod, EXIT_CODE).and_then(|text| text.parse().ok());
        if wanted.is_none() && code.is_none() && self.fails(pod, restarts) {
            return Some(End { after: FAILS_AFTER, code: FAILED });
        }
        let of_job = || is_of_job(pod).then_some(self.job_duration);
        let after = wanted.or_else(of_job).or_else(|| code.map(|_| Duration::ZERO))?;
        Some(End { after, code: code.unwrap_or_default() })
    }

    /// Chance by the pod's uid: the same pods fail in every run of one seed.
    fn fails(&self, pod: &Pod, restarts: i32) -> bool {
        if self.failure_rate <= 0.0 {
            return false;
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let hash = uid.bytes().chain(restarts.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mixed = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        (mixed as f64) / ((1_u64 << 53) as f64) < self.failure_rate
    }

    /// How long a container stays down before it is started again. The first restart comes at once.
    pub fn back_off(&self, restarts: i32) -> Duration {
        match u32::try_from(restarts) {
            Err(_) | Ok(0) => Duration::ZERO,
            Ok(count) => FIRST_BACK_OFF.saturating_mul(1 << (count - 1).min(10)).min(LONGEST_BACK_OFF),
        }
    }
}

pub(super) fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn is_of_job(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| owner.controller == Some(true) && owner.kind == "Job")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn only_own_nodes_are_recognised() {
        let options = Options { nodes: 12, ..Options::default() };
        assert_eq!(options.index(&options.name(11)), Some(11));
        for name in ["simulated-12", "simulated-01", "simulated-", "simulated-+1", "other-1", "simulated1"] {
            assert_eq!(options.index(name), None, "{name}");
        }
    }

    #[test]
    fn pods_say_how_long_they_run_and_jobs_end_by_themselves() {
        let options = Options::default();
        assert_eq!(options.end(&pod(json!({})), 0), None);
        let job = json!({"ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": true}]});
        assert_eq!(options.end(&pod(job), 0), Some(End { after: Duration::from_secs(1), code: 0 }));
        let own = json!({"annotations": {RUN_FOR: "3s", EXIT_CODE: "7"}});
        assert_eq!(options.end(&pod(own), 0), Some(End { after: Duration::from_secs(3), code: 7 }));
    }

    #[test]
    fn so_many_starts_fail_as_the_rate_says() {
        let options = Options { failure_rate: 0.25, ..Options::default() };
        let failed = (0..1000)
            .filter(|index| options.end(&pod(json!({"uid": format!("uid-{index}")})), 0).is_some())
            .count();
        assert!((200..300).contains(&failed), "{failed}");
    }

    #[test]
    fn restarts_come_ever_later() {
        let options = Options::default();
        let seconds: Vec<u64> = [0, 1, 2, 5, 6, 1000, -1].map(|n| options.back_off(n).as_secs()).into();
        assert_eq!(seconds, [0, 10, 20, 160, 300, 300, 0]);
    }
}
