//! Figures that bench asks for: what coordination costs, and what more replicas bring.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::trail::Fact;
use super::verdict::Figures;
use super::{PATIENCE, Play, trail};

/// How long nothing happens while the writes of coordination are counted.
const CALM: Duration = Duration::from_secs(6);

/// All objects changed at once, and what it took to bring them up to date.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Reconciles with a write per second.
    rate: f64,
    /// CPU time of replicas and API server for one of them.
    cpu: Duration,
}

impl Play<'_> {
    /// Changes every object at once and waits until all are up to date.
    pub async fn burst(&mut self) -> anyhow::Result<Burst> {
        self.load.pause(true);
        self.load.settled(PATIENCE).await?;
        sleep(Duration::from_secs(1)).await;
        let cpu = |play: &Play<'_>| play.fleet.cpu() + play.server.process.cpu().unwrap_or_default();
        let (began, before) = (Instant::now(), cpu(self));
        let objects = self.load.change_all().await;
        self.load.settled(PATIENCE * 4).await?;
        let (took, used) = (began.elapsed(), cpu(self) - before);
        self.load.pause(false);
        let rate = f64::from(objects) / took.as_secs_f64();
        self.stage.say(&format!("  {objects} objects brought up to date in {:.1} s", took.as_secs_f64()));
        Ok(Burst { rate, cpu: used / objects.max(1) })
    }

    /// All figures, with all replicas at rest.
    pub async fn measure(&mut self, replicas: usize, objects: u32) -> anyhow::Result<()> {
        let all = self.burst().await?;
        let one = self.burst.context("one replica was not measured")?;
        self.load.pause(true);
        self.load.settled(PATIENCE).await?;
        sleep(Duration::from_secs(2)).await;
        let from = std::fs::metadata(&self.server.audit)?.len();
        sleep(CALM).await;
        let writes = coordination_writes(&self.server.audit, from)?;
        self.load.pause(false);
        let cached = self.fleet.running().into_iter().filter_map(|at| {
            let facts = trail::read(&std::fs::read_to_string(&self.fleet.replicas[at].trail).ok()?).ok()?;
            facts.iter().rev().find_map(|fact| match fact {
                Fact::Cached { objects, .. } => Some(*objects),
                _ => None,
            })
        });
        let cached: u64 = cached.sum();
        let count = replicas as f64;
        self.figures = Some(Figures {
            replicas,
            coordination_writes_per_second: writes as f64 / CALM.as_secs_f64(),
            renewals_per_second: count / (self.lease.as_secs_f64() / 6.0),
            cached_shares: cached as f64 / f64::from(objects),
            throughput_of_one: one.rate,
            throughput_of_all: all.rate,
            efficiency: all.rate / (one.rate * count),
            cpu_growth: all.cpu.as_secs_f64() / one.cpu.as_secs_f64().max(1e-9),
        });
        Ok(())
    }
}

/// Writes of Leases and ShardMaps in an audit log from some byte on.
fn coordination_writes(audit: &Path, from: u64) -> anyhow::Result<usize> {
    let mut file = std::fs::File::open(audit).context("opening the audit log")?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let writes = entries.filter(|entry| {
        let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
        let verb = entry["verb"].as_str().unwrap_or_default();
        matches!(resource, "leases" | "shardmaps") && matches!(verb, "create" | "update" | "patch" | "delete")
    });
    Ok(writes.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_coordination_count() {
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
        assert_eq!(coordination_writes(&log, first.len() as u64).unwrap(), 2);
    }
}
