//! Replicas of one controller of ConfigMaps.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use shoal_objects::Entropy;
use shoal_runtime::config::Config;
use shoal_runtime::manager::{self, Stopper};
use shoal_runtime::shard::{self, Sharding, ShardingOptions};
use shoal_runtime::{Action, Context, Controller, Manager};
use shoal_testkit::{Abilities, Cluster, FaultLayer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::intervals::Intervals;

/// Time that a reconcile takes.
pub const SERVICE: Duration = Duration::from_millis(20);
/// Slots: few, so that whole tables can be looked at.
pub const SLOTS: u32 = 32;

/// A cluster and everything that was done in it.
pub struct World {
    pub cluster: Cluster,
    pub intervals: Intervals,
    /// What replicas do by chance.
    chance: Entropy,
}

/// One manager.
pub struct Replica {
    pub sharding: Sharding,
    pub faults: FaultLayer,
    pub stopper: Stopper,
    pub task: JoinHandle<Result<(), manager::Error>>,
}

pub fn options(name: &str) -> ShardingOptions {
    ShardingOptions::new().slots(SLOTS).name(name).leave_timeout(Duration::from_secs(10))
}

pub fn config() -> Config {
    let yaml = "state: {leaseDuration: 10s, renewDeadline: 6s, retryPeriod: 1s, syncInterval: 5s}\n\
                node: {healthCheckInterval: 2s, healthCheckTimeout: 1s, nodeTimeout: 20s}\n\
                sharding: {rebalanceInterval: 2s}\nworkers: 64";
    Config::parse(yaml, &|_| None).unwrap()
}

impl World {
    pub async fn new() -> World {
        World::with(Abilities::default()).await
    }

    /// Another world each time; when a test fails, its output says how to have the same one again.
    pub async fn with(abilities: Abilities) -> World {
        let told = std::env::var("SHARDING_SEED").ok().and_then(|text| text.parse().ok());
        World::seeded(told.unwrap_or_else(|| Entropy::system().below(1 << 32)), abilities).await
    }

    pub async fn seeded(seed: u64, abilities: Abilities) -> World {
        println!("SHARDING_SEED={seed} repeats this");
        let cluster = Cluster::builder().seed(7).abilities(abilities).start().await;
        World { cluster, intervals: Intervals::new(), chance: Entropy::seeded(seed) }
    }

    /// Starts a replica that writes down what it does.
    pub async fn replica(&self, name: &str) -> Replica {
        self.replica_with(options(name), self.controller(name)).await
    }

    /// A controller that writes down what it does.
    pub fn controller(&self, name: &str) -> Controller {
        self.controller_that(name, Action::done())
    }

    /// One that looks at each object again and again.
    pub fn repeating(&self, name: &str, after: Duration) -> Controller {
        self.controller_that(name, Action::RequeueAfter(after))
    }

    fn controller_that(&self, name: &str, then: Action) -> Controller {
        let (intervals, name) = (self.intervals.clone(), name.to_owned());
        Controller::of::<ConfigMap>("maps").with_labels("app=test").reconcile(
            move |context: Context<ConfigMap>| {
                let (intervals, name) = (intervals.clone(), name.clone());
                async move {
                    let shard = context.shard().map(|shard| (shard.slot, shard.epoch)).unwrap();
                    let value = context.object().and_then(|map| map.data.clone()?.remove("v"));
                    // The uid is the identity: another object may get the name.
                    let object = context.object().and_then(|map| map.uid()).unwrap_or_default();
                    let key = format!("{}/{object}", context.key().name);
                    let _open = intervals.begin(&key, &name, shard, value.as_deref().unwrap_or("gone"));
                    tokio::time::sleep(SERVICE).await;
                    Ok(then)
                }
            },
        )
    }

    pub async fn replica_with(&self, options: ShardingOptions, controller: Controller) -> Replica {
        self.try_replica(options, controller, FaultLayer::new(1)).await.unwrap()
    }

    pub async fn try_replica(
        &self,
        options: ShardingOptions,
        controller: Controller,
        faults: FaultLayer,
    ) -> Result<Replica, manager::Error> {
        let chance = Entropy::seeded(self.chance.below(u64::MAX));
        let builder = Manager::builder("web").client(self.cluster.client_through(&faults)).config(config());
        Replica::start(builder.entropy(chance).embedded().sharded(options), controller, faults).await
    }

    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client())
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::default_namespaced(self.client())
    }

    pub fn shard_maps(&self) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client(), &shard::resource())
    }

    pub async fn create(&self, count: usize) {
        for index in 0..count {
            self.create_one(&format!("map-{index}")).await;
        }
    }

    pub async fn create_one(&self, name: &str) {
        let map = json!({"metadata": {"name": name, "labels": {"app": "test"}}, "data": {"v": "0"}});
        self.maps().create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }

    pub async fn set(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"data": {"v": value}}));
        self.maps().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn set_all(&self, count: usize, value: &str) {
        for index in 0..count {
            self.set(&format!("map-{index}"), value).await;
        }
    }

    /// Whether every object was last worked on with this value.
    pub fn all_at(&self, count: usize, value: &str) -> bool {
        let last = self.intervals.last_by_key();
        let there = last.values().filter(|interval| interval.value == value && interval.end.is_some());
        there.count() >= count
    }

    pub async fn record(&self) -> Value {
        serde_json::to_value(self.shard_maps().get("web").await.unwrap()).unwrap()
    }

    pub async fn live_leases(&self) -> Vec<Lease> {
        let all = self.leases().list(&ListParams::default()).await.unwrap();
        let holds = |lease: &Lease| {
            lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).is_some_and(|id| !id.is_empty())
        };
        all.items.into_iter().filter(|lease| holds(lease)).collect()
    }
}

impl Replica {
    pub async fn start(
        builder: manager::Builder,
        controller: Controller,
        faults: FaultLayer,
    ) -> Result<Replica, manager::Error> {
        let mut manager = builder.build().await?;
        manager.add(controller);
        let sharding = manager.sharding().unwrap().clone();
        let stopper = manager.stopper();
        Ok(Replica { sharding, faults, stopper, task: tokio::spawn(manager.run()) })
    }

    pub fn slots(&self) -> u32 {
        self.sharding.active().iter().map(|(slots, _)| slots.len()).sum()
    }

    /// Stops in order.
    pub async fn stop(self) {
        self.stopper.stop();
        self.task.await.unwrap().unwrap();
    }

    /// Is gone without a word.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Nothing it sends arrives and nothing comes back.
    pub fn cut_off(&self) {
        self.faults.add(shoal_testkit::Rule::all(shoal_testkit::Effect::DropBefore));
        self.faults.disconnect();
    }

    pub fn reconnect(&self) {
        self.faults.clear();
    }
}

/// Waits until something is true; how long that took.
pub async fn within(seconds: u64, what: &str, check: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(seconds), "after {seconds} s still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// Waits until the replicas share all slots evenly.
pub async fn settled(replicas: &[&Replica]) {
    let share = |replica: &&Replica| replica.slots();
    let even = || {
        let shares: Vec<u32> = replicas.iter().map(share).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        shares.iter().sum::<u32>() == SLOTS && most - least <= 1
    };
    within(120, "slots are shared evenly", even).await;
}

/// Something that tests change and look at.
pub type Notes = Arc<parking_lot::Mutex<Vec<String>>>;
