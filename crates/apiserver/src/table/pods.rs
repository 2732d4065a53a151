//! Pods. Their status is told by the container that is in the way, not by the phase.

use serde_json::Value;
use shoal_objects::{Timestamp, conditions, meta};

use super::Column;
use super::cells::{AGE, NAME, NONE, text_or};
use super::duration::{micros, spell};
use crate::kinds::access::{at, bool_at, field, int_at, list_at, str_at};

/// Columns of pods.
pub static POD: &[Column] = &[
    NAME,
    Column::text("Ready", "Containers that are ready, of all.", |o, _| {
        let pod = summary(o);
        format!("{}/{}", pod.ready, pod.total).into()
    }),
    Column::text("Status", "What the pod is doing or waiting for.", |o, _| summary(o).reason.into()),
    Column::text("Restarts", "How often containers were restarted, and when last.", restarts),
    AGE,
    Column::text("IP", "The pod's address.", |o, _| {
        let first = at(o, &["status"]).and_then(|status| list_at(status, "podIPs").first());
        first.map_or(NONE.into(), |address| text_or(address, &["ip"], NONE))
    })
    .wide(),
    Column::text("Node", "The node the pod is bound to.", |o, _| text_or(o, &["spec", "nodeName"], NONE))
        .wide(),
    Column::text("Nominated Node", "The node on which room is being made for the pod.", |o, _| {
        text_or(o, &["status", "nominatedNodeName"], NONE)
    })
    .wide(),
    Column::text("Readiness Gates", "Readiness gates that are open, of all.", readiness_gates).wide(),
];

struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i64,
    /// Microseconds since the epoch.
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(int_at(container, "restartCount").unwrap_or_default());
        self.last = self.last.max(at(container, &["lastState", "terminated", "finishedAt"]).and_then(micros));
    }
}

fn summary(pod: &Value) -> Summary {
    let none = Value::Null;
    let (spec, status) = (field(pod, "spec").unwrap_or(&none), field(pod, "status").unwrap_or(&none));
    let init_containers = list_at(spec, "initContainers");
    let sidecars = init_containers.iter().filter(|c| is_sidecar(c)).count();
    let mut summary = Summary {
        ready: 0,
        total: list_at(spec, "containers").len() + sidecars,
        reason: phase(status).to_owned(),
        restarts: Restarts::default(),
    };
    let (initializing, sidecar_restarts) = initialize(&mut summary, init_containers, status);
    if !initializing || conditions::is_condition_true(pod, "Initialized") {
        // Restarts during initialization are forgotten once it is over, but for those of sidecars.
        summary.restarts = sidecar_restarts;
        run(&mut summary, pod, status);
    }
    let terminal = matches!(str_at(status, "phase"), "Succeeded" | "Failed");
    if meta::deletion_timestamp(pod).is_some() {
        if str_at(status, "reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !terminal {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// What there is to say before looking at containers.
fn phase(status: &Value) -> &str {
    let gated = |c: &Value| str_at(c, "type") == "PodScheduled" && str_at(c, "reason") == "SchedulingGated";
    match str_at(status, "reason") {
        _ if list_at(status, "conditions").iter().any(gated) => "SchedulingGated",
        "" => str_at(status, "phase"),
        reason => reason,
    }
}

/// Looks at init containers up to the one that is not done. Whether there is one, and restarts of sidecars so far.
fn initialize(summary: &mut Summary, specs: &[Value], status: &Value) -> (bool, Restarts) {
    let mut sidecar_restarts = Restarts::default();
    for (index, container) in list_at(status, "initContainerStatuses").iter().enumerate() {
        summary.restarts.add(container);
        let sidecar = specs.iter().any(|s| str_at(s, "name") == str_at(container, "name") && is_sidecar(s));
        if sidecar {
            sidecar_restarts.add(container);
        }
        let state = field(container, "state").unwrap_or(&Value::Null);
        let terminated = field(state, "terminated");
        if terminated.is_some_and(|t| int_at(t, "exitCode").unwrap_or_default() == 0) {
            continue;
        }
        if sidecar && bool_at(container, "started") {
            summary.ready += usize::from(bool_at(container, "ready"));
            continue;
        }
        let waiting = field(state, "waiting").map_or("", |w| str_at(w, "reason"));
        summary.reason = match terminated {
            Some(terminated) => format!("Init:{}", ending(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", specs.len()),
        };
        return (true, sidecar_restarts);
    }
    (false, sidecar_restarts)
}

/// Looks at the containers proper; the first one with something to say has the word.
fn run(summary: &mut Summary, pod: &Value, status: &Value) {
    let mut has_running = false;
    for container in list_at(status, "containerStatuses").iter().rev() {
        summary.restarts.add(container);
        let state = field(container, "state").unwrap_or(&Value::Null);
        let waiting = field(state, "waiting").map_or("", |w| str_at(w, "reason"));
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(terminated) = field(state, "terminated") {
            summary.reason = ending(terminated);
        } else if bool_at(container, "ready") && field(state, "running").is_some() {
            has_running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && has_running {
        let ready = conditions::is_condition_true(pod, "Ready");
        (if ready { "Running" } else { "NotReady" }).clone_into(&mut summary.reason);
    }
}

/// Why a container ended.
fn ending(terminated: &Value) -> String {
    match (str_at(terminated, "reason"), int_at(terminated, "signal").unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", int_at(terminated, "exitCode").unwrap_or_default()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(container: &Value) -> bool {
    str_at(container, "restartPolicy") == "Always"
}

fn restarts(pod: &Value, now: Timestamp) -> Value {
    let Restarts { count, last } = summary(pod).restarts;
    match last {
        Some(last) if count != 0 => {
            format!("{count} ({} ago)", spell(now.0.saturating_sub(last) / 1_000_000)).into()
        }
        _ => count.to_string().into(),
    }
}

fn readiness_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = field(pod, "spec").map_or(&[][..], |spec| list_at(spec, "readinessGates"));
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|gate| conditions::is_condition_true(pod, str_at(gate, "conditionType")));
    format!("{}/{}", open.count(), gates.len()).into()
}
