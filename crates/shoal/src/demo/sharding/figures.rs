//! Figures that bench asks for: what coordination costs, and what more replicas bring.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::trail::Fact;
use super::verdict::{Figures, Scale};
use super::{PATIENCE, Play, trail};

/// How long nothing happens while the writes of coordination are counted.
const CALM: Duration = Duration::from_secs(20);
/// Replicas ask the server for less ten seconds after they have lost something.
const NARROWED: Duration = Duration::from_secs(12);
/// Replicas write down what they hold once a second.
const NOTED: Duration = Duration::from_millis(1_500);
/// Up to so many replicas are looked at.
const MOST: usize = 8;
/// What coordination writes.
const COORDINATION: [&str; 2] = ["leases", "shardmaps"];

impl Play<'_> {
    /// All figures, from one replica to eight; `most` stay.
    pub async fn measure(&mut self, most: usize) -> anyhow::Result<()> {
        self.load.pause(true);
        let mut scales = vec![self.burst().await?];
        let mut rewritten = 0;
        for replicas in 2..=MOST.max(most) {
            let from = std::fs::metadata(&self.server.audit)?.len();
            self.fleet.start("1")?;
            self.at_rest(replicas).await?;
            rewritten += writes(&self.server.audit, from, &["configmaps"])?;
            scales.push(self.burst().await?);
        }
        let leaving: Vec<usize> = self.fleet.running().into_iter().skip(most).collect();
        leaving.iter().for_each(|at| self.fleet.ask_to_leave(*at));
        for at in leaving {
            self.fleet.left(at, PATIENCE).await?;
        }
        self.at_rest(most).await?;
        let created = self.load.creation_takes("after").await?;
        sleep(Duration::from_secs(2)).await;
        let from = std::fs::metadata(&self.server.audit)?.len();
        sleep(CALM).await;
        let written = writes(&self.server.audit, from, &COORDINATION)?;
        self.load.pause(false);
        let (one, all) = (scales[0], scales[most - 1]);
        let replicas = most as f64;
        self.figures = Some(Figures {
            replicas: most,
            coordination_writes_per_second: written as f64 / CALM.as_secs_f64(),
            renewals_per_second: replicas / (self.lease.as_secs_f64() / 6.0),
            objects_rewritten: rewritten,
            added_create_seconds: created.as_secs_f64() - self.created.as_secs_f64(),
            efficiency: all.reconciles_per_second / (one.reconciles_per_second * replicas),
            cpu_growth: all.cpu_seconds / one.cpu_seconds.max(1e-9),
            scales,
        });
        Ok(())
    }

    /// Changes every object at once and waits until all are up to date.
    async fn burst(&mut self) -> anyhow::Result<Scale> {
        self.load.settled(PATIENCE).await?;
        sleep(NARROWED).await;
        let cpu = |play: &Play<'_>| play.fleet.cpu() + play.server.process.cpu().unwrap_or_default();
        let from = self.fleet.now();
        let (received, began, before) = (self.noted(), Instant::now(), cpu(self));
        let objects = self.load.change_all().await;
        self.load.settled(PATIENCE * 4).await?;
        // Everything at once is a long queue, and no gap.
        self.outages.push((from, self.fleet.now()));
        let (took, used) = (began.elapsed(), cpu(self) - before);
        self.stage.say(&format!("  {objects} objects brought up to date in {:.1} s", took.as_secs_f64()));
        sleep(NOTED).await;
        let noted = self.noted();
        let came = noted.iter().map(|(at, _, now)| {
            let earlier = received.iter().find(|(before, ..)| before == at).map_or(0, |(.., bytes)| *bytes);
            now - earlier
        });
        Ok(Scale {
            replicas: noted.len(),
            reconciles_per_second: f64::from(objects) / took.as_secs_f64(),
            cpu_seconds: used.as_secs_f64() / f64::from(objects.max(1)),
            watched_bytes: came.max().unwrap_or_default(),
            cached_bytes: noted.iter().map(|(_, held, _)| *held).max().unwrap_or_default(),
        })
    }

    /// Of each replica that runs: bytes that it holds, and bytes that it has received.
    fn noted(&self) -> Vec<(usize, u64, u64)> {
        let running = self.fleet.running().into_iter();
        let last = running.filter_map(|at| {
            let facts = trail::read(&std::fs::read_to_string(&self.fleet.replicas[at].trail).ok()?).ok()?;
            facts.iter().rev().find_map(|fact| match fact {
                Fact::Cached { bytes, received, .. } => Some((at, *bytes, *received)),
                _ => None,
            })
        });
        last.collect()
    }
}

/// Writes of some resources in an audit log from some byte on.
fn writes(audit: &Path, from: u64, resources: &[&str]) -> anyhow::Result<usize> {
    let mut file = std::fs::File::open(audit).context("opening the audit log")?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let writes = entries.filter(|entry| {
        let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
        let verb = entry["verb"].as_str().unwrap_or_default();
        resources.contains(&resource) && matches!(verb, "create" | "update" | "patch" | "delete")
    });
    Ok(writes.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_the_kinds_that_are_asked_for_count() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        let entry = |resource: &str, verb: &str| {
            format!("{{\"objectRef\":{{\"resource\":\"{resource}\"}},\"verb\":\"{verb}\"}}\n")
        };
        let first = entry("leases", "update");
        let rest =
            [("leases", "update"), ("shardmaps", "patch"), ("leases", "watch"), ("configmaps", "patch")];
        let text: String = rest.iter().map(|(resource, verb)| entry(resource, verb)).collect();
        std::fs::write(&log, format!("{first}{text}torn")).unwrap();
        assert_eq!(writes(&log, first.len() as u64, &COORDINATION).unwrap(), 2);
        assert_eq!(writes(&log, 0, &["configmaps"]).unwrap(), 1);
    }
}
