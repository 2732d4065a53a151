//! What comes next for a pod on a simulated node. Pure: the pod, the settings and the time give the step.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;
use shoal_objects::Timestamp;

use super::options::Options;
use super::status::{self, Containers};

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No node has reported on it.
    New,
    /// Its containers are being made.
    Creating,
    /// Its containers run, after so many restarts.
    Running(i32),
    /// Its containers have ended and will be started again.
    BackOff(i32),
    /// Its containers have ended for good.
    Finished,
    /// Its containers are told to end.
    Stopping,
}

/// What to do with a pod.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing, until it changes.
    Nothing,
    /// Nothing, for this time.
    Wait(Duration),
    /// Give it an address, if it has none, and write this status.
    Write(Value),
    /// Write this status, if there is one, and remove the pod.
    Remove(Option<Value>),
}

/// Where the pod is.
pub fn stage(pod: &Pod) -> Stage {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let reported = status.is_some_and(|status| status.start_time.is_some());
    match phase {
        "Succeeded" | "Failed" => Stage::Finished,
        _ if !reported => Stage::New,
        _ if pod.metadata.deletion_timestamp.is_some() => Stage::Stopping,
        "Running" => {
            let containers = containers(pod);
            let restarts = containers.iter().map(|container| container.restart_count).max().unwrap_or(0);
            let waits =
                |container: &ContainerStatus| container.state.as_ref().is_some_and(|s| s.waiting.is_some());
            if containers.iter().any(waits) { Stage::BackOff(restarts) } else { Stage::Running(restarts) }
        }
        _ => Stage::Creating,
    }
}

fn containers(pod: &Pod) -> &[ContainerStatus] {
    pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default()
}

/// How long the pod stays where it is; None for ever.
pub fn stays(pod: &Pod, stage: Stage, options: &Options) -> Option<Duration> {
    match stage {
        Stage::New => Some(Duration::ZERO),
        Stage::Creating if options.waiting(pod).is_some() => None,
        Stage::Creating => Some(options.start_delay(pod)),
        Stage::Running(restarts) => options.end(pod, restarts).map(|end| end.after),
        Stage::BackOff(restarts) => Some(options.back_off(restarts)),
        Stage::Finished => None,
        Stage::Stopping => {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
            Some(options.stop_delay.min(Duration::from_secs(u64::try_from(grace).unwrap_or_default())))
        }
    }
}

/// The next step of a pod that has been where it is for `since`. `address` is the one that it has or gets.
pub fn next(
    pod: &Pod,
    options: &Options,
    since: Duration,
    address: Option<(Ipv4Addr, Ipv4Addr)>,
    now: Timestamp,
) -> Step {
    let stage = stage(pod);
    if pod.metadata.deletion_timestamp.is_some() && matches!(stage, Stage::New | Stage::Finished) {
        // Already removed as far as a node can; what is left waits for finalizers.
        let is_removed = pod.metadata.deletion_grace_period_seconds == Some(0)
            && pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        return if is_removed { Step::Nothing } else { Step::Remove(None) };
    }
    let due = stays(pod, stage, options);
    match due {
        Some(due) if since < due => return gates(pod, stage, now).unwrap_or(Step::Wait(due - since)),
        None => return gates(pod, stage, now).unwrap_or(Step::Nothing),
        Some(_) => {}
    }
    let write = |containers: Containers<'_>| Step::Write(status::patch(pod, containers, address, now));
    match stage {
        Stage::New => match options.waiting(pod) {
            Some(reason) => write(Containers::Waiting(reason)),
            None if !options.start_delay(pod).is_zero() => write(Containers::Waiting("ContainerCreating")),
            None => write(Containers::Running { restarts: 0 }),
        },
        Stage::Creating => write(Containers::Running { restarts: 0 }),
        Stage::Running(restarts) => {
            let code = options.end(pod, restarts).map(|end| end.code).unwrap_or_default();
            let policy =
                pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
            let again = policy == "Always" || (policy == "OnFailure" && code != 0);
            match again {
                false => write(Containers::Ended { code }),
                true if restarts == 0 => write(Containers::Running { restarts: 1 }),
                true => write(Containers::BackOff { code }),
            }
        }
        Stage::BackOff(restarts) => write(Containers::Running { restarts: restarts.saturating_add(1) }),
        Stage::Stopping => {
            Step::Remove(Some(status::patch(pod, Containers::Ended { code: 0 }, address, now)))
        }
        Stage::Finished => Step::Nothing,
    }
}

/// A running pod whose readiness gates say something else than its status. The status of one without gates is wrong
/// after its node was taken for dead.
fn gates(pod: &Pod, stage: Stage, now: Timestamp) -> Option<Step> {
    let Stage::Running(restarts) = stage else { return None };
    (status::ready(pod) != status::gates_hold(pod))
        .then(|| Step::Write(status::patch(pod, Containers::Running { restarts }, None, now)))
}

/// Whether someone else has said of a running pod that it is not ready.
pub fn was_doubted(pod: &Pod, stage: Stage) -> bool {
    matches!(stage, Stage::Running(_)) && !status::ready(pod) && status::gates_hold(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::options::{EXIT_CODE, RUN_FOR, START_DELAY, WAITING};
    use super::*;

    const NOW: Timestamp = Timestamp(1_714_557_600_000_000);
    const ADDRESS: Option<(Ipv4Addr, Ipv4Addr)> =
        Some((Ipv4Addr::new(10, 128, 0, 1), Ipv4Addr::new(10, 0, 0, 1)));

    fn pod(annotations: Value, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": annotations},
            "spec": {"nodeName": "simulated-0", "containers": [{"name": "c", "image": "i"}]},
            "status": status
        }))
        .unwrap()
    }

    /// The pod after its step was written, as a merge would have it.
    fn after(pod: &Pod, step: &Step) -> Pod {
        let Step::Write(patch) = step else { panic!("{step:?} writes nothing") };
        let mut value = serde_json::to_value(pod).unwrap();
        for (key, part) in patch["status"].as_object().unwrap() {
            value["status"][key] = part.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn step(pod: &Pod, seconds: u64) -> Step {
        next(pod, &Options::default(), Duration::from_secs(seconds), ADDRESS, NOW)
    }

    #[test]
    fn a_bound_pod_runs_after_one_write() {
        let new = pod(json!({}), json!({"phase": "Pending"}));
        let running = after(&new, &step(&new, 0));
        assert_eq!(stage(&running), Stage::Running(0));
        assert!(status::ready(&running));
        let status = running.status.as_ref().unwrap();
        assert_eq!(status.pod_ip.as_deref(), Some("10.128.0.1"));
        assert_eq!(status.host_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(step(&running, 1_000_000), Step::Nothing);
    }

    #[test]
    fn a_pod_that_takes_time_is_seen_creating() {
        let new = pod(json!({START_DELAY: "5s"}), json!({"phase": "Pending"}));
        let creating = after(&new, &step(&new, 0));
        assert_eq!(stage(&creating), Stage::Creating);
        assert!(!status::ready(&creating));
        assert_eq!(step(&creating, 1), Step::Wait(Duration::from_secs(4)));
        assert_eq!(stage(&after(&creating, &step(&creating, 5))), Stage::Running(0));
    }

    #[test]
    fn a_pod_that_never_starts_waits_for_ever() {
        let new = pod(json!({WAITING: "ErrImagePull"}), json!({"phase": "Pending"}));
        let waiting = after(&new, &step(&new, 0));
        assert_eq!(step(&waiting, 1_000_000), Step::Nothing);
        let state = waiting.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
        assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("ErrImagePull"));
    }

    #[test]
    fn a_pod_that_ends_is_finished_or_restarted_by_its_policy() {
        for (policy, code, expected) in [
            ("Never", "0", "Succeeded"),
            ("Never", "3", "Failed"),
            ("OnFailure", "0", "Succeeded"),
            ("OnFailure", "3", "Running"),
            ("Always", "0", "Running"),
        ] {
            let mut new = pod(json!({RUN_FOR: "2s", EXIT_CODE: code}), json!({"phase": "Pending"}));
            new.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
            let running = after(&new, &step(&new, 0));
            assert_eq!(step(&running, 1), Step::Wait(Duration::from_secs(1)));
            let ended = after(&running, &step(&running, 2));
            assert_eq!(ended.status.as_ref().unwrap().phase.as_deref(), Some(expected), "{policy} {code}");
            if expected == "Running" {
                assert_eq!(stage(&ended), Stage::Running(1), "the first restart comes at once");
                let down = after(&ended, &step(&ended, 2));
                assert_eq!(stage(&down), Stage::BackOff(1));
                assert_eq!(step(&down, 4), Step::Wait(Duration::from_secs(6)));
                assert_eq!(stage(&after(&down, &step(&down, 10))), Stage::Running(2));
            }
        }
    }

    #[test]
    fn a_deleted_pod_ends_and_is_removed() {
        let new = pod(json!({}), json!({"phase": "Pending"}));
        let mut running = after(&new, &step(&new, 0));
        running.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2024-05-01T10:00:00Z")).unwrap());
        running.metadata.deletion_grace_period_seconds = Some(30);
        let Step::Remove(Some(patch)) = step(&running, 0) else { panic!("it is not removed") };
        assert_eq!(patch["status"]["phase"], "Succeeded");
        assert!(patch["status"]["containerStatuses"][0]["state"]["terminated"].is_object());
        let slow = Options { stop_delay: Duration::from_secs(60), ..Options::default() };
        let wait = next(&running, &slow, Duration::ZERO, ADDRESS, NOW);
        assert_eq!(wait, Step::Wait(Duration::from_secs(30)), "never longer than its grace");
        let mut never = new;
        never.metadata.deletion_timestamp = running.metadata.deletion_timestamp;
        assert_eq!(step(&never, 0), Step::Remove(None));
        never.metadata.deletion_grace_period_seconds = Some(0);
        never.metadata.finalizers = Some(vec!["batch.kubernetes.io/job-tracking".to_owned()]);
        assert_eq!(step(&never, 0), Step::Nothing, "the rest is up to the finalizers");
    }

    #[test]
    fn a_pod_is_ready_when_its_gates_are() {
        let mut new = pod(json!({}), json!({"phase": "Pending"}));
        new.spec.as_mut().unwrap().readiness_gates =
            Some(serde_json::from_value(json!([{"conditionType": "example.com/up"}])).unwrap());
        let mut running = after(&new, &step(&new, 0));
        assert!(!status::ready(&running));
        assert_eq!(step(&running, 9), Step::Nothing);
        let gate = serde_json::from_value(json!({"type": "example.com/up", "status": "True"})).unwrap();
        running.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate);
        assert!(status::ready(&after(&running, &step(&running, 9))));
    }

    #[test]
    fn what_others_say_of_a_pod_that_runs_is_put_right() {
        let new = pod(json!({}), json!({"phase": "Pending"}));
        let mut running = after(&new, &step(&new, 0));
        assert_eq!(step(&running, 9), Step::Nothing);
        let conditions = running.status.as_mut().unwrap().conditions.as_mut().unwrap();
        conditions.iter_mut().find(|told| told.type_ == "Ready").unwrap().status = "False".to_owned();
        assert!(was_doubted(&running, stage(&running)));
        assert!(status::ready(&after(&running, &step(&running, 9))));
    }
}
