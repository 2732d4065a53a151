//! What the node knows of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use shoal_objects::Timestamp;

/// The first delay of a restart; each doubles, up to the last.
const FIRST_DELAY: i64 = 10;
const LAST_DELAY: i64 = 300;
/// A container that ran this long starts again without delay.
const FORGIVEN_AFTER: i64 = 600;

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// `Completed`, `Error` and the like.
    pub reason: String,
    /// More for people.
    pub message: String,
    /// When it had started, if it had.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Which run of it.
    pub id: String,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started, or not again; reason and message.
    Waiting(String, String),
    /// Running since.
    Running(Timestamp),
    /// Ended.
    Terminated(Exit),
}

/// Everything about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is doing.
    pub state: State,
    /// How the run before ended.
    pub last: Option<Exit>,
    /// How often it was started again.
    pub restarts: i32,
    /// Ends in a row that each make the next delay longer.
    pub crashes: u32,
    /// Failures in a row to start it at all.
    pub refusals: u32,
    /// Not before, after such a failure.
    pub retry_at: Option<Timestamp>,
    /// Its startup probe has succeeded, or it has none.
    pub started: bool,
    /// Its readiness probe says so.
    pub ready: bool,
    /// It was told to end.
    pub stopping: bool,
    /// Which run of it.
    pub id: String,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            state: State::Waiting("ContainerCreating".to_owned(), String::new()),
            last: None,
            restarts: 0,
            crashes: 0,
            refusals: 0,
            retry_at: None,
            started: false,
            ready: false,
            stopping: false,
            id: String::new(),
        }
    }
}

/// The containers of a pod by name.
pub type Records = BTreeMap<String, Record>;

impl Record {
    /// Whether a process is there.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Terminated(exit) => Some(exit),
            _ => None,
        }
    }

    /// Whether it ended well.
    pub fn succeeded(&self) -> bool {
        self.exit().is_some_and(|exit| exit.code == 0)
    }

    /// When it may start again after its end, and how long that delay is in seconds.
    pub fn back_off(&self) -> Option<(Timestamp, i64)> {
        let exit = self.exit()?;
        let delay = delay(self.crashes.saturating_sub(1));
        (delay > 0).then(|| (exit.finished_at.plus_seconds(delay), delay))
    }

    /// Notes that it ended.
    pub fn ended(&mut self, exit: Exit) {
        let ran = exit.started_at.map_or(0, |started| exit.finished_at.seconds() - started.seconds());
        self.crashes = if ran >= FORGIVEN_AFTER { 1 } else { self.crashes.saturating_add(1) };
        self.started = false;
        self.ready = false;
        self.stopping = false;
        self.state = State::Terminated(exit);
    }

    /// Notes that it could not be started, for a reason that may pass.
    pub fn refused(&mut self, reason: &str, message: &str, now: Timestamp) {
        if let State::Terminated(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.refusals = self.refusals.saturating_add(1);
        self.retry_at = Some(now.plus_seconds(delay(self.refusals)));
        self.state = State::Waiting(reason.to_owned(), message.to_owned());
    }

    /// The number of restarts once it runs again.
    pub fn next_attempt(&self) -> i32 {
        match &self.state {
            State::Terminated(_) => self.restarts.saturating_add(1),
            State::Waiting(..) if self.last.is_some() => self.restarts.saturating_add(1),
            _ => self.restarts,
        }
    }

    /// Notes that a run goes on which an earlier agent has begun.
    pub fn resumed(&mut self, id: &str, since: Timestamp, attempt: i32, (started, ready): (bool, bool)) {
        if let State::Terminated(exit) = &self.state
            && exit.id != id
        {
            self.last = Some(exit.clone());
        }
        self.id = id.to_owned();
        self.restarts = attempt;
        self.crashes = u32::try_from(attempt).unwrap_or(0);
        self.started = started;
        self.ready = ready;
        self.state = State::Running(since);
    }

    /// Notes that it runs.
    pub fn began(&mut self, id: &str, now: Timestamp, has_startup_probe: bool, has_readiness_probe: bool) {
        self.restarts = self.next_attempt();
        if let State::Terminated(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.id = id.to_owned();
        self.refusals = 0;
        self.retry_at = None;
        self.stopping = false;
        self.started = !has_startup_probe;
        self.ready = self.started && !has_readiness_probe;
        self.state = State::Running(now);
    }
}

/// None at first, then 10 s, doubling up to 5 min.
pub fn delay(failures: u32) -> i64 {
    match failures {
        0 => 0,
        n => FIRST_DELAY
            .saturating_mul(1_i64.checked_shl(n - 1).unwrap_or(i64::MAX).clamp(1, 1 << 20))
            .min(LAST_DELAY),
    }
}

/// Whether an init container is a sidecar: it goes on running beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What an earlier agent has told about a pod's containers: those that ran then are gone.
pub fn remembered(pod: &Pod, now: Timestamp) -> Records {
    let Some(status) = &pod.status else { return Records::new() };
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let all = all.chain(&status.ephemeral_container_statuses).flatten();
    all.map(|status| (status.name.clone(), remembered_container(status, now))).collect()
}

fn remembered_container(status: &ContainerStatus, now: Timestamp) -> Record {
    let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().map(|time| Timestamp(time.0.as_microsecond()))
    };
    let exit = |ended: &k8s_openapi::api::core::v1::ContainerStateTerminated| Exit {
        code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone().unwrap_or_default(),
        started_at: time(&ended.started_at),
        finished_at: time(&ended.finished_at).unwrap_or(now),
        id: ended.container_id.clone().unwrap_or_default(),
    };
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(exit);
    let id = status.container_id.clone().unwrap_or_default();
    let mut record = Record { restarts: status.restart_count, last, id: id.clone(), ..Record::default() };
    let state = status.state.clone().unwrap_or_default();
    if let Some(running) = &state.running {
        record.crashes = 1;
        record.state = State::Terminated(Exit {
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the node's agent started again".to_owned(),
            started_at: time(&running.started_at),
            finished_at: now,
            id,
        });
    } else if let Some(ended) = &state.terminated {
        record.crashes = 1;
        record.state = State::Terminated(exit(ended));
    } else if record.last.is_some()
        && let Some(last) = record.last.take()
    {
        record.crashes = 2;
        record.state = State::Terminated(last);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_ten_seconds_to_five_minutes() {
        let delays: Vec<i64> = (0..8).map(delay).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(delay(u32::MAX), 300);
    }

    #[test]
    fn the_first_restart_is_not_delayed_and_a_long_run_is_forgiven() {
        let exit = |started: i64, finished: i64| Exit {
            started_at: Some(Timestamp(started * 1_000_000)),
            finished_at: Timestamp(finished * 1_000_000),
            ..Exit::default()
        };
        let mut record = Record::default();
        record.ended(exit(0, 1));
        assert_eq!(record.back_off(), None);
        record.ended(exit(1, 2));
        assert_eq!(record.back_off(), Some((Timestamp(12_000_000), 10)));
        record.ended(exit(2, 1000));
        assert_eq!(record.back_off(), None);
    }
}
