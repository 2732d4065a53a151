//! The status of a pod, from what is known of its containers. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;
use shoal_objects::Timestamp;

use super::condition::{Verdict, closed_gates, condition};
use super::plan::{containers, ephemeral, initialized, restarts};
use super::record::{Exit, Record, Records, State, is_sidecar};

/// What the node knows beside the containers.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The node's address.
    pub host_ip: String,
    /// The pod's address, once it has one.
    pub pod_ip: Option<String>,
    /// When the agent first saw the pod.
    pub started_at: Timestamp,
    /// Volumes and address are there.
    pub prepared: bool,
    /// The pod will not run at all (phase `Failed`): reason and message.
    pub rejected: Option<(String, String)>,
}

/// A time in whole seconds, as the API has it.
pub fn time(at: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.seconds()).unwrap_or_default())
}

/// The status to be told.
pub fn status(pod: &Pod, records: &Records, around: &Circumstances, now: Timestamp) -> PodStatus {
    let (init, main) = containers(pod);
    let old = pod.status.clone().unwrap_or_default();
    let stamp = time(now);
    let init_state = initialized(pod, records);
    let phase = match &around.rejected {
        Some(_) => "Failed",
        None => phase(pod, records, &init_state),
    };
    let is_initialized = init_state == Ok(true);
    let init_statuses: Vec<ContainerStatus> =
        init.iter().map(|c| container_status(pod, c, true, true, records, now)).collect();
    let statuses: Vec<ContainerStatus> =
        main.iter().map(|c| container_status(pod, c, false, is_initialized, records, now)).collect();
    let extra: Vec<ContainerStatus> =
        ephemeral(pod).iter().map(|c| ephemeral_status(pod, c, records, now)).collect();

    let over = matches!(phase, "Succeeded" | "Failed");
    let incomplete: Vec<&str> = init_statuses
        .iter()
        .zip(init)
        .filter(|(status, container)| match is_sidecar(container) {
            true => status.started != Some(true),
            false => !status.ready,
        })
        .map(|(status, _)| status.name.as_str())
        .collect();
    let unready: Vec<&str> = init_statuses
        .iter()
        .zip(init)
        .filter(|(_, container)| is_sidecar(container))
        .map(|(status, _)| status)
        .chain(&statuses)
        .filter(|status| !status.ready)
        .map(|status| status.name.as_str())
        .collect();
    let initialized = match (is_initialized, phase) {
        (true, "Succeeded") => Verdict::True(Some("PodCompleted")),
        (true, _) => Verdict::True(None),
        (false, _) => Verdict::False(
            "ContainersNotInitialized",
            format!("containers with incomplete status: [{}]", incomplete.join(" ")),
        ),
    };
    let containers_ready = || match (phase, unready.is_empty()) {
        ("Succeeded", _) => Verdict::False("PodCompleted", String::new()),
        ("Failed", _) => Verdict::False("PodFailed", String::new()),
        (_, true) => Verdict::True(None),
        (_, false) => Verdict::False(
            "ContainersNotReady",
            format!("containers with unready status: [{}]", unready.join(" ")),
        ),
    };
    let gates = closed_gates(pod);
    let ready = match containers_ready() {
        Verdict::True(_) if !gates.is_empty() => Verdict::False(
            "ReadinessGatesNotReady",
            gates
                .iter()
                .map(|gate| format!("corresponding condition of pod readiness gate {gate:?} does not exist."))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        verdict => verdict,
    };
    let prepared = match around.prepared && !over {
        true => Verdict::True(None),
        false => Verdict::False("", String::new()),
    };
    let mut conditions = vec![
        condition(pod, "PodReadyToStartContainers", prepared, &stamp),
        condition(pod, "Initialized", initialized, &stamp),
        condition(pod, "Ready", ready, &stamp),
        condition(pod, "ContainersReady", containers_ready(), &stamp),
    ];
    match old.conditions.iter().flatten().find(|known| known.type_ == "PodScheduled") {
        Some(known) => conditions.push(known.clone()),
        None => conditions.push(condition(pod, "PodScheduled", Verdict::True(None), &stamp)),
    }

    let (reason, message) = around
        .rejected
        .clone()
        .map_or((old.reason, old.message), |(reason, message)| (Some(reason), Some(message)));
    let host_ip = around.host_ip.clone();
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        observed_generation: pod.metadata.generation,
        host_ip: Some(host_ip.clone()),
        host_ips: Some(vec![HostIP { ip: host_ip }]),
        pod_ip: around.pod_ip.clone(),
        pod_ips: around.pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        qos_class: old.qos_class,
        start_time: old.start_time.or_else(|| Some(time(around.started_at))),
        init_container_statuses: (!init_statuses.is_empty()).then_some(init_statuses),
        container_statuses: (!statuses.is_empty()).then_some(statuses),
        ephemeral_container_statuses: (!extra.is_empty()).then_some(extra),
        ..PodStatus::default()
    }
}

fn phase(pod: &Pod, records: &Records, initialized: &Result<bool, String>) -> &'static str {
    match initialized {
        Err(_) => return "Failed",
        Ok(false) => return "Pending",
        Ok(true) => {}
    }
    let (_, main) = containers(pod);
    let (mut waiting, mut over, mut failed) = (0, 0, 0);
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    for container in main {
        match records.get(&container.name) {
            None => waiting += 1,
            Some(record) => match &record.state {
                State::Waiting(..) if record.last.is_none() => waiting += 1,
                State::Terminated(exit) if is_deleted || !restarts(pod, container, false, record) => {
                    over += 1;
                    failed += usize::from(exit.code != 0);
                }
                _ => {}
            },
        }
    }
    match () {
        () if waiting > 0 => "Pending",
        () if over == main.len() && failed > 0 => "Failed",
        () if over == main.len() => "Succeeded",
        () => "Running",
    }
}

fn container_status(
    pod: &Pod,
    container: &Container,
    is_init: bool,
    may_start: bool,
    records: &Records,
    now: Timestamp,
) -> ContainerStatus {
    let missing = Record::default();
    let record = records.get(&container.name).unwrap_or(&missing);
    let (state, last) = shown_states(pod, container, is_init, may_start, record, now);
    let plain_init = is_init && !is_sidecar(container);
    let ready = if plain_init { record.succeeded() } else { record.is_running() && record.ready };
    let image = container.image.clone().unwrap_or_default();
    let ran = !record.id.is_empty();
    ContainerStatus {
        name: container.name.clone(),
        ready,
        started: Some(record.is_running() && record.started),
        restart_count: record.restarts,
        image_id: if ran { format!("shoal://{image}") } else { String::new() },
        image,
        container_id: ran.then(|| record.id.clone()),
        state: Some(state),
        last_state: last
            .map(|exit| ContainerState { terminated: Some(terminated(exit)), ..ContainerState::default() }),
        resources: container.resources.clone(),
        ..ContainerStatus::default()
    }
}

/// An ephemeral container is never ready and never starts again, so its end is shown as it is.
fn ephemeral_status(pod: &Pod, container: &Container, records: &Records, now: Timestamp) -> ContainerStatus {
    let once = Container { restart_policy: Some("Never".to_owned()), ..container.clone() };
    let status = container_status(pod, &once, false, true, records, now);
    ContainerStatus { ready: false, started: None, resources: None, ..status }
}

/// The state that is shown, and the one before. A container that waits to be started again is shown as waiting.
fn shown_states<'a>(
    pod: &Pod,
    container: &Container,
    is_init: bool,
    may_start: bool,
    record: &'a Record,
    now: Timestamp,
) -> (ContainerState, Option<&'a Exit>) {
    let waiting = |reason: &str, message: String| ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: (!message.is_empty()).then_some(message),
        }),
        ..ContainerState::default()
    };
    match &record.state {
        State::Waiting(..) if !may_start => (waiting("PodInitializing", String::new()), record.last.as_ref()),
        State::Waiting(reason, message) => {
            let reason = match reason.as_str() {
                "ContainerCreating" if !is_init && !containers(pod).0.is_empty() => "PodInitializing",
                other => other,
            };
            (waiting(reason, message.clone()), record.last.as_ref())
        }
        State::Running(since) => {
            let running = ContainerStateRunning { started_at: Some(time(*since)) };
            (ContainerState { running: Some(running), ..ContainerState::default() }, record.last.as_ref())
        }
        State::Terminated(exit) => {
            let delay =
                record.back_off().filter(|(at, _)| *at > now && restarts(pod, container, is_init, record));
            match delay {
                Some((_, seconds)) if pod.metadata.deletion_timestamp.is_none() => {
                    (waiting("CrashLoopBackOff", back_off_message(pod, container, seconds)), Some(exit))
                }
                _ => {
                    let ended =
                        ContainerState { terminated: Some(terminated(exit)), ..ContainerState::default() };
                    (ended, record.last.as_ref())
                }
            }
        }
    }
}

/// As the kubelet says it.
pub fn back_off_message(pod: &Pod, container: &Container, seconds: i64) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let delay = match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    };
    format!(
        "back-off {delay} restarting failed container={} pod={}_{}({})",
        container.name,
        text(&meta.name),
        text(&meta.namespace),
        text(&meta.uid)
    )
}

fn terminated(exit: &Exit) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(exit.reason.clone()),
        message: (!exit.message.is_empty()).then(|| exit.message.clone()),
        started_at: exit.started_at.map(time),
        finished_at: Some(time(exit.finished_at)),
        container_id: (!exit.id.is_empty()).then(|| exit.id.clone()),
        signal: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn pod(spec: Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "generation": 3});
        serde_json::from_value(
            json!({"metadata": metadata, "spec": spec, "status": {"qosClass": "BestEffort"}}),
        )
        .unwrap()
    }

    fn running() -> Record {
        let mut record = Record::default();
        record.began("shoal://1", NOW, false, false);
        record
    }

    fn ended(code: i32, times: u32) -> Record {
        let mut record = running();
        for _ in 0..times {
            record.ended(Exit { code, started_at: Some(NOW), finished_at: NOW, ..Exit::default() });
        }
        record
    }

    fn of(pod: &Pod, records: &[(&str, Record)]) -> PodStatus {
        let records = records.iter().map(|(name, record)| ((*name).to_owned(), record.clone())).collect();
        status(pod, &records, &Circumstances { prepared: true, ..Circumstances::default() }, NOW)
    }

    fn condition_of(status: &PodStatus, type_: &str) -> (String, Option<String>) {
        let found = status.conditions.iter().flatten().find(|c| c.type_ == type_).unwrap();
        (found.status.clone(), found.reason.clone())
    }

    #[test]
    fn a_pod_is_pending_running_and_over() {
        let once = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}]}));
        let phase = |records: &[(&str, Record)]| of(&once, records).phase.unwrap();
        assert_eq!(phase(&[]), "Pending");
        assert_eq!(phase(&[("a", running())]), "Pending");
        assert_eq!(phase(&[("a", running()), ("b", ended(1, 1))]), "Running");
        assert_eq!(phase(&[("a", ended(0, 1)), ("b", ended(0, 1))]), "Succeeded");
        assert_eq!(phase(&[("a", ended(0, 1)), ("b", ended(1, 1))]), "Failed");
    }

    #[test]
    fn a_running_pod_is_ready_and_its_generation_observed() {
        let status = of(&pod(json!({"containers": [{"name": "a"}]})), &[("a", running())]);
        assert_eq!(condition_of(&status, "Ready"), ("True".to_owned(), None));
        assert_eq!(condition_of(&status, "PodReadyToStartContainers").0, "True");
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
        assert!(status.container_statuses.unwrap()[0].ready);
    }

    #[test]
    fn a_container_that_waits_to_start_again_is_shown_as_crash_loop() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let status = of(&pod, &[("a", ended(2, 2))]);
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(condition_of(&status, "Ready").1.as_deref(), Some("ContainersNotReady"));
        let container = &status.container_statuses.unwrap()[0];
        let waiting = container.state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
        assert_eq!(waiting.message.as_deref(), Some("back-off 10s restarting failed container=a pod=p_n(u)"));
        assert_eq!(container.last_state.clone().unwrap().terminated.unwrap().exit_code, 2);
    }

    #[test]
    fn containers_wait_for_init_containers() {
        let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
        let status = of(&pod, &[("i", running())]);
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert_eq!(condition_of(&status, "Initialized").1.as_deref(), Some("ContainersNotInitialized"));
        let waiting = status.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("PodInitializing"));
    }

    #[test]
    fn a_completed_pod_says_so() {
        let once = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}));
        let status = of(&once, &[("a", ended(0, 1))]);
        assert_eq!(condition_of(&status, "Ready"), ("False".to_owned(), Some("PodCompleted".to_owned())));
        assert_eq!(condition_of(&status, "Initialized").1.as_deref(), Some("PodCompleted"));
    }
}
