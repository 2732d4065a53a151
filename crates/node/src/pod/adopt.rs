//! Taking over what an earlier agent has left of a pod.

use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::container::{adopt, log_path};
use super::kept::{Fate, Kept, end_all, left};
use super::record::{Exit, Record, Records};
use super::worker::{Event, View};
use crate::agent::Node;
use shoal_objects::Timestamp;

/// Takes containers over that still run, and notes how the others have ended. Gives the names of those that run.
pub fn take_over(
    node: &Node,
    pod: &Pod,
    view: &View,
    records: &mut Records,
    events: &mpsc::UnboundedSender<Event>,
) -> Vec<String> {
    let mut running = Vec::new();
    let mut stages = Vec::new();
    for (name, home) in left(&view.dir) {
        let Some(kept) = Kept::read(&home) else { continue };
        let was_told = told(pod, &name, &kept.id);
        if was_told == Told::Over {
            continue;
        }
        let record = records.entry(name.clone()).or_default();
        match kept.fate(&home) {
            Fate::Runs(stage) => {
                let log = log_path(&view.dir, &name, kept.attempt);
                match adopt(&node.launcher, &node.clock, (&name, &home, &log), &kept, stage, events.clone()) {
                    Ok(run) => {
                        resume(record, &kept, was_told);
                        view.runs.lock().insert(name.clone(), run);
                        stages.push(stage);
                        running.push(name);
                    }
                    Err(error) => {
                        tracing::warn!(%error, container = name, "a container cannot be taken over");
                    }
                }
            }
            Fate::Ended(code, at) => {
                resume(record, &kept, was_told);
                record.ended(Exit {
                    code,
                    reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
                    message: String::new(),
                    started_at: Some(Timestamp(kept.started_at)),
                    finished_at: at.unwrap_or_else(|| node.clock.now()),
                    id: kept.id,
                });
            }
        }
    }
    end_all(&view.dir, &|stage| stages.contains(&stage));
    let mut attempts = view.attempts.lock();
    for (name, record) in records.iter() {
        if log_path(&view.dir, name, record.restarts).exists() {
            attempts.insert(name.clone(), record.restarts);
        }
    }
    running
}

/// What the pod's status says about a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing: another run was the last that was told of.
    Nothing,
    /// It runs; whether it has started, and whether it is ready.
    Runs(bool, bool),
    /// It has ended.
    Over,
}

fn told(pod: &Pod, name: &str, id: &str) -> Told {
    let status = pod.status.clone().unwrap_or_default();
    let all = status.init_container_statuses.into_iter().chain(status.container_statuses);
    let mut all = all.chain(status.ephemeral_container_statuses).flatten();
    let Some(status) = all.find(|status| status.name == name && status.container_id.as_deref() == Some(id))
    else {
        return Told::Nothing;
    };
    match status.state.and_then(|state| state.running) {
        Some(_) => Told::Runs(status.started == Some(true), status.ready),
        None => Told::Over,
    }
}

/// The record of a run that was not ended by the agent's end.
fn resume(record: &mut Record, kept: &Kept, told: Told) {
    let (started, ready) = match told {
        Told::Runs(started, ready) => (started, ready),
        Told::Nothing | Told::Over => (false, false),
    };
    record.resumed(&kept.id, Timestamp(kept.started_at), kept.attempt, (started, ready));
}

/// The address that kept containers of a pod have.
pub fn kept_address(pod_dir: &Path) -> Option<IpAddr> {
    let homes = left(pod_dir).into_iter();
    homes.filter_map(|(_, home)| Kept::read(&home)?.join.network).map(|network| network.pod_ip).next()
}
