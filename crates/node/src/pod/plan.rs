//! What to do next with a pod's containers. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use shoal_objects::Timestamp;

use super::record::{Record, Records, State, is_sidecar};

/// Something to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start this container.
    Start(String),
    /// Ask this container to end.
    Stop(String),
    /// Tell that this container waits before it starts again.
    BackOff(String),
    /// Tell that this container's image still cannot be had.
    ImageBackOff(String),
    /// Nothing runs and nothing will: the pod is over.
    Finish,
}

/// What to do, and when to ask again at the latest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be done in this order.
    pub actions: Vec<Action>,
    /// When something becomes due.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// Whether a container is started again after this end.
pub fn restarts(pod: &Pod, container: &Container, is_init: bool, record: &Record) -> bool {
    let Some(exit) = record.exit() else { return true };
    if let Some(own) = container.restart_policy.as_deref() {
        let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
        let fits = rules.iter().any(|rule| {
            let codes = rule.exit_codes.as_ref();
            codes.is_some_and(|codes| {
                let named = codes.values.as_deref().unwrap_or_default().contains(&exit.code);
                if codes.operator == "NotIn" { !named } else { named }
            })
        });
        return fits || own == "Always" || (own == "OnFailure" && exit.code != 0);
    }
    match policy(pod) {
        "Never" => false,
        "OnFailure" => exit.code != 0,
        _ => !is_init || exit.code != 0,
    }
}

fn policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

/// The pod's init containers and containers.
pub fn containers(pod: &Pod) -> (&[Container], &[Container]) {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    (init, spec.map(|spec| spec.containers.as_slice()).unwrap_or_default())
}

/// The pod's ephemeral containers, which `kubectl debug` adds: started once, whatever the others do.
pub fn ephemeral(pod: &Pod) -> Vec<Container> {
    let all = pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
    // They have the fields of a container, and one more.
    let container = |ephemeral| serde_json::from_value(serde_json::to_value(ephemeral).ok()?).ok();
    all.iter().filter_map(container).collect()
}

/// The container whose processes an ephemeral container wants to see.
pub fn target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let all = pod.spec.as_ref()?.ephemeral_containers.as_deref()?;
    all.iter().find(|container| container.name == name)?.target_container_name.as_deref()
}

/// Whether all init containers have done their part; `Err` when one has failed for good.
pub fn initialized(pod: &Pod, records: &Records) -> Result<bool, String> {
    let (init, main) = containers(pod);
    // Once a container has run, what init containers do later does not undo it.
    let begun = main.iter().filter_map(|container| records.get(&container.name));
    let begun =
        begun.clone().any(|record| record.is_running() || record.exit().is_some() || record.last.is_some());
    if begun {
        return Ok(true);
    }
    for container in init {
        let Some(record) = records.get(&container.name) else { return Ok(false) };
        if is_sidecar(container) {
            if !(record.is_running() && record.started) {
                return Ok(false);
            }
        } else if !record.succeeded() {
            if record.exit().is_some() && !restarts(pod, container, true, record) {
                return Err(container.name.clone());
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Decides. `ending`: the pod is being deleted or the node is stopping, so nothing is started any more.
pub fn plan(pod: &Pod, records: &Records, ending: bool, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let (init, main) = containers(pod);
    let none = Record::default();
    let record = |container: &Container| records.get(&container.name).unwrap_or(&none);
    let init_state = initialized(pod, records);
    let is_over = ending
        || init_state.is_err()
        || (!main.is_empty()
            && init_state == Ok(true)
            && main.iter().all(|c| record(c).exit().is_some() && !restarts(pod, c, false, record(c))));
    let extra = ephemeral(pod);
    if is_over {
        stop_all(&mut plan, init, &[main, &extra].concat(), &record);
        return plan;
    }
    for container in &extra {
        let known = record(container);
        if !known.is_running() && known.exit().is_none() {
            start(&mut plan, container, known, now);
        }
    }
    for container in init {
        let known = record(container);
        if is_sidecar(container) {
            if !known.is_running() {
                start(&mut plan, container, known, now);
            }
            if !(known.is_running() && known.started) && init_state == Ok(false) {
                return plan;
            }
        } else if init_state == Ok(false) && !known.succeeded() {
            if !known.is_running() {
                start(&mut plan, container, known, now);
            }
            return plan;
        }
    }
    for container in main {
        let known = record(container);
        if !known.is_running() && (known.exit().is_none() || restarts(pod, container, false, known)) {
            start(&mut plan, container, known, now);
        }
    }
    plan
}

/// Starts a container, or waits until it may be started.
fn start(plan: &mut Plan, container: &Container, record: &Record, now: Timestamp) {
    if let Some(at) = record.retry_at.filter(|at| *at > now) {
        plan.wake(at);
        if matches!(&record.state, State::Waiting(reason, _) if reason == "ErrImagePull") {
            plan.actions.push(Action::ImageBackOff(container.name.clone()));
        }
        return;
    }
    match record.back_off().filter(|(at, _)| *at > now) {
        Some((at, _)) => {
            plan.wake(at);
            plan.actions.push(Action::BackOff(container.name.clone()));
        }
        None => plan.actions.push(Action::Start(container.name.clone())),
    }
}

/// Containers first; sidecars in reverse order when those are gone.
fn stop_all<'a>(
    plan: &mut Plan,
    init: &[Container],
    main: &[Container],
    record: &dyn Fn(&Container) -> &'a Record,
) {
    let stop = |plan: &mut Plan, container: &Container| {
        if !record(container).stopping {
            plan.actions.push(Action::Stop(container.name.clone()));
        }
    };
    let plain = main.iter().chain(init.iter().filter(|c| !is_sidecar(c)));
    let running: Vec<&Container> = plain.filter(|c| record(c).is_running()).collect();
    for container in &running {
        stop(plan, container);
    }
    if !running.is_empty() {
        return;
    }
    match init.iter().rev().find(|c| is_sidecar(c) && record(c).is_running()) {
        Some(sidecar) => stop(plan, sidecar),
        None => plan.actions.push(Action::Finish),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
