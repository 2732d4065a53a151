//! Starts components in the order of their needs, watches over them, and stops them in the opposite order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::component::{BoxError, Component, Ready, Run, Stage};
use super::phase::{Board, Phase, Standing};
use super::{Error, Level, Stop, Stopper, plan};
use crate::election::Leadership;

/// How often a component that others wait for is asked whether it is ready: at first, and at last.
const ASK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long aborted tasks may take to be dropped.
const GRACE: Duration = Duration::from_secs(2);

/// The components of a running manager.
pub(super) struct Supervisor {
    board: Arc<Board>,
    slots: Vec<Slot>,
    tasks: JoinSet<Result<(), BoxError>>,
    by_task: HashMap<Id, usize>,
    /// Asked from outside.
    outside: Stop,
    /// The component by which leadership is held, if there is one, and what it tells.
    elector: Option<usize>,
    leadership: Option<Leadership>,
    deadline: Duration,
    failure: Option<Error>,
}

struct Slot {
    name: String,
    elected: bool,
    stage: Stage,
    needs: Vec<usize>,
    needed_by: Vec<usize>,
    ready: Ready,
    run: Option<Run>,
    stopper: Stopper,
    stop: Stop,
    task: Option<AbortHandle>,
}

impl Slot {
    fn is_running(&self) -> bool {
        self.task.is_some()
    }
}

impl Supervisor {
    /// Checks the needs. `elector` is the name of the component that all elected ones need.
    pub(super) fn new(
        mut components: Vec<Component>,
        elector: Option<(&str, Leadership)>,
        board: Arc<Board>,
        outside: Stop,
        deadline: Duration,
    ) -> Result<Supervisor, Error> {
        let (elector, leadership) = elector.unzip();
        let needs = {
            // Checked before the elector enters, so that errors speak of what the user added.
            plan::needs(&components)?;
            if let Some(elector) = elector {
                for component in components.iter_mut().filter(|c| c.elected && c.name != elector) {
                    component.needs.push(elector.to_owned());
                }
            }
            plan::needs(&components)?
        };
        board.list(&components, elector.unwrap_or_default());
        let mut needed_by = vec![Vec::new(); needs.len()];
        for (index, needs) in needs.iter().enumerate() {
            needs.iter().for_each(|need| needed_by[*need].push(index));
        }
        let elector = elector.and_then(|name| components.iter().position(|component| component.name == name));
        let slots = components
            .into_iter()
            .zip(needs.into_iter().zip(needed_by))
            .map(|(component, (needs, needed_by))| {
                let (stopper, stop) = Stop::channel();
                let Component { name, elected, stage, ready, run, .. } = component;
                Slot {
                    name,
                    elected,
                    stage,
                    needs,
                    needed_by,
                    ready,
                    run: Some(run),
                    stopper,
                    stop,
                    task: None,
                }
            })
            .collect();
        Ok(Supervisor {
            board,
            slots,
            tasks: JoinSet::new(),
            by_task: HashMap::new(),
            outside,
            elector,
            leadership,
            deadline,
            failure: None,
        })
    }

    /// From the first cache to the last task.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        self.work().await;
        self.stop().await;
        self.board.enter(Phase::Stopped);
        self.failure.map_or(Ok(()), Err)
    }

    /// Until somebody asks to stop or something fails.
    async fn work(&mut self) {
        self.board.enter(Phase::Informers);
        let mut pause = ASK.0;
        loop {
            let started = self.start();
            self.advance();
            if started > 0 {
                pause = ASK.0;
            }
            let waiting =
                self.board.phase() < Phase::Running || self.slots.iter().any(|slot| slot.run.is_some());
            // Asking a replica that stands by again and again would keep it awake for nothing.
            let standing_by = self.leadership.clone().filter(|leadership| !leadership.is_leader());
            let only_elected = self.board.phase() == Phase::Running && standing_by.is_some();
            let gained = async {
                match &standing_by {
                    Some(leadership) => leadership.gained().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.outside.requested() => return,
                Some(ended) = self.tasks.join_next_with_id() => {
                    let (index, result) = self.ended(ended);
                    let name = self.slots[index].name.clone();
                    self.failure = Some(match result {
                        Ok(()) => Error::Ended { name },
                        Err(failure) => failure,
                    });
                    if self.elector == Some(index) {
                        self.drop_elected();
                    }
                    return;
                }
                () = gained => pause = ASK.0,
                () = tokio::time::sleep(pause), if waiting && !only_elected => pause = (pause * 2).min(ASK.1),
            }
        }
    }

    /// Starts everything whose turn has come; gives how many.
    fn start(&mut self) -> usize {
        let mut started = 0;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let in_turn = slot.stage == Stage::Cache || self.board.phase() >= Phase::Queue;
            let needs_ready = slot.needs.iter().all(|need| {
                let need = &self.slots[*need];
                need.is_running() && (need.ready)()
            });
            if !in_turn || !needs_ready {
                continue;
            }
            let slot = &mut self.slots[index];
            let Some(run) = slot.run.take() else { continue };
            tracing::info!(component = slot.name, "starting");
            let span = tracing::info_span!("component", component = slot.name);
            let stop = slot.stop.clone();
            // Inside the task, so that a panic before the first await is the task's too.
            let task = self.tasks.spawn(async move { run(stop).await }.instrument(span));
            self.by_task.insert(task.id(), index);
            slot.task = Some(task);
            self.board.mark(index, Standing::Running);
            started += 1;
        }
        started
    }

    fn advance(&self) {
        let ready = |slot: &Slot| slot.is_running() && (slot.ready)();
        if self.board.phase() == Phase::Informers
            && self.slots.iter().filter(|slot| slot.stage == Stage::Cache).all(ready)
        {
            self.board.enter(Phase::Queue);
        }
        // What runs on the leader only cannot be waited for.
        let leads = self.elector.is_none_or(|elector| ready(&self.slots[elector]));
        let expected =
            |(index, slot): &(usize, &Slot)| Some(*index) != self.elector && (leads || !slot.elected);
        if self.board.phase() == Phase::Queue
            && self.slots.iter().enumerate().filter(expected).all(|(_, slot)| ready(slot))
            && self.elector.is_none_or(|elector| self.slots[elector].is_running())
        {
            self.board.enter(Phase::Health);
            self.board.enter(Phase::Running);
        }
    }

    /// Leadership is lost: somebody else may start at any moment.
    fn drop_elected(&self) {
        for slot in self.slots.iter().filter(|slot| slot.elected) {
            slot.stopper.abort();
            if let Some(task) = &slot.task {
                task.abort();
            }
        }
    }

    async fn stop(&mut self) {
        let deadline = Instant::now() + self.deadline;
        self.board.enter(Phase::Quiet);
        self.slots.iter().for_each(|slot| slot.stopper.raise(Level::Quiet));
        self.board.enter(Phase::Draining);
        while self.ask_to_drain() {
            tokio::select! {
                biased;
                () = self.outside.aborted() => {
                    self.failure.get_or_insert(Error::Aborted);
                    return self.abort().await;
                }
                () = tokio::time::sleep_until(deadline) => {
                    let names = self.running(|slot| slot.stop.is_requested());
                    self.failure.get_or_insert(Error::Deadline { deadline: self.deadline, names });
                    return self.abort().await;
                }
                Some(ended) = self.tasks.join_next_with_id() => self.note(ended),
            }
        }
    }

    /// Asks those to drain that nobody needs any more. False when nothing runs.
    fn ask_to_drain(&self) -> bool {
        let running = |index: &usize| self.slots[*index].is_running();
        let controllers: Vec<usize> = (0..self.slots.len())
            .filter(|index| self.slots[*index].stage == Stage::Controller && running(index))
            .collect();
        if controllers.iter().all(|index| Some(*index) == self.elector) {
            self.board.enter(Phase::Cleaning);
        }
        for slot in self.slots.iter().filter(|slot| slot.is_running()) {
            let in_turn = slot.stage == Stage::Controller || controllers.is_empty();
            if in_turn && !slot.needed_by.iter().any(running) {
                slot.stopper.stop();
            }
        }
        if controllers.is_empty() {
            self.board.enter(Phase::Waiting);
        }
        self.slots.iter().any(Slot::is_running)
    }

    /// Drops what still runs. Caches may end by themselves, and the elector too if the leader's work has ended for
    /// certain: otherwise the lease is left to run out.
    async fn abort(&mut self) {
        let elector = self.elector;
        self.drop_tasks(|index, slot| slot.stage == Stage::Controller && Some(index) != elector).await;
        self.board.enter(Phase::Cleaning);
        let elected_ended = self.slots.iter().all(|slot| !slot.elected || !slot.is_running());
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.stage == Stage::Cache || (elected_ended && Some(index) == elector) {
                slot.stopper.stop();
            }
        }
        self.wait(|slots| !slots.iter().any(|slot| slot.is_running() && slot.stop.level() == Level::Drain))
            .await;
        self.board.enter(Phase::Waiting);
        self.drop_tasks(|_, _| true).await;
        let names = self.running(|_| true);
        if !names.is_empty() {
            tracing::error!(components = names.join(", "), "components ignore the stop and are left behind");
        }
    }

    async fn drop_tasks(&mut self, which: impl Fn(usize, &Slot) -> bool) {
        let chosen: Vec<usize> =
            (0..self.slots.len()).filter(|index| which(*index, &self.slots[*index])).collect();
        for index in &chosen {
            let slot = &self.slots[*index];
            slot.stopper.abort();
            if let Some(task) = &slot.task {
                task.abort();
            }
        }
        self.wait(|slots| chosen.iter().all(|index| !slots[*index].is_running())).await;
    }

    /// Waits for tasks to end, for as long as aborted ones may take.
    async fn wait(&mut self, done: impl Fn(&[Slot]) -> bool) {
        let end = Instant::now() + GRACE;
        while !done(&self.slots) {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next_with_id() => self.note(ended),
                () = tokio::time::sleep_until(end) => return,
            }
        }
    }

    fn note(&mut self, ended: Result<(Id, Result<(), BoxError>), JoinError>) {
        let (_, result) = self.ended(ended);
        if let Err(failure) = result {
            self.failure.get_or_insert(failure);
        }
    }

    /// Whose task has ended, and how. A task that was aborted ended well.
    fn ended(&mut self, ended: Result<(Id, Result<(), BoxError>), JoinError>) -> (usize, Result<(), Error>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let index = self.by_task.remove(&id).unwrap_or_default();
        let slot = &mut self.slots[index];
        slot.task = None;
        self.board.mark(index, Standing::Ended);
        let name = slot.name.clone();
        let result = match ended {
            Ok((_, Ok(()))) => Ok(()),
            Ok((_, Err(source))) => Err(Error::Failed { name, source }),
            Err(error) if error.is_panic() => {
                Err(Error::Panicked { name, message: panic_message(error.into_panic().as_ref()) })
            }
            Err(_) => Ok(()),
        };
        match &result {
            Ok(()) => tracing::info!(component = slot.name, "ended"),
            Err(error) => tracing::error!(component = slot.name, %error, "failed"),
        }
        (index, result)
    }

    fn running(&self, which: impl Fn(&Slot) -> bool) -> Vec<String> {
        self.slots
            .iter()
            .filter(|slot| slot.is_running() && which(slot))
            .map(|slot| slot.name.clone())
            .collect()
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
