//! Faults taking effect.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::Identity;
use crate::key::KeyFunction;
use crate::map::{Defect, Observed};
use crate::replica::Event;
use crate::settings::{Settings, Timers};
use crate::simulator::faults::{Fault, FaultKind};
use crate::simulator::server::Change;
use crate::simulator::world::{Happening, World};

impl World {
    pub(super) fn fault(&mut self, at: usize) {
        let Fault { kind, node, lasts, detail, .. } = self.faults[at];
        // The fault hits one that runs, if any does.
        let running: Vec<usize> = (0..self.nodes.len())
            .filter(|n| self.nodes[*n].replica.is_some() && self.nodes[*n].shift == 0)
            .collect();
        let node = running.get(node % running.len().max(1)).copied().unwrap_or(0);
        let until = self.now + lasts;
        let life = self.nodes[node].life;
        self.calm = self.calm.max(self.now);
        self.say(|| format!("FAULT: r{node} {} ({:.3} s)", kind.words(), lasts as f64 / 1e6));
        match kind {
            FaultKind::Crash => self.crash(node, Some(until)),
            FaultKind::Pause | FaultKind::Suspend => {
                if self.nodes[node].replica.is_some() && self.nodes[node].paused_until == 0 {
                    self.nodes[node].paused_until = until;
                    if kind == FaultKind::Suspend {
                        self.nodes[node].slept(lasts, self.guards);
                    }
                    self.at(until, Happening::Resume(node));
                    self.calm = self.calm.max(until);
                }
            }
            FaultKind::Partition => {
                self.nodes[node].cut_out = until;
                self.nodes[node].cut_in = until;
                self.calm = self.calm.max(until);
            }
            FaultKind::CutOut => {
                self.nodes[node].cut_out = until;
                self.calm = self.calm.max(until);
            }
            FaultKind::CutIn => {
                self.nodes[node].cut_in = until;
                self.calm = self.calm.max(until);
            }
            FaultKind::WatchLoss => {
                self.nodes[node].watch_cut = until;
                self.calm = self.calm.max(until);
            }
            FaultKind::Expired => {
                for node in 0..self.nodes.len() {
                    self.nodes[node].watch_cut = self.nodes[node].watch_cut.max(self.now + 200_000);
                    let events = self.server.list(Some(detail));
                    let life = self.nodes[node].life;
                    self.soon(200_000, 400_000, Happening::TellAll(node, life, events));
                }
            }
            FaultKind::Outage
            | FaultKind::LateWrites
            | FaultKind::WatchChaos
            | FaultKind::StaleLists
            | FaultKind::Throttle
            | FaultKind::Conflicts => {
                self.fault_window(kind, until);
                self.calm = self.calm.max(until);
            }
            FaultKind::Duration => self.reload(node, detail),
            FaultKind::DeleteLease | FaultKind::RecreateLease | FaultKind::EditLease => {
                self.touch_lease(node, kind, detail);
            }
            FaultKind::EditMap => self.edit_map(detail),
            FaultKind::DeleteMap => self.delete_map(),
            FaultKind::Reinstall => {
                for node in 0..self.nodes.len() {
                    self.crash(node, Some(until));
                }
                while !self.server.leases.is_empty() {
                    self.server.delete_lease(0);
                }
                self.delete_map();
            }
            FaultKind::MixedVersion => {
                let identity = Identity {
                    key_function: KeyFunction::User { id: "uid-2".to_owned(), version: 2 },
                    ..(*self.settings.identity).clone()
                };
                let settings = Settings { identity: Arc::new(identity), ..(*self.settings).clone() };
                self.add_and_start(Arc::new(settings), 1);
            }
            FaultKind::Storm => {
                for _ in 0..1 + detail % 2 {
                    let node = self.add_and_start(self.settings.clone(), 0);
                    self.at(until, Happening::Stop(node));
                }
                self.calm = self.calm.max(until);
            }
            FaultKind::RollingUpdate => self.start_roll(self.now),
            FaultKind::Leave => {
                let until = self.nodes[node].clock(until);
                self.calm = self.calm.max(self.now + lasts);
                self.tell(node, life, Event::Leave { until });
            }
            FaultKind::HurriedLeave => {
                let until = self.nodes[node].clock(self.now);
                self.tell(node, life, Event::Leave { until });
            }
            FaultKind::Unwell => {
                self.tell(node, life, Event::Health(false));
                self.at(until, Happening::Well(node, life));
                self.calm = self.calm.max(until);
            }
        }
    }

    fn reload(&mut self, node: usize, detail: u64) {
        let old = &self.nodes[node].settings;
        let longest = self.settings.timers.node_timeout.div_f64(1.0 + self.settings.timers.clock_drift);
        let lease =
            self.settings.timers.lease_duration.mul_f64((60 + detail % 100) as f64 / 100.0).min(longest);
        // How long stopping takes does not change with the settings, so the margin stays.
        let timers = Timers {
            lease_duration: lease,
            renew_deadline: lease.saturating_sub(self.settings.timers.margin()),
            retry_period: lease.min(self.settings.timers.lease_duration) / 6,
            ..old.timers.clone()
        };
        let settings = Arc::new(Settings { timers, ..(**old).clone() });
        let all = detail >> 32 & 1 == 1;
        for at in 0..self.nodes.len() {
            if (at == node || all) && self.nodes[at].shift == 0 {
                let revision = self.nodes[at].settings.revision.clone();
                let settings = Arc::new(Settings { revision, ..(*settings).clone() });
                self.nodes[at].settings = settings.clone();
                let life = self.nodes[at].life;
                self.tell(at, life, Event::Settings(settings));
            }
        }
    }

    fn touch_lease(&mut self, node: usize, kind: FaultKind, detail: u64) {
        let Some(id) = self.nodes[node].replica.as_ref().map(|replica| replica.id().clone()) else { return };
        let Some(at) = self.server.leases.iter().position(|lease| lease.record.replica == id) else { return };
        let (old, genuine) = (self.server.leases[at].record.clone(), self.server.leases[at].genuine);
        if kind == FaultKind::EditLease {
            let mut record = old;
            match detail % 3 {
                0 => record.duration = Duration::from_millis(500),
                1 => record = record.tombstone(&"somebody".into()),
                _ => record.released = vec![(self.slots.all(), record.epoch)],
            }
            let (_, change) = self.server.put_lease(Some(at), record, false);
            change.into_iter().for_each(|change| self.broadcast(&change));
            return;
        }
        let (_, change) = self.server.delete_lease(at);
        change.into_iter().for_each(|change| self.broadcast(&change));
        if kind == FaultKind::RecreateLease {
            let (_, change) = self.server.put_lease(None, old, genuine);
            change.into_iter().for_each(|change| self.broadcast(&change));
        }
    }

    fn delete_map(&mut self) {
        if self.server.map.take().is_some() {
            self.server.revision += 1;
            self.server.map_gone = self.server.revision;
            self.broadcast(&Change::MapGone(self.server.revision));
        }
    }

    fn edit_map(&mut self, detail: u64) {
        let Some((_, Observed::Valid(map))) = &self.server.map else { return };
        let owners: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| node.replica.as_ref())
            .map(|replica| replica.id().clone())
            .collect();
        let Some(owner) = owners.get(detail as usize % owners.len().max(1)) else { return };
        let content = map.edited_by_hand(detail, owner);
        self.server.revision += 1;
        let defect = Defect::Edited { reason: "by hand".to_owned(), content: Box::new(content) };
        let (_, change) = self.server.put_map(Observed::Damaged(defect));
        change.into_iter().for_each(|change| self.broadcast(&change));
    }
}
