//! Drives the core: every event goes in here, every action goes out from here, and nothing in here waits for the API server.
//!
//! One [`Life`] is one incarnation: an id, a Lease, a state machine. When it ends by force, everything in flight is stopped before the
//! next one begins.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shoal_sharding::{
    Action, Ending, Epoch, Event, Guards, Moment, NodeStatus, Notice, Phase, Replica, ReplicaId, Settings,
    ShardMap, SlotRange, ranges_of,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use super::crd::{self, CrdError};
use super::notify::{Notifier, Reassigned};
use super::observe::{self, Inbox, Message};
use super::partition::SlotSet;
use super::perform;
use super::report::Reporter;
use crate::manager::{BoxError, Stop};

/// Messages that wait for the driver; watches wait when there are more.
const INBOX: usize = 1024;
/// So long after the last loss the server is asked for less.
const CALM: Duration = Duration::from_secs(10);

/// How a life ended.
enum Over {
    Stopped,
    Restart(Ending),
}

/// Runs until it is asked to stop, one life after the other. What has to do with caches and with code of the user runs on `main`.
pub(super) async fn run(shared: Arc<Shared>, stop: Stop, main: Handle) -> Result<(), BoxError> {
    tokio::select! {
        biased;
        () = stop.quiet() => return Ok(()),
        installed = installed(&shared) => installed?,
    }
    let all = shared.holding.all();
    loop {
        let settings = shared.settings.borrow().clone();
        let (notifier, telling) = Notifier::new(
            shared.options.listener.clone(),
            shared.kinds.clone(),
            shared.options.notify_timeout,
        );
        let telling = main.spawn(telling);
        let mut life = Life::new(&shared, settings.clone(), notifier, main.clone());
        let over = life.live(&stop).await;
        shared.joined.store(false, std::sync::atomic::Ordering::Relaxed);
        // Nothing of this life may go on. What does not end is the watchdog's business.
        shared.holding.drop_slots(all);
        tokio::select! {
            biased;
            () = stop.aborted() => return Ok(()),
            () = shared.holding.idle(all, Epoch::MAX) => {}
        }
        let last = life.lose_all();
        drop(life);
        last.await;
        let _ = telling.await;
        shared.kinds.follow(&SlotSet::none(settings.identity.slots));
        match over {
            Over::Stopped => return Ok(()),
            Over::Restart(ending @ Ending::Refused(_)) => return Err(ending.into()),
            Over::Restart(ending) if shared.options.id.is_some() => return Err(ending.into()),
            Over::Restart(ending) if stop.is_quiet() => {
                tracing::warn!(%ending, "this replica was stopping");
                return Ok(());
            }
            Over::Restart(ending) => {
                tracing::error!(%ending, "this life as a replica is over; a new one begins");
                tokio::select! {
                    biased;
                    () = stop.quiet() => return Ok(()),
                    () = tokio::time::sleep(settings.timers.retry_period) => {}
                }
            }
        }
    }
}

async fn installed(shared: &Shared) -> Result<(), CrdError> {
    let records = &shared.records;
    loop {
        match crd::ensure(records.client(), &records.namespace, shared.options.install_crd).await {
            Err(CrdError::Unreachable(error)) => {
                tracing::warn!(error, "cannot ask for the kind ShardMap yet");
                let pause = shared.settings.borrow().timers.retry_period;
                tokio::time::sleep(pause).await;
            }
            result => return result,
        }
    }
}

/// One incarnation.
pub(super) struct Life {
    pub(super) shared: Arc<Shared>,
    pub(super) id: ReplicaId,
    pub(super) settings: Arc<Settings>,
    pub(super) notifier: Notifier,
    pub(super) inbox: Inbox,
    messages: Option<mpsc::Receiver<Message>>,
    pub(super) tasks: JoinSet<()>,
    /// The runtime of the process, for what has to do with caches and with code of the user.
    pub(super) main: Handle,
    /// Leases that were seen and not missed since.
    known: BTreeSet<ReplicaId>,
    /// The record that was last followed.
    pub(super) map: Option<Arc<ShardMap>>,
    /// By slot: the epoch that the layer above was told it has, 0 for none.
    pub(super) gained: Vec<Epoch>,
    /// By slot: how many drains are under way.
    pub(super) draining: Vec<u32>,
    /// Something besides the record has changed what the caches should hold.
    pub(super) stale: bool,
    pub(super) leave_by: Option<Moment>,
    /// The shortest margin that any renewal of this life was made with.
    margin: Duration,
    narrow_at: Moment,
    next_chores: Moment,
    next_loads: Moment,
    pub(super) reporter: Reporter,
    over: Option<Over>,
}

impl Life {
    fn new(shared: &Arc<Shared>, settings: Arc<Settings>, notifier: Notifier, main: Handle) -> Life {
        let id = shared.new_id(&settings);
        let replica = Replica::new(id.clone(), settings.clone(), shared.algorithm.clone(), Guards::default());
        *shared.replica.lock() = Some(replica);
        shared.metrics.lives.inc();
        let (inbox, messages) = mpsc::channel(INBOX);
        let slots = settings.identity.slots.get() as usize;
        let now = shared.holding.now();
        tracing::info!(node_id = %id, group = settings.identity.group, "a life as a replica begins");
        Life {
            shared: shared.clone(),
            id,
            notifier,
            inbox,
            messages: Some(messages),
            tasks: JoinSet::new(),
            main,
            known: BTreeSet::new(),
            map: None,
            gained: vec![0; slots],
            draining: vec![0; slots],
            stale: false,
            leave_by: None,
            margin: settings.timers.margin(),
            narrow_at: Moment::NEVER,
            next_chores: now,
            next_loads: now + settings.timers.sync_interval,
            reporter: Reporter::default(),
            over: None,
            settings,
        }
    }

    async fn live(&mut self, stop: &Stop) -> Over {
        let Some(mut messages) = self.messages.take() else { return Over::Stopped };
        let (records, watch) = (self.shared.records.clone(), self.shared.watch.clone());
        self.tasks.spawn(observe::leases(records.clone(), watch.clone(), self.inbox.clone()));
        self.tasks.spawn(observe::map(records, watch, self.inbox.clone()));
        self.tasks.spawn_on(perform::check_health(self.shared.clone(), self.inbox.clone()), &self.main);
        let mut reloads = self.shared.settings.subscribe();
        let clock = self.shared.holding.clock().clone();
        self.step(Event::Tick);
        loop {
            if let Some(over) = self.over.take() {
                return over;
            }
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = stop.aborted() => return Over::Stopped,
                () = stop.quiet(), if self.leave_by.is_none() => self.leave(),
                Ok(()) = reloads.changed() => {
                    let settings = reloads.borrow_and_update().clone();
                    self.reload(settings);
                }
                Some(message) = messages.recv() => self.take(message),
                Some(_) = self.tasks.join_next() => {}
                () = clock.reached(Duration::from_micros(wake.micros())) => self.step(Event::Tick),
            }
        }
    }

    fn wake_at(&self) -> Moment {
        let core = self.shared.replica.lock().as_ref().map_or(Moment::NEVER, Replica::wake_at);
        core.min(self.narrow_at).min(self.next_chores).min(self.next_loads)
    }

    fn leave(&mut self) {
        let now = self.shared.holding.now();
        let others = self.shared.replica.lock().as_ref().is_some_and(|replica| {
            replica.nodes(now).iter().any(|node| node.id != self.id && node.status == NodeStatus::Healthy)
        });
        // Where nobody is left to take them, slots need not be offered.
        let patience = if others { self.shared.options.leave_timeout } else { Duration::ZERO };
        let until = now + patience;
        self.leave_by = Some(until);
        self.step(Event::Leave { until });
    }

    fn reload(&mut self, settings: Arc<Settings>) {
        self.margin = self.margin.min(settings.timers.margin());
        self.settings = settings.clone();
        self.step(Event::Settings(settings));
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Event(event) => self.step(event),
            Message::Lease(lease) => {
                self.known.insert(lease.record.replica.clone());
                self.step(Event::Lease(lease));
            }
            Message::LeaseGone(replica, resource_version) => {
                self.known.remove(&replica);
                self.step(Event::LeaseGone { replica, resource_version });
            }
            Message::Leases(present, revision) => self.miss(&present, revision),
            Message::Map(map) => {
                self.reporter.saw(&map);
                self.step(Event::Map { resource_version: map.resource_version, observed: map.observed });
                self.step(Event::Spec(map.spec));
            }
            Message::MapGone(resource_version) => self.step(Event::MapGone { resource_version }),
            Message::Listed { began, listed } => {
                let present = listed.leases.iter().map(|lease| lease.record.replica.clone()).collect();
                for lease in listed.leases {
                    self.take(Message::Lease(lease));
                }
                self.miss(&present, listed.leases_revision);
                self.take(match listed.map {
                    Some(map) => Message::Map(map.into()),
                    None => Message::MapGone(listed.map_revision),
                });
                self.step(Event::Listed { began });
            }
            Message::Drained { slots, epoch } => {
                for slot in slots.slots() {
                    let draining = &mut self.draining[slot as usize];
                    *draining = draining.saturating_sub(1);
                }
                self.stale = true;
                self.step(Event::Drained { slots, epoch });
            }
        }
    }

    /// Leases that are known and were not there at that version are gone. Which of the two is newer, the core decides.
    fn miss(&mut self, present: &BTreeSet<ReplicaId>, revision: u64) {
        let mut gone: Vec<ReplicaId> = self.known.difference(present).cloned().collect();
        if !present.contains(&self.id) && !gone.contains(&self.id) {
            gone.push(self.id.clone());
        }
        for replica in gone {
            self.step(Event::LeaseGone { replica, resource_version: revision });
        }
    }

    /// Tells the core what happened, makes the new deadline known, and does what it wants.
    fn step(&mut self, event: Event) {
        if self.over.is_some() {
            return;
        }
        let mut actions = Vec::new();
        let now = self.shared.holding.now();
        let (deadline, map) = {
            let mut replica = self.shared.replica.lock();
            let Some(replica) = replica.as_mut() else { return };
            replica.handle(event, now, &mut actions);
            (replica.deadline(), replica.map().cloned())
        };
        // Before anything is sent: a write may bring the end closer.
        self.shared.holding.set_deadline(deadline, self.margin);
        // While the time was over the gate turned keys away and the watchdog cut work off, perhaps without the core having noticed.
        if deadline > now && self.shared.holding.has_missed() {
            actions.push(Action::Resume);
        }
        if map.is_some() && deadline > now {
            self.shared.joined.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        self.perform(actions, map);
        self.chores(now);
    }

    fn perform(&mut self, actions: Vec<Action>, map: Option<Arc<ShardMap>>) {
        let (mut warm, mut barrier, mut moved) = (Vec::new(), Vec::new(), 0);
        let mut queue = SlotSet::none(self.settings.identity.slots);
        for action in actions {
            match action {
                Action::Warm { slots, epoch } => warm.push((slots, epoch)),
                // The caches follow the record.
                Action::Cool { .. } => {}
                Action::Barrier { slots, epoch } => barrier.push((slots, epoch)),
                Action::Drain { slots, epoch } => self.drain(slots, epoch),
                Action::Abort { slots } => self.abort(slots),
                Action::Activate { slots, epoch } => {
                    self.shared.holding.open(slots, epoch);
                    slots.slots().for_each(|slot| queue.set(slot, true));
                }
                Action::Fence => {
                    let cut = self.shared.holding.cancel_all();
                    tracing::warn!(node_id = %self.id, cut, "this replica's Lease could not be renewed in time: all work stops");
                }
                Action::Resume => {
                    self.shared.kinds.hurry();
                    // What comes back is a trickle: only where something was turned away or cut off.
                    self.shared.holding.take_missed().into_iter().for_each(|slot| queue.set(slot, true));
                }
                Action::Notify(Notice::Reassigned { slots, from, to }) => {
                    self.shared.metrics.changes.inc_by(u64::from(slots.len()));
                    self.notifier.reassigned(Reassigned { slots, from, to });
                }
                // Told with the barrier and the drain, which wait for it.
                Action::Notify(Notice::Gained { .. } | Notice::Lost { .. }) => {}
                Action::Report(report) => moved += self.report(&report),
                Action::Restart(ending) => self.over = Some(Over::Restart(ending)),
                Action::Stopped => self.over = Some(Over::Stopped),
                write => perform::request(self, write),
            }
        }
        if moved > 0 {
            self.shared.metrics.rebalances.inc();
        }
        let asked = self.follow(map);
        if !warm.is_empty() {
            self.warm(warm);
        }
        if !barrier.is_empty() {
            self.barrier(barrier, asked);
        }
        let queue = Arc::new(queue);
        if !queue.ranges().is_empty() {
            let kinds = self.shared.kinds.clone();
            // Goes through whole caches.
            self.tasks.spawn_on(async move { kinds.requeue(&queue) }, &self.main);
        }
        self.shared.metrics.shards.set(i64::try_from(self.shared.holding.open_slots()).unwrap_or(i64::MAX));
    }

    /// Makes the caches hold what the record says, and what still drains.
    fn follow(&mut self, map: Option<Arc<ShardMap>>) -> Vec<(Arc<crate::cache::Core>, u64)> {
        let same = match (&self.map, &map) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        if same && !std::mem::take(&mut self.stale) {
            return Vec::new();
        }
        if let Some(now) = map.as_ref().filter(|_| !same) {
            self.map_changed(now);
        }
        self.map = map;
        let mut wanted = SlotSet::none(self.settings.identity.slots);
        for run in self.map.iter().flat_map(|map| map.runs()) {
            let a = &run.assignment;
            let ours = a.owner.as_ref() == Some(&self.id) || a.next.as_ref() == Some(&self.id);
            run.slots.slots().filter(|_| ours).for_each(|slot| wanted.set(slot, true));
        }
        (0..)
            .zip(&self.draining)
            .filter(|(_, drains)| **drains > 0)
            .for_each(|(slot, _)| wanted.set(slot, true));
        self.lose_what_is_not_ours();
        let asked = self.shared.kinds.follow(&wanted);
        self.narrow_at = self.shared.holding.now() + CALM;
        asked
    }

    /// Tells the layer above of slots that went without a drain.
    fn lose_what_is_not_ours(&mut self) {
        let Some(map) = self.map.clone() else { return };
        let lost: Vec<(u32, Epoch)> = (0..)
            .zip(&self.gained)
            .filter(|(slot, epoch)| **epoch > 0 && self.draining[*slot as usize] == 0)
            .filter(|(slot, _)| {
                map.get(*slot)
                    .is_none_or(|a| a.owner.as_ref() != Some(&self.id) || a.phase == Phase::Repairing)
            })
            .map(|(slot, epoch)| (slot, *epoch))
            .collect();
        self.lose(&lost).into_iter().for_each(drop);
    }

    /// Tells the layer above that these slots went.
    fn lose(&mut self, lost: &[(u32, Epoch)]) -> Vec<impl Future<Output = ()> + Send + use<>> {
        let mut told = Vec::new();
        let epochs: BTreeSet<Epoch> = lost.iter().map(|(_, epoch)| *epoch).collect();
        for epoch in epochs {
            let slots = lost.iter().filter(|(_, at)| *at == epoch).map(|(slot, _)| *slot);
            told.extend(ranges_of(slots).into_iter().map(|range| self.notifier.lost(range, epoch)));
        }
        for (slot, _) in lost {
            self.gained[*slot as usize] = 0;
        }
        told
    }

    /// Tells the layer above that everything went.
    fn lose_all(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let all: Vec<(u32, Epoch)> = (0..)
            .zip(&self.gained)
            .filter(|(_, epoch)| **epoch > 0)
            .map(|(slot, epoch)| (slot, *epoch))
            .collect();
        let told = self.lose(&all);
        async move {
            futures::future::join_all(told).await;
        }
    }

    /// What is done now and then.
    fn chores(&mut self, now: Moment) {
        if now >= self.narrow_at {
            self.narrow_at = Moment::NEVER;
            self.shared.kinds.narrow();
        }
        if now >= self.next_loads {
            let interval = self.settings.timers.sync_interval;
            self.next_loads = now + interval;
            let mut costs = self.shared.holding.take_costs();
            let total: u64 = costs.iter().map(|(_, cost)| u64::from(*cost)).sum();
            self.shared.metrics.load.set(total as f64 / 1000.0 / interval.as_secs_f64());
            if self.shared.options.balance_by_load {
                costs.truncate(32);
                self.step(Event::Loads(costs));
            }
        }
        if now >= self.next_chores {
            self.next_chores = now + self.settings.timers.retry_period;
            self.look_around(now);
            self.give_up(now);
        }
    }

    /// A Lease that cannot be renewed for very long never will be, say because the server was set back to an older state. A new life
    /// knows nothing of the versions before, and is always safe to begin.
    fn give_up(&mut self, now: Moment) {
        let deadline = self.shared.holding.deadline();
        if deadline > Moment::default() && now > deadline + self.settings.timers.node_timeout * 2 {
            self.over = Some(Over::Restart(Ending::LeaseLost));
        }
    }

    pub(super) fn range_is_draining(&mut self, slots: SlotRange) {
        for slot in slots.slots() {
            self.draining[slot as usize] += 1;
        }
    }
}
