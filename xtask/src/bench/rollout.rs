//! A rolling update, followed on the watch stream: at no moment may there be too many pods or too few that serve.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::cluster::{Cluster, DEPLOYMENT, deployment};
use super::lines::Lines;

/// Without an event for so long, the update has stopped.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen.
pub struct Seen {
    /// From the change to the last old pod's end.
    pub took: Duration,
    /// Events after which there were too many or too few.
    pub violations: usize,
    /// Pods that are not on their way out, at most.
    pub most: usize,
    /// Pods that serve, at least.
    pub fewest: usize,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// A pod that is not on its way out.
#[derive(Clone, Copy, Default)]
struct Known {
    ready: bool,
    new: bool,
}

/// Changes the image and follows until only new pods are left, all of them ready.
pub async fn run(cluster: &mut Cluster, replicas: usize) -> Result<Seen> {
    let (surge, down) = (replicas.div_ceil(4), replicas / 4);
    let mut watch = Lines::open(&cluster.target, "/api/v1/namespaces/bench/pods?watch=true").await?;
    let mut pods: HashMap<String, Known> = HashMap::new();
    let mut began: Option<Instant> = None;
    let mut seen = Seen { took: Duration::ZERO, violations: 0, most: 0, fewest: usize::MAX };
    loop {
        let lines = watch.more(PATIENCE).await;
        for line in lines.with_context(|| format!("the update stands still with {} pods", pods.len()))? {
            take(&mut pods, serde_json::from_slice(&line)?)?;
            if began.is_some() {
                seen.judge(&pods, replicas, surge, down);
            }
        }
        let ready = pods.values().filter(|pod| pod.ready).count();
        match began {
            // Everything that was there before is known: now the update may begin.
            None if ready == replicas && pods.len() == replicas => {
                began = Some(Instant::now());
                cluster.apply(DEPLOYMENT, &deployment(replicas, "2")).await?;
            }
            Some(start) if ready == replicas && pods.values().all(|pod| pod.new) => {
                seen.took = start.elapsed();
                return Ok(seen);
            }
            _ => {}
        }
    }
}

fn take(pods: &mut HashMap<String, Known>, event: Event) -> Result<()> {
    let Event { kind, object } = event;
    match kind.as_str() {
        "ADDED" | "MODIFIED" if object.metadata.deletion_timestamp.is_none() => {
            let ready = object.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
            let new = object.spec.containers.first().is_some_and(|container| container.image == "web:2");
            pods.insert(object.metadata.name, Known { ready, new });
        }
        "ADDED" | "MODIFIED" | "DELETED" => {
            pods.remove(&object.metadata.name);
        }
        "BOOKMARK" => {}
        kind => bail!("the watch says {kind}"),
    }
    Ok(())
}

impl Seen {
    fn judge(&mut self, pods: &HashMap<String, Known>, replicas: usize, surge: usize, down: usize) {
        let ready = pods.values().filter(|pod| pod.ready).count();
        self.most = self.most.max(pods.len());
        self.fewest = self.fewest.min(ready);
        self.violations += usize::from(pods.len() > replicas + surge || ready < replicas - down);
    }
}
