//! Where a manager is in its life, and what the endpoints tell about it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::component::{Component, Inspect, Ready, Stage};
use crate::health::Check;

/// The phases of a life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Settings are read and checked.
    Config,
    /// The client is made.
    Client,
    /// Informers start and their caches fill.
    Informers,
    /// Controllers open their queues, in the order of their needs.
    Queue,
    /// The health endpoint begins to say ready. It answers from the beginning, so that probes see a process that is
    /// alive while large caches fill.
    Health,
    /// Reconciling.
    Running,
    /// Stopping: no new events.
    Quiet,
    /// Stopping: what is queued is worked off.
    Draining,
    /// Stopping: caches, lease and connections are given back.
    Cleaning,
    /// Stopping: waiting for the last tasks.
    Waiting,
    /// Over.
    Stopped,
}

/// What is known of a manager while it lives.
pub(super) struct Board {
    phase: watch::Sender<Phase>,
    life: Mutex<Life>,
}

struct Life {
    born: Instant,
    history: Vec<(Phase, f64)>,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    elected: bool,
    stage: Stage,
    /// Not told by `/readyz`: a replica that does not lead is as ready as it can be.
    silent: bool,
    state: Standing,
    ready: Ready,
    inspect: Option<Inspect>,
}

/// How far a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Waits for its needs or for leadership.
    Waiting,
    /// Runs.
    Running,
    /// Is over.
    Ended,
}

impl Board {
    pub(super) fn new() -> Arc<Board> {
        let life = Life { born: Instant::now(), history: vec![(Phase::Config, 0.0)], entries: Vec::new() };
        Arc::new(Board { phase: watch::Sender::new(Phase::Config), life: Mutex::new(life) })
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Goes on to a later phase.
    pub(super) fn enter(&self, phase: Phase) {
        let forward = self.phase.send_if_modified(|now| {
            let forward = *now < phase;
            *now = (*now).max(phase);
            forward
        });
        if forward {
            tracing::debug!(?phase, "manager");
            let mut life = self.life.lock();
            let at = life.born.elapsed().as_secs_f64();
            life.history.push((phase, at));
        }
    }

    pub(super) fn list(&self, components: &[Component], silent: &str) {
        let entry = |component: &Component| Entry {
            name: component.name.clone(),
            elected: component.elected,
            stage: component.stage,
            silent: component.name == silent,
            state: Standing::Waiting,
            ready: component.ready.clone(),
            inspect: component.inspect.clone(),
        };
        self.life.lock().entries = components.iter().map(entry).collect();
    }

    pub(super) fn mark(&self, index: usize, state: Standing) {
        if let Some(entry) = self.life.lock().entries.get_mut(index) {
            entry.state = state;
        }
    }

    /// `/healthz`: alive and not stopping.
    pub(super) fn alive(&self) -> Vec<Check> {
        let problem = (self.phase() >= Phase::Quiet).then(|| "stopping".to_owned());
        vec![Check::new("manager", problem)]
    }

    /// `/readyz`: caches synced, queues accepting.
    pub(super) fn ready(&self) -> Vec<Check> {
        let phase = self.phase();
        let manager = match phase {
            Phase::Health | Phase::Running => None,
            phase if phase >= Phase::Quiet => Some("stopping".to_owned()),
            _ => Some("starting".to_owned()),
        };
        let mut checks = vec![Check::new("manager", manager)];
        let life = self.life.lock();
        for entry in life.entries.iter().filter(|entry| !entry.silent) {
            let not_ready = match entry.stage {
                Stage::Cache => "not synced",
                Stage::Controller => "not ready",
            };
            let problem = match entry.state {
                Standing::Running if (entry.ready)() => None,
                Standing::Running => Some(not_ready),
                // Waits for leadership, and is ready to take over.
                Standing::Waiting if entry.elected => None,
                Standing::Waiting => Some("waits for what it needs"),
                Standing::Ended => Some("ended"),
            };
            checks.push(Check::new(entry.name.clone(), problem.map(str::to_owned)));
        }
        checks
    }

    pub(super) fn inspect(&self) -> Value {
        let life = self.life.lock();
        let history: Vec<Value> = life
            .history
            .iter()
            .map(|(phase, at)| json!({"phase": format!("{phase:?}"), "seconds": at}))
            .collect();
        let components: Vec<Value> = life
            .entries
            .iter()
            .map(|entry| {
                json!({
                    "name": entry.name,
                    "elected": entry.elected,
                    "state": format!("{:?}", entry.state),
                    "ready": entry.state == Standing::Running && (entry.ready)(),
                    "details": entry.inspect.as_ref().map(|inspect| inspect()),
                })
            })
            .collect();
        json!({"phase": format!("{:?}", self.phase()), "history": history, "components": components})
    }
}
