//! Probes and hooks: whether a container has started, is alive, and can serve.

mod check;
mod grpc;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod, Probe};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::pod::container::Run;
use crate::pod::worker::Event;
use check::{Check, http_get, tcp};

/// What a probe or hook found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The startup probe succeeded.
    Started,
    /// The readiness probe succeeded often enough.
    Ready,
    /// The readiness probe failed often enough.
    Unready,
    /// A probe failed once: which one and why.
    Failing(&'static str, String),
    /// A liveness or startup probe failed often enough.
    Dead(&'static str),
    /// The hook after the start failed.
    HookFailed(String),
}

/// Counts results in a row: gives a verdict when it changes.
#[derive(Debug, Default)]
pub struct Tally {
    verdict: Option<bool>,
    same: i32,
    last: Option<bool>,
}

impl Tally {
    /// Adds a result.
    pub fn add(&mut self, good: bool, success_threshold: i32, failure_threshold: i32) -> Option<bool> {
        self.same = if self.last == Some(good) { self.same.saturating_add(1) } else { 1 };
        self.last = Some(good);
        let enough = if good { success_threshold } else { failure_threshold };
        if self.same < enough.max(1) || self.verdict == Some(good) {
            return None;
        }
        self.verdict = Some(good);
        Some(good)
    }
}

/// Starts the probes of a container. `is_up` says that its startup probe has succeeded, as far as an earlier agent knows.
pub fn watch(
    pod: &Pod,
    container: &Container,
    run: &Arc<Run>,
    ip: &str,
    events: &mpsc::UnboundedSender<Event>,
    is_up: bool,
) -> Vec<AbortHandle> {
    let (started, is_started) = watch::channel(is_up || container.startup_probe.is_none());
    let started = Arc::new(started);
    let probes = [
        ("Startup", &container.startup_probe),
        ("Liveness", &container.liveness_probe),
        ("Readiness", &container.readiness_probe),
    ];
    let host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let ip = if host { "127.0.0.1" } else { ip };
    let mut tasks = Vec::new();
    for (name, probe) in probes {
        let Some(probe) = probe.clone().filter(|_| !(is_up && name == "Startup")) else { continue };
        let task = Prober {
            name,
            check: Check::of(&probe, container, ip),
            probe,
            run: run.clone(),
            events: events.clone(),
            started: started.clone(),
            is_started: is_started.clone(),
        };
        tasks.push(tokio::spawn(task.run()).abort_handle());
    }
    tasks
}

struct Prober {
    name: &'static str,
    check: Check,
    probe: Probe,
    run: Arc<Run>,
    events: mpsc::UnboundedSender<Event>,
    started: Arc<watch::Sender<bool>>,
    is_started: watch::Receiver<bool>,
}

impl Prober {
    fn tell(&self, health: Health) {
        let (container, id) = (self.run.container.clone(), self.run.id.clone());
        let _ = self.events.send(Event::Probed { container, id, health });
    }

    async fn run(mut self) {
        let seconds = |value: Option<i32>, otherwise: u64| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(otherwise))
        };
        if self.name != "Startup" && self.is_started.wait_for(|started| *started).await.is_err() {
            return;
        }
        tokio::time::sleep(seconds(self.probe.initial_delay_seconds, 0)).await;
        let period = seconds(self.probe.period_seconds, 10).max(Duration::from_secs(1));
        let timeout = seconds(self.probe.timeout_seconds, 1).max(Duration::from_secs(1));
        let (success, failure) =
            (self.probe.success_threshold.unwrap_or(1), self.probe.failure_threshold.unwrap_or(3));
        let mut tally = Tally::default();
        loop {
            let result = self.check.run(&self.run, timeout).await;
            if let Err(why) = &result {
                self.tell(Health::Failing(self.name, why.clone()));
            }
            match (self.name, tally.add(result.is_ok(), success, failure)) {
                ("Startup", Some(true)) => {
                    self.started.send_replace(true);
                    self.tell(Health::Started);
                    return;
                }
                ("Startup", Some(false)) => return self.tell(Health::Dead("startup")),
                ("Liveness", Some(false)) => return self.tell(Health::Dead("liveness")),
                ("Readiness", Some(true)) => self.tell(Health::Ready),
                ("Readiness", Some(false)) => self.tell(Health::Unready),
                _ => {}
            }
            tokio::time::sleep(period).await;
        }
    }
}

/// Runs a hook.
pub async fn run_hook(
    hook: &LifecycleHandler,
    container: &Container,
    run: &Run,
    ip: &str,
) -> Result<(), String> {
    // The pod's grace period bounds hooks before the end; those after the start are bounded as images of it.
    let timeout = Duration::from_secs(600);
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let (code, output) = run.probe(command, timeout).await?;
        return if code == 0 { Ok(()) } else { Err(format!("command exited with {code}: {output}")) };
    }
    if let Some(get) = &hook.http_get {
        return http_get(get, container, ip, Duration::from_secs(30)).await;
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
    }
    if let Some(socket) = &hook.tcp_socket {
        return tcp(socket.host.as_deref().unwrap_or(ip), &socket.port, container, Duration::from_secs(30))
            .await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_enough_results_in_a_row() {
        let mut tally = Tally::default();
        let mut add = |good| tally.add(good, 2, 3);
        assert_eq!(add(true), None);
        assert_eq!(add(true), Some(true));
        assert_eq!((add(true), add(false), add(false), add(true)), (None, None, None, None));
        assert_eq!((add(false), add(false), add(false)), (None, None, Some(false)));
        assert_eq!((add(false), add(true), add(true)), (None, None, Some(true)));
    }
}
