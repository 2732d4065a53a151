//! Pods that nobody else removes: of nodes that have vanished, and finished ones when there are too many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use shoal_objects::clock::Clock;
use shoal_runtime::manager::BoxError;
use shoal_runtime::{Component, Lister, Manager, ObjectKey, Result, Stop, Writer};
use tokio::time::Instant;

use crate::brief::Brief;
use crate::{pods, time};

const NAME: &str = "pod-garbage-collector-controller";
/// How often all pods are looked at.
const PERIOD: Duration = Duration::from_secs(20);
/// Where there are many, a look takes its time and is taken less often.
const MANY: usize = 5000;
const PERIOD_OF_MANY: Duration = Duration::from_secs(300);
/// A node must be missing for so long: its object may come back.
const QUARANTINE: Duration = Duration::from_secs(40);
/// As many finished pods are kept.
const FINISHED: usize = 12_500;

/// The collector, for this manager.
pub fn component(manager: &Manager, clock: Clock) -> Component {
    let collector = Collector {
        clock,
        pods: manager.informers().of::<Pod>().lister(),
        nodes: manager.informers().of::<Node>().lister(),
        writer: Writer::new(manager.client(), "kube-controller-manager"),
        missing: BTreeMap::new(),
    };
    Component::new(NAME, |stop| run(collector, stop)).elected()
}

async fn run(mut collector: Collector, stop: Stop) -> Result<(), BoxError> {
    loop {
        if let Err(error) = collector.look().await {
            tracing::warn!(%error, "pods that nobody needs could not be removed");
        }
        let pause = if collector.pods.len() > MANY { PERIOD_OF_MANY } else { PERIOD };
        tokio::select! {
            biased;
            () = stop.quiet() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Collector {
    clock: Clock,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    writer: Writer,
    /// Nodes that pods name and nobody has, since when.
    missing: BTreeMap<String, Instant>,
}

impl Collector {
    async fn look(&mut self) -> Result<()> {
        let all = self.pods.brief::<Brief>().list();
        let mut orphans = BTreeMap::<String, Vec<&Brief>>::new();
        for pod in &all {
            if !pod.node.is_empty() && self.nodes.meta(&ObjectKey::cluster(&pod.node)).is_none() {
                orphans.entry(pod.node.to_string()).or_default().push(pod);
            } else if pod.node.is_empty() && pod.deleting {
                self.remove(pod).await?;
            }
        }
        self.missing.retain(|node, _| orphans.contains_key(node));
        let now = Instant::now();
        for (node, pods) in orphans {
            let since = *self.missing.entry(node.clone()).or_insert(now);
            let gone = now - since >= QUARANTINE
                && self.writer.get::<Node>(&ObjectKey::cluster(&node)).await?.is_none();
            if gone {
                for pod in pods {
                    self.fail(pod).await?;
                    self.remove(pod).await?;
                }
            }
        }
        let finished: Vec<&Brief> = all.iter().map(AsRef::as_ref).filter(|pod| pod.is_finished()).collect();
        for pod in surplus(finished, FINISHED) {
            self.remove(pod).await?;
        }
        Ok(())
    }

    /// A pod whose node is gone has ended, even if nobody saw how.
    async fn fail(&self, pod: &Brief) -> Result<()> {
        let Some(pod) = self.whole(pod).filter(|pod| !pods::is_finished(pod)) else { return Ok(()) };
        let now = Timestamp::from_second(time::now(&self.clock).as_second()).unwrap_or_default();
        let fail = |pod: &mut Pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Failed".to_owned());
            let conditions = status.conditions.get_or_insert_default();
            conditions.retain(|condition| condition.type_ != "DisruptionTarget");
            conditions.push(PodCondition {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
                reason: Some("DeletionByPodGC".to_owned()),
                message: Some("PodGC: node no longer exists".to_owned()),
                last_transition_time: Some(Time(now)),
                ..PodCondition::default()
            });
        };
        self.writer.modify_status(&ObjectKey::of(&*pod), Some(&*pod), fail).await?;
        Ok(())
    }

    async fn remove(&self, pod: &Brief) -> Result<()> {
        if let Some(pod) = self.whole(pod) {
            self.writer.delete_with(&*pod, DeleteParams::default().grace_period(0)).await?;
        }
        Ok(())
    }

    /// The pod itself, unless it is gone meanwhile.
    fn whole(&self, pod: &Brief) -> Option<Arc<Pod>> {
        self.pods.get(&pod.key()).filter(|known| known.metadata.uid.as_deref() == Some(&*pod.uid))
    }
}

/// The oldest beyond `limit`.
fn surplus(mut pods: Vec<&Brief>, limit: usize) -> Vec<&Brief> {
    let count = pods.len().saturating_sub(limit);
    pods.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    pods.truncate(count);
    pods
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_finished_pods_go_first() {
        let pod = |name: &str, time: &str| -> Brief {
            serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": time}})).unwrap()
        };
        let pods = [
            pod("new", "2024-01-03T00:00:00Z"),
            pod("old", "2024-01-01T00:00:00Z"),
            pod("b", "2024-01-02T00:00:00Z"),
        ];
        let names = |limit| -> Vec<_> {
            surplus(pods.iter().collect(), limit).iter().map(|pod| pod.name.to_string()).collect()
        };
        assert_eq!(names(1), ["old", "b"]);
        assert!(names(3).is_empty());
    }
}
