//! The event loop: true time, processes, requests on their way, faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Algorithm, Sticky};
use crate::guards::Guards;
use crate::identity::{Identity, ReplicaId};
use crate::key::KeyFunction;
use crate::replica::{Action, Ending, Event, Outcome, Replica, Report};
use crate::settings::{Rebalancing, Settings, Timers};
use crate::simulator::chance::Chance;
use crate::simulator::check::{Checker, Violation};
use crate::simulator::coverage::Mark;
use crate::simulator::faults::{Fault, FaultKind, faults};
use crate::simulator::node::{Flight, Node};
use crate::simulator::server::{Change, Request, Server};
use crate::slots::{Epoch, Slot, SlotCount, SlotRange};
use crate::time::Moment;

/// Something that will happen.
pub(super) enum Happening {
    Wake(usize, u32),
    Tell(usize, u32, Event),
    TellAll(usize, u32, Vec<Event>),
    Arrive(Box<Arrival>),
    Fault(usize),
    Resume(usize),
    Start(usize),
    Stop(usize),
    Well(usize, u32),
    Barrier(usize, u32, SlotRange, Epoch),
    Work(usize, u32),
    WorkEnds(usize, u32, Slot),
    Change,
    Roll(usize, u64),
}

/// A request on its way to the server.
pub(super) struct Arrival {
    node: usize,
    life: u32,
    request: Request,
    sent: u64,
    began: Moment,
    /// The client still waits for an answer.
    awaited: bool,
    renewal: u64,
    revoke: Option<ReplicaId>,
}

/// How long a client waits for an answer.
const TIMEOUT: u64 = 700_000;

pub(super) struct World {
    pub(super) now: u64,
    pub(super) chance: Chance,
    queue: BinaryHeap<Reverse<(u64, u32, u32)>>,
    happenings: Vec<Option<Happening>>,
    free: Vec<u32>,
    sequence: u32,
    pub(super) server: Server,
    pub(super) nodes: Vec<Node>,
    pub(super) slots: SlotCount,
    pub(super) settings: Arc<Settings>,
    algorithm: Arc<dyn Algorithm>,
    pub(super) guards: Guards,
    pub(super) faults: Vec<Fault>,
    pub(super) calm: u64,
    late_until: u64,
    stale_until: u64,
    throttled_until: u64,
    conflicts_until: u64,
    outage_until: u64,
    chaos_until: u64,
    pub(super) events: u64,
    pub(super) check: Checker,
    actions: Vec<Action>,
    pub(super) trace: Option<Vec<String>>,
    revisions: u64,
}

impl World {
    pub(super) fn new(seed: u64, guards: Guards, enabled: u64, trace: bool) -> World {
        let mut chance = Chance::new(seed);
        let lease = chance.between(30, 80) * 100_000;
        let drift = [0.02, 0.1, 0.2][chance.below(3) as usize];
        let slots = SlotCount::new(if chance.percent(75) { 32 } else { 64 }).unwrap_or_default();
        let identity = Identity {
            group: "web".to_owned(),
            controller: "simulated".to_owned(),
            slots,
            key_function: KeyFunction::Uid,
            algorithm: "sticky".to_owned(),
        };
        let micros = Duration::from_micros;
        let settings = Arc::new(Settings {
            identity: Arc::new(identity),
            name: "r".into(),
            address: "".into(),
            revision: "1".into(),
            weight: 100,
            timers: Timers {
                lease_duration: micros(lease),
                renew_deadline: micros(lease * chance.between(60, 80) / 100),
                retry_period: micros(lease / 6),
                clock_drift: drift,
                sync_interval: micros(lease / 2),
                node_timeout: micros((lease as f64 * (1.0 + drift)) as u64 * chance.between(110, 160) / 100),
                warm_timeout: micros(lease),
                ..Timers::default()
            },
            rebalancing: Rebalancing {
                interval: micros(lease),
                budget: chance.between(2, u64::from(slots.get()) / 2) as u32,
                replacement_grace: micros(lease * 3),
                ..Rebalancing::default()
            },
        });
        let drawn = faults(&mut chance, 5, lease, lease * 4, lease);
        let faults: Vec<Fault> = drawn
            .into_iter()
            .enumerate()
            .filter(|(at, _)| enabled >> at & 1 == 1)
            .map(|(_, fault)| fault)
            .collect();
        let grows = |fault: &Fault| {
            matches!(fault.kind, FaultKind::MixedVersion | FaultKind::Storm | FaultKind::RollingUpdate)
        };
        let most = if faults.iter().any(grows) { 4 } else { 5 };
        let count = chance.between(3, most) as usize;
        let mut world = World {
            now: 0,
            queue: BinaryHeap::with_capacity(64),
            happenings: Vec::with_capacity(64),
            free: Vec::new(),
            sequence: 0,
            server: Server::new(guards),
            nodes: Vec::with_capacity(8),
            slots,
            algorithm: Arc::new(Sticky),
            guards,
            calm: 0,
            late_until: 0,
            stale_until: 0,
            throttled_until: 0,
            conflicts_until: 0,
            outage_until: 0,
            chaos_until: 0,
            events: 0,
            check: Checker::new(slots, settings.rebalancing.budget),
            actions: Vec::with_capacity(32),
            trace: trace.then(Vec::new),
            revisions: 1,
            settings,
            faults,
            chance,
        };
        for _ in 0..count {
            let node = world.add_node(world.settings.clone());
            let at = world.chance.between(0, 300_000);
            world.at(at, Happening::Start(node));
        }
        for at in 0..world.faults.len() {
            let fault = world.faults[at];
            world.calm = world.calm.max(fault.at);
            world.at(fault.at, Happening::Fault(at));
        }
        world.at(500_000, Happening::Change);
        world
    }

    fn add_node(&mut self, settings: Arc<Settings>) -> usize {
        let drift = (settings.timers.clock_drift * 1e6) as u64;
        let rate = match self.chance.below(3) {
            0 => 0,
            1 => drift,
            _ => self.chance.between(0, drift),
        };
        let clock = (self.chance.between(1_000_000, 100_000_000), rate);
        let part = if self.chance.percent(60) { 1000 } else { self.chance.between(0, 1000) };
        let stopping = settings.timers.margin().mul_f64(part as f64 / 1000.0);
        self.nodes.push(Node::new(self.nodes.len(), settings, clock, stopping));
        self.nodes.len() - 1
    }

    pub(super) fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let line = format!("{:>10.6} {}", self.now as f64 / 1e6, words());
            trace.push(line);
        }
    }

    pub(super) fn at(&mut self, time: u64, happening: Happening) {
        self.sequence += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.happenings[index as usize] = Some(happening);
                index
            }
            None => {
                self.happenings.push(Some(happening));
                self.happenings.len() as u32 - 1
            }
        };
        self.queue.push(Reverse((time.max(self.now), self.sequence, index)));
    }

    pub(super) fn soon(&mut self, low: u64, high: u64, happening: Happening) {
        let delay = self.chance.between(low, high);
        self.at(self.now + delay, happening);
    }

    /// One event; false if there is none left.
    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((time, _, index))) = self.queue.pop() else { return false };
        let Some(happening) = self.happenings[index as usize].take() else { return true };
        self.free.push(index);
        self.now = time;
        self.events += 1;
        match happening {
            Happening::Wake(node, life) => self.wake(node, life),
            Happening::Tell(node, life, event) => self.tell(node, life, event),
            Happening::TellAll(node, life, events) => {
                events.into_iter().for_each(|event| self.tell(node, life, event));
            }
            Happening::Arrive(arrival) => self.arrive(&arrival),
            Happening::Fault(at) => self.fault(at),
            Happening::Resume(node) => self.resume(node),
            Happening::Start(node) => self.start(node),
            Happening::Stop(node) => {
                let life = self.nodes[node].life;
                let until = self.nodes[node].clock(self.now);
                self.nodes[node].wanted = false;
                self.tell(node, life, Event::Leave { until });
            }
            Happening::Well(node, life) => self.tell(node, life, Event::Health(true)),
            Happening::Barrier(node, life, slots, epoch) => self.barrier(node, life, slots, epoch),
            Happening::Work(node, life) => self.work(node, life),
            Happening::WorkEnds(node, life, slot) => self.work_ends(node, life, slot),
            Happening::Change => self.change(),
            Happening::Roll(node, revision) => self.roll(node, revision),
        }
        true
    }

    fn start(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.replica.is_some() || !n.wanted {
            return;
        }
        let id = ReplicaId::new(format!("r{}-{}", n.name, n.life));
        n.replica = Some(Replica::new(id, n.settings.clone(), self.algorithm.clone(), self.guards));
        let life = n.life;
        self.say(|| format!("r{node}-{life} starts"));
        self.tell(node, life, Event::Tick);
        self.soon(100_000, 300_000, Happening::Work(node, life));
    }

    pub(super) fn crash(&mut self, node: usize, back: Option<u64>) {
        self.nodes[node].end_life(self.now, false);
        self.nodes[node].paused_until = 0;
        if let Some(back) = back {
            self.calm = self.calm.max(back);
            self.at(back, Happening::Start(node));
        }
    }

    fn wake(&mut self, node: usize, life: u32) {
        let n = &mut self.nodes[node];
        if n.life != life || n.wake != self.now {
            return;
        }
        n.wake = u64::MAX;
        let due = n.replica.as_ref().is_some_and(|replica| replica.wake_at() <= n.clock(self.now));
        match due {
            true => self.tell(node, life, Event::Tick),
            false => self.schedule_wake(node),
        }
    }

    fn schedule_wake(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        let Some(replica) = &n.replica else { return };
        let moment = replica.wake_at();
        if moment == Moment::NEVER {
            return;
        }
        let time = n.true_time(moment).max(self.now + 1);
        if time < n.wake {
            n.wake = time;
            let life = n.life;
            self.at(time, Happening::Wake(node, life));
        }
    }

    /// Hands an event to a replica and carries out what it wants.
    pub(super) fn tell(&mut self, node: usize, life: u32, event: Event) {
        let n = &mut self.nodes[node];
        if n.life != life {
            return;
        }
        if self.now < n.paused_until {
            n.inbox.push(event);
            return;
        }
        let now = n.clock(self.now);
        let Some(replica) = &mut n.replica else { return };
        if let Event::Map { observed: crate::map::Observed::Valid(map), .. } = &event
            && replica.map().is_some_and(|known| map.version < known.version)
        {
            self.check.mark(Mark::StaleMap);
        }
        let in_time = now < replica.deadline();
        let mut actions = std::mem::take(&mut self.actions);
        replica.handle(event, now, &mut actions);
        let resumed = !in_time && now < replica.deadline();
        for action in actions.drain(..) {
            self.act(node, life, action);
        }
        self.actions = actions;
        if resumed {
            self.check_overlap(node, self.slots.all());
        }
        self.schedule_wake(node);
    }

    fn act(&mut self, node: usize, life: u32, action: Action) {
        if self.trace.is_some() {
            self.say_action(node, life, &action);
        }
        match action {
            Action::List => self.send(node, Request::List, 0, None),
            Action::CreateLease(record) => {
                let renewal = record.renewals;
                self.send(node, Request::CreateLease(record), renewal, None);
            }
            Action::RenewLease { uid, resource_version, record } => {
                let renewal = record.renewals;
                self.send(node, Request::UpdateLease { uid, resource_version, record }, renewal, None);
            }
            Action::RevokeLease { uid, resource_version, record } => {
                let id = Some(record.replica.clone());
                self.send(node, Request::UpdateLease { uid, resource_version, record }, 0, id);
            }
            Action::BuryLease(record) => {
                self.check.mark(Mark::Bury);
                let id = Some(record.replica.clone());
                self.send(node, Request::CreateLease(record), 0, id);
            }
            Action::DeleteLease { replica, uid } => {
                self.send(node, Request::DeleteLease { replica, uid }, 0, None);
            }
            Action::ReadLease(id) => self.send(node, Request::ReadLease(id), 0, None),
            Action::ReadMap => self.send(node, Request::ReadMap, 0, None),
            Action::CreateMap => self.send(node, Request::CreateMap, 0, None),
            Action::WriteMap { resource_version, map } => {
                self.send(node, Request::WriteMap { resource_version, map }, 0, None);
            }
            Action::Warm { slots, epoch } => {
                self.soon(20_000, 300_000, Happening::Tell(node, life, Event::Warmed { slots, epoch }));
            }
            Action::Drain { slots, epoch } => {
                self.nodes[node].drains.push((slots, epoch));
                if !self.finish_drains(node, life) {
                    self.check.mark(Mark::DrainWaited);
                }
            }
            Action::Abort { slots } => {
                for slot in slots.slots() {
                    if self.nodes[node].flights[slot as usize].take().is_some() {
                        self.nodes[node].in_flight -= 1;
                    }
                }
            }
            Action::Barrier { slots, epoch } => {
                self.soon(5_000, 150_000, Happening::Barrier(node, life, slots, epoch));
            }
            Action::Activate { slots, .. } => self.check_overlap(node, slots),
            Action::Fence => self.fence(node, life),
            Action::Resume => self.check.mark(Mark::Resume),
            Action::Report(Report::Repairing(_)) => self.check.mark(Mark::Repair),
            Action::Report(Report::Revoked(_)) => self.check.mark(Mark::Revoke),
            Action::Cool { .. } | Action::Notify(_) | Action::Report(_) => {}
            Action::Restart(why) => self.restart(node, &why),
            Action::Stopped => {
                self.check.mark(Mark::SelfRevoked);
                self.nodes[node].end_life(self.now, true);
                if self.nodes[node].wanted {
                    let back = self.now + self.chance.between(300_000, 2_000_000);
                    self.calm = self.calm.max(back);
                    self.at(back, Happening::Start(node));
                }
            }
        }
    }

    fn restart(&mut self, node: usize, why: &Ending) {
        match why {
            Ending::LeaseLost => self.check.mark(Mark::LeaseLost),
            Ending::Refused(_) => {
                self.check.mark(Mark::Refused);
                self.nodes[node].wanted = false;
            }
            _ => {}
        }
        self.nodes[node].end_life(self.now, true);
        self.soon(50_000, 800_000, Happening::Start(node));
    }

    /// The deadline has passed: work in flight is told to stop.
    fn fence(&mut self, node: usize, life: u32) {
        self.check.mark(Mark::Fence);
        let stop = self.now + self.nodes[node].stopping_time().as_micros() as u64;
        if self.nodes[node].in_flight == 0 {
            return;
        }
        for slot in self.slots.all().slots() {
            if let Some(flight) = &mut self.nodes[node].flights[slot as usize]
                && flight.until > stop
                && self.guards.on(crate::guards::Guard::Deadline)
            {
                flight.until = stop;
                flight.doomed = true;
                self.check.mark(Mark::AbortInFlight);
                self.at(stop, Happening::WorkEnds(node, life, slot));
            }
        }
    }

    fn latency(&mut self) -> u64 {
        if self.chance.percent(90) {
            self.chance.between(1_000, 20_000)
        } else {
            self.chance.between(20_000, 300_000)
        }
    }

    fn send(&mut self, node: usize, request: Request, renewal: u64, revoke: Option<ReplicaId>) {
        let n = &self.nodes[node];
        let (life, began) = (n.life, n.clock(self.now));
        let lost = self.now < n.cut_out || self.now < self.outage_until;
        let late = self.now < self.late_until && self.chance.percent(40);
        let delay = match late {
            true => self.chance.between(100_000, self.settings.timers.lease_duration.as_micros() as u64 * 2),
            false => self.latency(),
        };
        if let Request::UpdateLease { record, .. } = &request
            && (lost || delay > TIMEOUT)
            && record.revoked.is_none()
            && self.server.lease(&record.replica).is_some_and(|lease| lease.record.duration > record.duration)
        {
            self.check.mark(Mark::Shortened);
        }
        let mut arrival =
            Box::new(Arrival { node, life, request, sent: self.now, began, awaited: true, renewal, revoke });
        if lost || delay > TIMEOUT {
            self.give_up(&arrival);
        }
        if !lost {
            arrival.awaited = delay <= TIMEOUT;
            self.calm = self.calm.max(if late { self.now + delay } else { 0 });
            self.at(self.now + delay, Happening::Arrive(arrival));
        }
    }

    /// The client stops waiting.
    fn give_up(&mut self, arrival: &Arrival) {
        if let Some(event) = self.answer(arrival, Outcome::Unknown) {
            let at = (arrival.sent + TIMEOUT).max(self.now);
            self.at(at, Happening::Tell(arrival.node, arrival.life, event));
        }
    }

    fn answer(&self, arrival: &Arrival, outcome: Outcome) -> Option<Event> {
        match (&arrival.request, &arrival.revoke) {
            (Request::CreateLease(_) | Request::UpdateLease { .. }, Some(id)) => {
                Some(Event::RevokeWritten { replica: id.clone(), outcome })
            }
            (Request::CreateLease(_) | Request::UpdateLease { .. }, None) => {
                Some(Event::LeaseWritten { renewal: arrival.renewal, outcome })
            }
            (Request::WriteMap { .. } | Request::CreateMap, _) => Some(Event::MapWritten(outcome)),
            _ => None,
        }
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let deaf = self.now < self.nodes[arrival.node].cut_in || self.now < self.outage_until;
        let heard = arrival.awaited && !deaf;
        let delay = self.latency();
        let (node, life) = (arrival.node, arrival.life);
        match &arrival.request {
            Request::List => {
                let stale = (self.now < self.stale_until).then(|| self.chance.next());
                let mut events = self.server.list(stale);
                if stale.is_none() {
                    events.push(Event::Listed { began: arrival.began });
                }
                if heard {
                    self.at(self.now + delay, Happening::TellAll(node, life, events));
                }
            }
            Request::ReadLease(id) if heard => {
                let event = self.server.read_lease(id);
                self.at(self.now + delay, Happening::Tell(node, life, event));
            }
            Request::ReadMap if heard => {
                let event = self.server.read_map();
                self.at(self.now + delay, Happening::Tell(node, life, event));
            }
            Request::ReadLease(_) | Request::ReadMap => {}
            _ => {
                let outcome = self.write(arrival);
                let in_time = self.now + delay <= arrival.sent + TIMEOUT;
                if heard && in_time {
                    if let Some(event) = self.answer(arrival, outcome) {
                        self.at(self.now + delay, Happening::Tell(node, life, event));
                    }
                } else if arrival.awaited {
                    self.give_up(arrival);
                }
            }
        }
    }

    fn write(&mut self, arrival: &Arrival) -> Outcome {
        if self.now < self.throttled_until && self.chance.percent(40) {
            return Outcome::Throttled { after: Duration::from_millis(300) };
        }
        if self.now < self.conflicts_until && self.chance.percent(30) {
            return Outcome::Conflict;
        }
        let (outcome, change) = self.server.write(&arrival.request);
        if let Some(Change::Lease(lease)) = &change {
            self.check.lease_written(lease);
        }
        let applied = matches!(outcome, Outcome::Applied { .. });
        let map = match &arrival.request {
            Request::WriteMap { map, .. } => Some(map),
            _ => None,
        };
        let mark = match (map.is_some(), arrival.revoke.is_some(), arrival.awaited, applied) {
            (true, _, false, true) => Some(Mark::LateMap),
            (true, _, false, false) => Some(Mark::LateMapRefused),
            (true, _, true, false) => Some(Mark::MapConflict),
            (false, true, _, false) => Some(Mark::RevokeRefused),
            (false, false, false, true) => Some(Mark::LateRenewal),
            (false, false, false, false) => Some(Mark::LateRenewalRefused),
            (false, false, true, false) => Some(Mark::RenewConflict),
            _ => None,
        };
        mark.into_iter().for_each(|mark| self.check.mark(mark));
        if let (Some(map), true) = (map, applied) {
            self.say(|| format!("server: {map}"));
            if let Some(violation) = self.check.committed(map, self.server.revision) {
                self.violated(violation);
            }
        }
        if let Some(change) = change {
            self.broadcast(&change);
        }
        outcome
    }

    pub(super) fn broadcast(&mut self, change: &Change) {
        for node in 0..self.nodes.len() {
            let n = &self.nodes[node];
            let deaf = self.now < n.cut_in.max(n.watch_cut).max(self.outage_until);
            if n.replica.is_none() || deaf {
                continue;
            }
            let life = n.life;
            let chaos = self.now < self.chaos_until;
            let copies = match chaos {
                true => self.chance.below(3),
                false => 1,
            };
            for _ in 0..copies {
                let delay = if chaos { self.chance.between(1_000, 1_500_000) } else { self.latency() };
                self.at(self.now + delay, Happening::Tell(node, life, change.event()));
            }
        }
    }

    fn barrier(&mut self, node: usize, life: u32, slots: SlotRange, epoch: Epoch) {
        let n = &mut self.nodes[node];
        if n.life != life {
            return;
        }
        if self.now < n.cut_in.max(n.cut_out).max(self.outage_until) {
            self.soon(200_000, 400_000, Happening::Barrier(node, life, slots, epoch));
            return;
        }
        for slot in slots.slots() {
            n.cached[slot as usize] = self.check.objects[slot as usize];
        }
        self.tell(node, life, Event::Fresh { slots, epoch });
    }

    fn change(&mut self) {
        let slot = self.chance.below(u64::from(self.slots.get())) as usize;
        self.check.objects[slot] += 1;
        if self.now < self.calm {
            self.soon(50_000, 400_000, Happening::Change);
        }
    }

    fn work(&mut self, node: usize, life: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let calm = self.now >= self.calm;
        self.soon(300_000, 700_000, Happening::Work(node, life));
        if self.now < self.nodes[node].paused_until {
            return;
        }
        let heard =
            self.now >= self.nodes[node].cut_in.max(self.nodes[node].watch_cut).max(self.outage_until);
        let slots = self.slots.get();
        let first = self.chance.below(u64::from(slots)) as Slot;
        let tries = if calm { slots } else { slots / 2 };
        let mut started = 0;
        for slot in (0..tries).map(|step| (first + step) % slots) {
            let n = &mut self.nodes[node];
            let now = n.clock(self.now);
            if n.replica.as_ref().and_then(|replica| replica.may_work(slot, now)).is_none() {
                continue;
            }
            let at = slot as usize;
            if n.flights[at].is_some() || (calm && self.check.handled[at] >= self.check.objects[at]) {
                continue;
            }
            if heard && (calm || self.chance.percent(80)) {
                n.cached[at] = self.check.objects[at];
            }
            let version = n.cached[at];
            let long = !calm && self.chance.percent(25);
            let lasts = match long {
                true => {
                    self.chance.between(500_000, self.settings.timers.lease_duration.as_micros() as u64 * 2)
                }
                false => self.chance.between(10_000, 300_000),
            };
            let until = self.now + lasts;
            let flight = Flight { life, version, until, doomed: false, cap: None };
            self.nodes[node].flights[at] = Some(flight);
            self.nodes[node].in_flight += 1;
            self.at(until, Happening::WorkEnds(node, life, slot));
            self.check_overlap(node, SlotRange::one(slot));
            if let Some(violation) = self.check.works_on(node, life, slot, version) {
                self.violated(violation);
            }
            started += 1;
            if started >= 2 && !calm {
                break;
            }
        }
    }

    fn work_ends(&mut self, node: usize, life: u32, slot: Slot) {
        let at = slot as usize;
        let Some(flight) = self.nodes[node].flights[at].filter(|flight| flight.until <= self.now) else {
            return;
        };
        if self.now < self.nodes[node].paused_until {
            // The process stands still; its work ends when it goes on.
            let back = self.nodes[node].paused_until + 1;
            if let Some(flight) = &mut self.nodes[node].flights[at] {
                flight.until = back;
            }
            self.at(back, Happening::WorkEnds(node, life, slot));
            return;
        }
        let now = self.nodes[node].clock(self.now);
        self.nodes[node].flights[at] = None;
        self.nodes[node].in_flight -= 1;
        let replica = self.nodes[node].replica.as_ref().filter(|_| flight.life == self.nodes[node].life);
        // The fenced client lets the last write through only before the deadline and in the epoch of the start.
        let effect =
            replica.is_some_and(|replica| now < replica.deadline() && replica.may_be_in_flight(slot));
        if effect && !flight.doomed {
            self.check_overlap(node, SlotRange::one(slot));
            self.check.handled_by(node, flight.life, slot, flight.version);
        }
        let life = self.nodes[node].life;
        self.finish_drains(node, life);
    }

    /// Tells drains that have nothing in flight any more. True if none is left.
    fn finish_drains(&mut self, node: usize, life: u32) -> bool {
        let n = &mut self.nodes[node];
        let mut done = Vec::new();
        let flights = &n.flights;
        n.drains.retain(|(slots, epoch)| {
            let idle = slots.slots().all(|slot| flights[slot as usize].is_none());
            if idle {
                done.push((*slots, *epoch));
            }
            !idle
        });
        let none_left = n.drains.is_empty();
        for (slots, epoch) in done {
            self.soon(100, 5_000, Happening::Tell(node, life, Event::Drained { slots, epoch }));
        }
        none_left
    }

    pub(super) fn check_overlap(&mut self, node: usize, slots: SlotRange) {
        if let Some(violation) = self.check.overlap(&self.nodes, node, slots, self.now, self.guards) {
            self.violated(violation);
        }
    }

    pub(super) fn violated(&mut self, violation: Violation) {
        self.say(|| format!("VIOLATION: {violation}"));
        self.check.violation.get_or_insert(violation);
    }

    fn resume(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.paused_until > self.now {
            return;
        }
        n.paused_until = 0;
        let life = n.life;
        let over = n.replica.as_ref().is_some_and(|replica| n.clock(self.now) >= replica.deadline());
        let mut inbox = std::mem::take(&mut n.inbox);
        if over {
            self.check.mark(Mark::Paused);
        }
        self.say(|| format!("r{node} goes on"));
        // Which of the waiting messages a process looks at first is anybody's guess.
        if self.chance.percent(50) {
            inbox.insert(0, Event::Tick);
        }
        inbox.into_iter().for_each(|event| self.tell(node, life, event));
        self.tell(node, life, Event::Tick);
    }

    fn roll(&mut self, node: usize, revision: u64) {
        let old = node;
        if self.nodes[old].wanted && self.nodes[old].shift == 0 {
            let settings =
                Settings { revision: revision.to_string().into(), ..(*self.nodes[old].settings).clone() };
            let fresh = self.add_node(Arc::new(settings));
            self.soon(10_000, 200_000, Happening::Start(fresh));
            let lease = self.settings.timers.lease_duration.as_micros() as u64;
            self.calm = self.calm.max(self.now + lease);
            let (life, until) = (self.nodes[old].life, self.nodes[old].clock(self.now + lease));
            self.nodes[old].wanted = false;
            self.at(self.now + lease / 2, Happening::Tell(old, life, Event::Leave { until }));
        }
        let next = (old + 1..self.nodes.len()).find(|node| {
            let n = &self.nodes[*node];
            n.wanted && n.shift == 0 && *n.settings.revision != *revision.to_string()
        });
        if let Some(next) = next {
            let at = self.now + self.settings.timers.lease_duration.as_micros() as u64 * 3 / 2;
            self.calm = self.calm.max(at);
            self.at(at, Happening::Roll(next, revision));
        }
    }

    pub(super) fn start_roll(&mut self, at: u64) {
        self.revisions += 1;
        self.calm = self.calm.max(at);
        self.at(at, Happening::Roll(0, self.revisions));
    }

    pub(super) fn fault_window(&mut self, kind: FaultKind, until: u64) {
        let window = match kind {
            FaultKind::LateWrites => &mut self.late_until,
            FaultKind::StaleLists => &mut self.stale_until,
            FaultKind::Throttle => &mut self.throttled_until,
            FaultKind::Conflicts => &mut self.conflicts_until,
            FaultKind::Outage => &mut self.outage_until,
            _ => &mut self.chaos_until,
        };
        *window = (*window).max(until);
    }

    pub(super) fn add_and_start(&mut self, settings: Arc<Settings>, shift: u32) -> usize {
        let node = self.add_node(settings);
        self.nodes[node].shift = shift;
        self.at(self.now, Happening::Start(node));
        node
    }
}
