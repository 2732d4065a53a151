//! Rolling updates, judged at every single event of the pods' watch.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use shoal_controllers::{deployment, replicaset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use tokio::sync::watch;

use crate::cluster::{api, create, patch, start, template};

const REPLICAS: usize = 100;
/// Of `maxSurge: 10`.
const MOST: usize = 110;
/// Of `maxUnavailable: 15`.
const FEWEST: usize = 85;

/// The pods that there are, and what went wrong.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Names of pods that nobody has asked to go, and whether they serve.
    pods: BTreeMap<String, bool>,
    events: usize,
    wrong: Vec<String>,
}

impl Seen {
    fn take(&mut self, pod: &Pod, is_gone: bool) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if is_gone || pod.metadata.deletion_timestamp.is_some() {
            self.pods.remove(&name);
        } else {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
            let serves =
                conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True");
            self.pods.insert(name, serves);
        }
    }

    fn judge(&mut self) {
        self.events += 1;
        let (all, serving) = (self.pods.len(), self.pods.values().filter(|serves| **serves).count());
        if all > MOST || serving < FEWEST {
            self.wrong.push(format!("event {}: {all} pods, {serving} of them serve", self.events));
        }
    }
}

/// Follows all pods from now on.
async fn follow(client: &Client) -> watch::Receiver<Seen> {
    let pods: Api<Pod> = api(client);
    let list = pods.list(&ListParams::default()).await.unwrap();
    let mut seen = Seen::default();
    list.items.iter().for_each(|pod| seen.take(pod, false));
    let mut version = list.metadata.resource_version.unwrap();
    let (tell, told) = watch::channel(seen);
    tokio::spawn(async move {
        loop {
            let mut events = Box::pin(pods.watch(&WatchParams::default(), &version).await.unwrap());
            while let Some(event) = events.try_next().await.unwrap() {
                let (pod, is_gone) = match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                    WatchEvent::Deleted(pod) => (pod, true),
                    _ => continue,
                };
                version = pod.metadata.resource_version.clone().unwrap();
                tell.send_modify(|seen| {
                    seen.take(&pod, is_gone);
                    seen.judge();
                });
            }
        }
    });
    told
}

/// A Deployment whose pods all serve.
async fn deploy(client: &Client) -> Api<Deployment> {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 10, "maxUnavailable": 15}});
    let spec = json!({"replicas": REPLICAS, "strategy": strategy,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v0")});
    create::<Deployment>(client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let deployments = api::<Deployment>(client);
    until(&deployments, "all serve", |web| web["status"]["availableReplicas"] == REPLICAS).await;
    deployments
}

/// Waits for longer than others do: a hundred pods take their time on a busy machine.
async fn until(deployments: &Api<Deployment>, what: &str, holds: impl Fn(&Value) -> bool) {
    for _ in 0..1200 {
        if holds(&serde_json::to_value(deployments.get("web").await.unwrap()).unwrap()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("still not: {what}");
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn is_rolled_out(web: &Value) -> bool {
    let status = &web["status"];
    status["observedGeneration"] == web["metadata"]["generation"]
        && ["updatedReplicas", "availableReplicas", "replicas"].iter().all(|key| status[*key] == REPLICAS)
}

async fn cluster() -> Client {
    let (clock, entropy) = (Clock::system(), Entropy::system());
    start(vec![deployment::controller(clock.clone()), replicaset::controller(clock, entropy)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_no_event_of_a_rolling_update_are_there_too_many_pods_or_too_few_that_serve() {
    let client = cluster().await;
    let deployments = deploy(&client).await;
    let seen = follow(&client).await;
    patch(&deployments, "web", image("v1")).await;
    until(&deployments, "rolled out", is_rolled_out).await;
    let seen = seen.borrow().clone();
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    assert!(seen.events >= 2 * REPLICAS, "{} events", seen.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_in_the_middle_of_updates_break_no_limit_either() {
    let client = cluster().await;
    let deployments = deploy(&client).await;
    let mut seen = follow(&client).await;
    let chance = Entropy::seeded(3);
    for _ in 0..12 {
        // Pods of the image `wait` never serve; some edits go back to where it came from.
        let edit = match chance.below(8) {
            0 => json!({"spec": {"paused": true}}),
            1 => json!({"spec": {"paused": false}}),
            2 => image("wait"),
            other => image(&format!("v{}", other % 4)),
        };
        patch(&deployments, "web", edit).await;
        let enough = seen.borrow().events + chance.below(120) as usize;
        // An update that is stuck has no more events.
        let _ = tokio::time::timeout(Duration::from_millis(500), seen.wait_for(|seen| seen.events >= enough))
            .await;
    }
    patch(&deployments, "web", json!({"spec": {"paused": false}})).await;
    patch(&deployments, "web", image("last")).await;
    until(&deployments, "rolled out", is_rolled_out).await;
    let seen = seen.borrow().clone();
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
}
