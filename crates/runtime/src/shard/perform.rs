//! Does what the core wants: requests to the API server, warming, draining, the freshness barrier. Each in a task of its own, whose
//! end is an event.

use std::sync::Arc;
use std::time::Duration;

use shoal_sharding::{Action, Epoch, Event, Outcome, SlotRange};
use tokio::time::{Instant, MissedTickBehavior};

use super::Shared;
use super::driver::Life;
use super::observe::{Inbox, Message};

/// No request is given up sooner, unless the deadline wants it.
const SHORTEST: Duration = Duration::from_millis(250);
/// Work that is cut off is told again this often.
const CUT_AGAIN: Duration = Duration::from_millis(100);

/// Sends a request. Its outcome comes back as an event; where none comes, the core asks again by itself.
pub(super) fn request(life: &mut Life, action: Action) {
    let (records, holding, inbox) =
        (life.shared.records.clone(), life.shared.holding.clone(), life.inbox.clone());
    let timers = &life.settings.timers;
    // A request that hangs must leave time for others before the deadline.
    let limit = timers.retry_period.max(SHORTEST).min(timers.renew_deadline / 2);
    // Renewals are one at a time, and one that is answered late is better than one that is given up.
    let renewal_limit = (timers.renew_deadline / 2).max(limit);
    let patience = timers.renew_deadline;
    let silence = life.shared.pulse.silence(holding.now());
    let stands_still = silence > patience;
    let again = timers.retry_period;
    life.tasks.spawn(async move {
        let message = match action {
            Action::List => {
                let began = holding.now();
                match tokio::time::timeout(patience, records.list()).await {
                    Ok(Ok(listed)) => Some(Message::Listed { began, listed: listed.into() }),
                    Ok(Err(error)) => failed("list the Leases and the ShardMap", &error),
                    Err(_) => None,
                }
            }
            Action::ReadLease(id) => match tokio::time::timeout(limit, records.read_lease(&id)).await {
                Ok(Ok((Some(lease), _))) => Some(Message::Lease(lease)),
                Ok(Ok((None, revision))) => Some(Message::LeaseGone(id, revision)),
                Ok(Err(error)) => failed("read a Lease", &error),
                Err(_) => None,
            },
            Action::ReadMap => match tokio::time::timeout(limit, records.read_map()).await {
                Ok(Ok((Some(map), _))) => Some(Message::Map(map.into())),
                Ok(Ok((None, revision))) => Some(Message::MapGone(revision)),
                Ok(Err(error)) => failed("read the ShardMap", &error),
                Err(_) => None,
            },
            Action::CreateLease(record) => {
                let outcome = records.create_lease(&record, renewal_limit).await;
                Some(Message::Event(Event::LeaseWritten { renewal: record.renewals, outcome }))
            }
            Action::RenewLease { uid, resource_version, record } => {
                let outcome = if stands_still {
                    tracing::error!(?silence, "this process stands still: its Lease is not renewed");
                    Outcome::Throttled { after: again }
                } else {
                    records.replace_lease(&record, uid, resource_version, renewal_limit).await
                };
                Some(Message::Event(Event::LeaseWritten { renewal: record.renewals, outcome }))
            }
            Action::RevokeLease { uid, resource_version, record } => {
                let outcome = records.replace_lease(&record, uid, resource_version, limit).await;
                Some(Message::Event(Event::RevokeWritten { replica: record.replica, outcome }))
            }
            Action::BuryLease(record) => {
                let outcome = records.create_lease(&record, limit).await;
                Some(Message::Event(Event::RevokeWritten { replica: record.replica, outcome }))
            }
            Action::DeleteLease { replica, uid } => {
                records.delete_lease(&replica, uid).await;
                None
            }
            Action::CreateMap => Some(Message::Event(Event::MapWritten(records.create_map(limit).await))),
            Action::WriteMap { resource_version, map } => {
                let outcome = records.write_map(&map, resource_version, limit).await;
                Some(Message::Event(Event::MapWritten(outcome)))
            }
            // No requests: the driver does these itself.
            _ => None,
        };
        if let Some(message) = message {
            let _ = inbox.send(message).await;
        }
    });
}

fn failed(what: &str, error: &kube::Error) -> Option<Message> {
    tracing::warn!(%error, "cannot {what}; will be tried again");
    None
}

impl Life {
    /// Fills the caches for slots that shall come.
    pub(super) fn warm(&mut self, slots: Vec<(SlotRange, Epoch)>) {
        let (shared, inbox) = (self.shared.clone(), self.inbox.clone());
        let work = async move {
            let began = Instant::now();
            shared.kinds.settled().await;
            shared.metrics.took("warm", began.elapsed().as_secs_f64());
            for (slots, epoch) in slots {
                let _ = inbox.send(Message::Event(Event::Warmed { slots, epoch })).await;
            }
        };
        self.tasks.spawn_on(work, &self.main);
    }

    /// Tells the layer above, then reads everything anew. `asked` are caches that were just told to list.
    pub(super) fn barrier(
        &mut self,
        slots: Vec<(SlotRange, Epoch)>,
        asked: Vec<(Arc<crate::cache::Core>, u64)>,
    ) {
        let (shared, inbox) = (self.shared.clone(), self.inbox.clone());
        let mut told = Vec::new();
        for (range, epoch) in &slots {
            told.push(self.notifier.gained(*range, *epoch));
            range.slots().for_each(|slot| self.gained[slot as usize] = *epoch);
        }
        let work = async move {
            let began = Instant::now();
            futures::future::join_all(told).await;
            let ranges: Vec<SlotRange> = slots.iter().map(|(range, _)| *range).collect();
            shared.kinds.fresh(&ranges, &asked).await;
            shared.metrics.took("barrier", began.elapsed().as_secs_f64());
            for (slots, epoch) in slots {
                let _ = inbox.send(Message::Event(Event::Fresh { slots, epoch })).await;
            }
        };
        self.tasks.spawn_on(work, &self.main);
    }

    /// Takes nothing new, awaits what is in flight, tells the layer above. Work that takes too long is cut off.
    pub(super) fn drain(&mut self, slots: SlotRange, epoch: Epoch) {
        let (shared, inbox, notifier) = (self.shared.clone(), self.inbox.clone(), self.notifier.clone());
        shared.holding.close(slots);
        self.range_is_draining(slots);
        // In a hurry nobody waits longer than the process may live.
        let left = self.leave_by.map(|by| by.since(shared.holding.now()).max(Duration::from_secs(1)));
        let limit = left.map_or(shared.options.drain_timeout, |left| left.min(shared.options.drain_timeout));
        let told: Vec<u32> = slots.slots().filter(|slot| self.gained[*slot as usize] > 0).collect();
        told.iter().for_each(|slot| self.gained[*slot as usize] = 0);
        let work = async move {
            let began = Instant::now();
            let idle = shared.holding.idle(slots, epoch);
            tokio::pin!(idle);
            if tokio::time::timeout(limit, &mut idle).await.is_err() {
                let cut = shared.holding.cancel(slots, epoch);
                tracing::warn!(%slots, cut, ?limit, "a handover cuts reconciles off that take too long");
                while tokio::time::timeout(CUT_AGAIN, &mut idle).await.is_err() {
                    shared.holding.cancel(slots, epoch);
                }
            }
            for range in shoal_sharding::ranges_of(told) {
                notifier.lost(range, epoch).await;
            }
            shared.holding.release(slots, epoch);
            shared.metrics.took("drain", began.elapsed().as_secs_f64());
            let _ = inbox.send(Message::Drained { slots, epoch }).await;
        };
        self.tasks.spawn_on(work, &self.main);
    }

    /// These slots are somebody else's: by the rules that happens only after the own time was over.
    pub(super) fn abort(&mut self, slots: SlotRange) {
        let in_time = self.shared.holding.now() < self.shared.holding.deadline();
        let cut = self.shared.holding.drop_slots(slots);
        if cut > 0 && in_time {
            self.shared.metrics.overlaps.inc_by(u64::from(slots.len()));
            tracing::error!(%slots, cut, "slots went to another replica while work on them was in flight here");
        }
        self.stale = true;
    }
}

/// Asks whether this replica is well, for ever.
pub(super) async fn check_health(shared: Arc<Shared>, inbox: Inbox) {
    let Some(check) = shared.options.health.clone() else { return std::future::pending().await };
    let timers = shared.settings.borrow().timers.clone();
    let mut ticks = tokio::time::interval(timers.health_check_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let well = tokio::time::timeout(timers.health_check_timeout, check()).await.unwrap_or(false);
        let _ = inbox.send(Message::Event(Event::Health(well))).await;
    }
}
