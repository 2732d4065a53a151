//! The status that a kubelet writes, as a strategic merge patch: one for each transition.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition};
use serde_json::{Map, Value, json};
use shoal_objects::Timestamp;

/// What all containers of a pod are doing.
#[derive(Clone, Copy, Debug)]
pub enum Containers<'a> {
    /// Not started, for this reason.
    Waiting(&'a str),
    /// They run.
    Running {
        /// After so many restarts.
        restarts: i32,
    },
    /// They ended with this code and wait for a restart.
    BackOff {
        /// Of the last run.
        code: i32,
    },
    /// They ended for good.
    Ended {
        /// With this code.
        code: i32,
    },
}

/// The patch that tells what the containers do now. `address` is the pod's and its node's.
pub fn patch(
    pod: &Pod,
    containers: Containers<'_>,
    address: Option<(Ipv4Addr, Ipv4Addr)>,
    now: Timestamp,
) -> Value {
    let text = now.to_string();
    let generation = pod.metadata.generation;
    let running = matches!(containers, Containers::Running { .. });
    let initialized = !matches!(containers, Containers::Waiting(_));
    let sandbox = !matches!(containers, Containers::Ended { .. } | Containers::Waiting(_));
    let phase = match containers {
        Containers::Waiting(_) => "Pending",
        Containers::Running { .. } | Containers::BackOff { .. } => "Running",
        Containers::Ended { code: 0 } => "Succeeded",
        Containers::Ended { .. } => "Failed",
    };
    let why = match containers {
        Containers::Ended { code: 0 } => Some("PodCompleted"),
        Containers::Ended { .. } => Some("PodFailed"),
        _ => Some("ContainersNotReady"),
    };
    let condition = |kind: &str, holds: bool, reason: Option<&str>| {
        condition(pod, kind, holds, reason.filter(|_| !holds), generation, &text)
    };
    let ready = running && gates_hold(pod);
    let ready_reason = if running { Some("ReadinessGatesNotReady") } else { why };
    let mut status = json!({
        "phase": phase,
        "conditions": [
            condition("PodReadyToStartContainers", sandbox, None),
            condition("Initialized", initialized, Some("ContainersNotInitialized")),
            condition("Ready", ready, ready_reason),
            condition("ContainersReady", running, why),
        ],
    });
    let Some(fields) = status.as_object_mut() else { return status };
    if let Some(generation) = generation {
        fields.insert("observedGeneration".to_owned(), json!(generation));
    }
    if pod.status.as_ref().is_none_or(|status| status.start_time.is_none()) {
        fields.insert("startTime".to_owned(), json!(text));
    }
    if let Some((own, node)) = address {
        fields.insert("hostIP".to_owned(), json!(node.to_string()));
        fields.insert("hostIPs".to_owned(), json!([{"ip": node.to_string()}]));
        if !matches!(containers, Containers::Waiting(_)) {
            fields.insert("podIP".to_owned(), json!(own.to_string()));
            fields.insert("podIPs".to_owned(), json!([{"ip": own.to_string()}]));
        }
    }
    if let Some(spec) = &pod.spec {
        let known = pod.status.as_ref();
        let mains = known.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let of_all = spec.containers.iter().map(|container| main(pod, container, mains, containers, &text));
        fields.insert("containerStatuses".to_owned(), of_all.collect());
        let inits = known.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        if let Some(all) = spec.init_containers.as_deref().filter(|all| !all.is_empty()) {
            let of_all = all.iter().map(|container| init(pod, container, inits, containers, &text));
            fields.insert("initContainerStatuses".to_owned(), of_all.collect());
        }
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

/// Whether the status says that the pod is ready.
pub fn ready(pod: &Pod) -> bool {
    known(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Whether all readiness gates of the pod are open.
pub fn gates_hold(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    gates
        .iter()
        .all(|gate| known(pod, &gate.condition_type).is_some_and(|condition| condition.status == "True"))
}

fn known<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn condition(
    pod: &Pod,
    kind: &str,
    holds: bool,
    reason: Option<&str>,
    generation: Option<i64>,
    now: &str,
) -> Value {
    let status = if holds { "True" } else { "False" };
    let before = known(pod, kind).filter(|before| before.status == status);
    let since = before.and_then(|before| before.last_transition_time.as_ref());
    let since = since.map_or_else(|| json!(now), |since| json!(since));
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!(kind));
    fields.insert("status".to_owned(), json!(status));
    fields.insert("lastProbeTime".to_owned(), Value::Null);
    fields.insert("lastTransitionTime".to_owned(), since);
    if let Some(generation) = generation {
        fields.insert("observedGeneration".to_owned(), json!(generation));
    }
    // A null takes away what an earlier patch has set.
    fields.insert("reason".to_owned(), json!(reason));
    let names = || {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let message = match reason {
        Some("ContainersNotReady") => Some(format!("containers with unready status: [{}]", names())),
        Some("ReadinessGatesNotReady") => {
            Some("corresponding conditions of pod readiness gates are not \"True\"".to_owned())
        }
        _ => None,
    };
    fields.insert("message".to_owned(), json!(message));
    Value::Object(fields)
}

/// An ordinary container, or a sidecar, which does what they do.
fn main(
    pod: &Pod,
    container: &Container,
    known: &[ContainerStatus],
    all: Containers<'_>,
    now: &str,
) -> Value {
    let before = known.iter().find(|status| status.name == container.name);
    let restarts = before.map_or(0, |before| before.restart_count);
    let begun = before
        .and_then(|before| before.state.as_ref()?.running.as_ref()?.started_at.as_ref())
        .map_or_else(|| json!(now), |begun| json!(begun));
    let ended = |code: i32| {
        json!({"terminated": {
            "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
            "startedAt": begun, "finishedAt": now, "containerID": id(pod, container, restarts)}})
    };
    let last =
        before.and_then(|before| before.last_state.as_ref()).map_or_else(|| json!({}), |last| json!(last));
    let (state, last, restarts) = match all {
        Containers::Waiting(reason) => (json!({"waiting": {"reason": reason}}), last, restarts),
        Containers::Running { restarts: now_restarts } => {
            // One that ran until now has ended in between; one that was down says already how.
            let was_running =
                before.is_some_and(|before| before.state.as_ref().is_some_and(|s| s.running.is_some()));
            let last = if was_running && now_restarts > restarts { ended(0) } else { last };
            let started = if now_restarts > restarts { json!(now) } else { begun.clone() };
            (json!({"running": {"startedAt": started}}), last, now_restarts)
        }
        Containers::BackOff { code } => {
            let message = format!(
                "back-off restarting failed container={} pod={}",
                container.name,
                pod.metadata.name.as_deref().unwrap_or_default()
            );
            (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), ended(code), restarts)
        }
        Containers::Ended { code } => (ended(code), last, restarts),
    };
    let running = matches!(all, Containers::Running { .. });
    entry(pod, container, state, last, restarts, running, !matches!(all, Containers::Waiting(_)))
}

/// An init container: done, once the others run.
fn init(
    pod: &Pod,
    container: &Container,
    known: &[ContainerStatus],
    all: Containers<'_>,
    now: &str,
) -> Value {
    let waits = matches!(all, Containers::Waiting(_));
    if waits || container.restart_policy.as_deref() == Some("Always") {
        let all = if waits { Containers::Waiting("PodInitializing") } else { all };
        return main(pod, container, known, all, now);
    }
    if let Some(before) = known.iter().find(|status| status.name == container.name)
        && before.state.as_ref().is_some_and(|state| state.terminated.is_some())
    {
        return json!(before);
    }
    let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now,
        "containerID": id(pod, container, 0)}});
    let mut entry = entry(pod, container, state, json!({}), 0, true, true);
    entry["started"] = json!(false);
    entry
}

fn entry(
    pod: &Pod,
    container: &Container,
    state: Value,
    last: Value,
    restarts: i32,
    ready: bool,
    was_made: bool,
) -> Value {
    let image = container.image.as_deref().unwrap_or_default();
    let mut entry = json!({
        "name": container.name, "image": image, "imageID": if was_made { image } else { "" },
        "ready": ready, "started": ready, "restartCount": restarts, "state": state, "lastState": last,
    });
    if was_made {
        entry["containerID"] = json!(id(pod, container, restarts));
    }
    entry
}

fn id(pod: &Pod, container: &Container, restarts: i32) -> String {
    format!("simulated://{}/{}/{restarts}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name)
}
