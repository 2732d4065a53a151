//! Objects, and somebody who changes them all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use shoal_objects::Entropy;
use shoal_runtime::Informers;
use shoal_runtime::cache::InformerOptions;
use shoal_runtime::monotonic::Monotonic;
use tokio::task::JoinSet;

use super::intervals::Change;
use super::replica::{CONTENT, EPOCH, GROUP, SEEN, key};
use super::trail::Micros;

/// How many requests are under way at once.
const AT_ONCE: u32 = 8;
/// A server that takes longer to answer has too much to do, or too little of the machine.
const SLOW: Micros = 500_000;
/// How many objects are created to see how long it takes.
const CREATED: u32 = 200;

/// Somebody who changes objects, and what became of it.
pub struct Load {
    client: Client,
    objects: u32,
    clock: Monotonic,
    seen: Mutex<Seen>,
    paused: AtomicBool,
    over: AtomicBool,
}

#[derive(Default)]
struct Seen {
    changes: Vec<Change>,
    /// The content that each object has or will have.
    contents: BTreeMap<u32, u64>,
    /// Objects with a change under way, or one without an answer, which may land at any time: they are left alone.
    busy: BTreeSet<u32>,
    /// The content that the server has acknowledged.
    acknowledged: BTreeMap<u32, u64>,
    /// The content that a replica has shown to have seen.
    caught_up: BTreeMap<u32, u64>,
    /// The highest token with which each object was written.
    epochs: BTreeMap<u32, u64>,
    /// Objects that were written with an old token after a new one.
    turned_back: Vec<String>,
    /// Times at which the server was slow.
    slow: Vec<(Micros, Micros)>,
}

impl Seen {
    fn acknowledge(&mut self, change: Change) {
        let known = self.acknowledged.entry(change.key).or_default();
        *known = change.content.max(*known);
        self.changes.push(change);
    }

    /// How many objects wait for a replica.
    fn behind(&self) -> usize {
        let done = |(number, content): &(&u32, &u64)| {
            self.caught_up.get(*number).is_some_and(|seen| seen >= *content)
        };
        self.acknowledged.iter().filter(|one| !done(one)).count()
    }
}

impl Load {
    /// For so many objects.
    pub fn new(client: Client, objects: u32) -> Arc<Load> {
        let clock = Monotonic::system();
        let (paused, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Load { client, objects, clock, seen: Mutex::default(), paused, over })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Micros {
        u64::try_from(self.clock.now().as_micros()).unwrap_or(u64::MAX)
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Creates the namespace and all objects.
    pub async fn create(self: &Arc<Self>) -> anyhow::Result<()> {
        let json = "application/json";
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GROUP}});
        self.send("POST", "/api/v1/namespaces", json, &namespace).await.context("creating the namespace")?;
        let mut tasks = JoinSet::new();
        for part in 0..AT_ONCE {
            let load = self.clone();
            tasks.spawn(async move {
                for number in (part..load.objects).step_by(AT_ONCE as usize) {
                    load.create_one(number).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn create_one(&self, number: u32) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("item-{number}")}, "data": {CONTENT: "1"},
        });
        let path = format!("/api/v1/namespaces/{GROUP}/configmaps");
        self.send("POST", &path, "application/json", &object).await.context("creating an object")?;
        let at = self.now();
        let mut seen = self.seen();
        seen.contents.insert(number, 1);
        seen.acknowledge(Change { key: number, content: 1, at });
        Ok(())
    }

    /// How long creating an object takes, in the middle of many.
    pub async fn creation_takes(&self, prefix: &str) -> anyhow::Result<Duration> {
        let mut times = Vec::new();
        for number in 0..CREATED {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{prefix}-{number}")}, "data": {CONTENT: "1"},
            });
            let path = format!("/api/v1/namespaces/{GROUP}/configmaps");
            let began = tokio::time::Instant::now();
            self.send("POST", &path, "application/json", &object).await.context("creating an object")?;
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Changes objects, `rate` a second, until it is told that it is over.
    pub async fn keep_changing(self: Arc<Self>, rate: u32) {
        let entropy = Entropy::system();
        let every = Duration::from_secs(1) / rate.max(1);
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tasks = JoinSet::new();
        while !self.over.load(Ordering::Relaxed) {
            ticks.tick().await;
            while tasks.try_join_next().is_some() {}
            if tasks.len() < AT_ONCE as usize * 4 && !self.paused.load(Ordering::Relaxed) {
                let number = entropy.below(u64::from(self.objects)) as u32;
                tasks.spawn(self.clone().change(number));
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Changes one object. If the server does not answer, the change may be there, but nobody is held to it.
    async fn change(self: Arc<Self>, number: u32) {
        let content = {
            let mut seen = self.seen();
            if !seen.busy.insert(number) {
                return;
            }
            let content = seen.contents.entry(number).or_default();
            *content += 1;
            *content
        };
        let path = format!("/api/v1/namespaces/{GROUP}/configmaps/item-{number}");
        let patch = json!({"data": {CONTENT: content.to_string()}});
        let sent = self.now();
        if self.send("PATCH", &path, "application/merge-patch+json", &patch).await.is_ok() {
            let at = self.now();
            let mut seen = self.seen();
            if at - sent > SLOW {
                seen.slow.push((sent, at));
            }
            seen.busy.remove(&number);
            seen.acknowledge(Change { key: number, content, at });
        }
    }

    /// Changes every object once, as fast as possible. How many there are.
    pub async fn change_all(self: &Arc<Self>) -> u32 {
        let mut tasks = JoinSet::new();
        for part in 0..AT_ONCE * 2 {
            let load = self.clone();
            tasks.spawn(async move {
                for number in (part..load.objects).step_by(AT_ONCE as usize * 2) {
                    load.clone().change(number).await;
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        self.objects
    }

    /// Tells `keep_changing` to wait, or to go on.
    pub fn pause(&self, pause: bool) {
        self.paused.store(pause, Ordering::Relaxed);
    }

    /// Tells `keep_changing` to end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Watches what is written: from version to version of an object the token must not fall.
    pub async fn watch_tokens(self: Arc<Self>) {
        let informers = Informers::new(self.client.clone(), InformerOptions::default());
        let mut subscription = informers.namespaced::<ConfigMap>(GROUP).subscribe();
        while let Some(delta) = subscription.recv().await {
            let Some(object) = delta.new.as_ref().and_then(|new| new.decode::<ConfigMap>().ok()) else {
                continue;
            };
            let (Some(number), Some(epoch)) = (key(&object.name_any()), token(&object)) else { continue };
            let mut seen = self.seen();
            if let Some(content) = object.annotations().get(SEEN).and_then(|text| text.parse().ok()) {
                seen.caught_up.insert(number, content);
            }
            let highest = seen.epochs.entry(number).or_default();
            if epoch < *highest {
                let what = format!("item-{number} was written with epoch {epoch} after {highest}");
                seen.turned_back.push(what);
            } else {
                *highest = epoch;
            }
        }
    }

    /// Waits until every object shows that its last acknowledged change was seen.
    pub async fn settled(&self, patience: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let behind = self.seen().behind();
            if behind == 0 {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("{behind} objects were not brought up to date within {patience:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All changes that the server has acknowledged.
    pub fn changes(&self) -> Vec<Change> {
        self.seen().changes.clone()
    }

    /// Times at which the server took long to answer.
    pub fn slow(&self) -> Vec<(Micros, Micros)> {
        self.seen().slow.clone()
    }

    /// Objects that were written with an old token after a new one.
    pub fn turned_back(&self) -> Vec<String> {
        self.seen().turned_back.clone()
    }
}

fn token(object: &ConfigMap) -> Option<u64> {
    object.annotations().get(EPOCH)?.parse().ok()
}
