//! What can be set about sharding in code. The sections `sharding`, `node` and `state` of the configuration say the rest.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use shoal_sharding::algorithm::ConsistentHash;
use shoal_sharding::{Algorithm, Identity, KeyFunction, Rebalancing, Registry, Settings, SlotCount, Timers};

use super::notify::{self, Listener, ShardListener};
use super::partition::{Partition, UserKey};
use super::watchdog::{AbortHook, abort_process};
use crate::cache::Encoded;
use crate::config::{self, Config};

/// The own health check.
pub(crate) type HealthCheck = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// How a manager's objects are shared among its replicas.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use shoal_runtime::{Action, Context, Controller, Manager, ShardingOptions};
///
/// # let client = shoal_testkit::Cluster::start().await.client();
/// // Start this program as often as you like: the replicas find each other by their Leases and share the objects.
/// let sharing = ShardingOptions::new().slots(64).name("replica-0");
/// let mut manager = Manager::builder("maps").client(client).embedded().sharded(sharing).build().await?;
/// manager.add(Controller::of::<ConfigMap>("maps").reconcile(|context: Context<ConfigMap>| async move {
///     // A fencing token for systems outside of the cluster.
///     let _epoch = context.shard().map(|shard| shard.epoch);
///     Ok(Action::done())
/// }));
/// let sharding = manager.sharding().ok_or("it is sharded")?.clone();
/// let stopper = manager.stopper();
/// let running = tokio::spawn(manager.run());
/// let mine = || async { (sharding.active().iter().map(|(slots, _)| slots.len()).sum::<u32>() == 64).then_some(()) };
/// shoal_testkit::eventually("alone, it has all slots", mine).await;
/// stopper.stop();
/// running.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ShardingOptions {
    pub(crate) group: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    address: String,
    revision: String,
    weight: u32,
    slots: u32,
    function: KeyFunction,
    user: Option<UserKey>,
    algorithm: Option<String>,
    own_algorithms: Vec<Arc<dyn Algorithm>>,
    clock_drift: f64,
    warm_timeout: Duration,
    move_budget: u32,
    replacement_grace: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) leave_timeout: Duration,
    pub(crate) notify_timeout: Duration,
    pub(crate) listener: Option<Listener>,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) abort: AbortHook,
    pub(crate) balance_by_load: bool,
    children_by_label: bool,
    pub(crate) install_crd: bool,
}

impl Default for ShardingOptions {
    fn default() -> ShardingOptions {
        let (timers, rebalancing) = (Timers::default(), Rebalancing::default());
        ShardingOptions {
            group: None,
            namespace: None,
            name: None,
            id: None,
            address: String::new(),
            revision: String::new(),
            weight: 100,
            slots: SlotCount::default().get(),
            function: KeyFunction::Uid,
            user: None,
            algorithm: None,
            own_algorithms: Vec::new(),
            clock_drift: timers.clock_drift,
            warm_timeout: timers.warm_timeout,
            move_budget: rebalancing.budget,
            replacement_grace: rebalancing.replacement_grace,
            drain_timeout: Duration::from_secs(30),
            leave_timeout: Duration::from_secs(15),
            notify_timeout: Duration::from_secs(10),
            listener: None,
            health: None,
            abort: abort_process(),
            balance_by_load: false,
            children_by_label: false,
            install_crd: true,
        }
    }
}

impl ShardingOptions {
    /// 1024 slots, by uid, in the group that is called as the manager.
    pub fn new() -> ShardingOptions {
        ShardingOptions::default()
    }

    /// Name of the group and of its ShardMap. Default: the manager's name.
    #[must_use]
    pub fn group(mut self, name: &str) -> ShardingOptions {
        self.group = Some(name.to_owned());
        self
    }

    /// Where Leases and ShardMap lie. Default: the client's namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> ShardingOptions {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Name of this replica, for people; each life adds a random part. Default: the host's name, in a cluster the pod's.
    #[must_use]
    pub fn name(mut self, name: &str) -> ShardingOptions {
        self.name = Some(name.to_owned());
        self
    }

    /// The whole id, without a random part. It must never have been used before, and lives once.
    #[must_use]
    pub fn fixed_id(mut self, id: &str) -> ShardingOptions {
        self.id = Some(id.to_owned());
        self
    }

    /// Where this replica's metrics are served, for people.
    #[must_use]
    pub fn address(mut self, address: &str) -> ShardingOptions {
        self.address = address.to_owned();
        self
    }

    /// The template that this replica was made from, such as `pod-template-hash`: while two are alive, a rolling update is
    /// under way and each slot moves once.
    #[must_use]
    pub fn revision(mut self, revision: &str) -> ShardingOptions {
        self.revision = revision.to_owned();
        self
    }

    /// Share of the slots: 100 is one, 0 takes none.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> ShardingOptions {
        self.weight = weight;
        self
    }

    /// How many slots, a power of two. Fixed for the life of the group.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> ShardingOptions {
        self.slots = slots;
        self
    }

    /// Which immutable field decides an object's slot.
    #[must_use]
    pub fn key(mut self, function: KeyFunction) -> ShardingOptions {
        self.function = function;
        self.user = None;
        self
    }

    /// A key of one's own. It must depend on fields that never change, and on nothing else; raise `version` whenever it gives
    /// other results.
    #[must_use]
    pub fn user_key(
        mut self,
        id: &str,
        version: u32,
        key: impl Fn(&Encoded) -> String + Send + Sync + 'static,
    ) -> ShardingOptions {
        self.function = KeyFunction::User { id: id.to_owned(), version };
        self.user = Some(Arc::new(key));
        self
    }

    /// Uses the algorithm of this name instead of `sharding.algorithm`.
    #[must_use]
    pub fn algorithm(mut self, name: &str) -> ShardingOptions {
        self.algorithm = Some(name.to_owned());
        self
    }

    /// Makes an algorithm known, for `sharding.algorithm` to name it.
    #[must_use]
    pub fn register(mut self, algorithm: impl Algorithm + 'static) -> ShardingOptions {
        self.own_algorithms.push(Arc::new(algorithm));
        self
    }

    /// By how much one replica's clock may run faster than another's. Default 0.01.
    #[must_use]
    pub fn clock_drift(mut self, drift: f64) -> ShardingOptions {
        self.clock_drift = drift;
        self
    }

    /// A move is given up when the next owner is not ready by then. Default 30 s.
    #[must_use]
    pub fn warm_timeout(mut self, limit: Duration) -> ShardingOptions {
        self.warm_timeout = limit;
        self
    }

    /// How many slots may be on the move at once for balance alone.
    #[must_use]
    pub fn move_budget(mut self, slots: u32) -> ShardingOptions {
        self.move_budget = slots;
        self
    }

    /// How long a newcomer of another revision waits for the replica that it replaces. Default 60 s.
    #[must_use]
    pub fn replacement_grace(mut self, grace: Duration) -> ShardingOptions {
        self.replacement_grace = grace;
        self
    }

    /// How long a handover waits for reconciles in flight before it cuts them off. Default 30 s.
    #[must_use]
    pub fn drain_timeout(mut self, limit: Duration) -> ShardingOptions {
        self.drain_timeout = limit;
        self
    }

    /// How long a stop waits for others to take the slots, one by one, before it lets go of all. Default 15 s.
    #[must_use]
    pub fn leave_timeout(mut self, limit: Duration) -> ShardingOptions {
        self.leave_timeout = limit;
        self
    }

    /// Is told which slots came and went. Each call may take `limit`.
    #[must_use]
    pub fn listener(mut self, listener: impl ShardListener, limit: Duration) -> ShardingOptions {
        self.listener = Some(notify::erased(listener));
        self.notify_timeout = limit;
        self
    }

    /// Whether this replica is well, asked every `node.healthCheckInterval`. An answer that takes longer than
    /// `node.healthCheckTimeout` counts as no. Slots of a replica that is unwell go elsewhere.
    #[must_use]
    pub fn health<F: Future<Output = bool> + Send + 'static>(
        mut self,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> ShardingOptions {
        self.health = Some(Arc::new(move || check().boxed()));
        self
    }

    /// What ends the process when work does not stop in time. Default: abort.
    #[must_use]
    pub fn abort_hook(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> ShardingOptions {
        self.abort = Arc::new(hook);
        self
    }

    /// Balances by the measured time of reconciles, not only by the number of slots. Default false.
    #[must_use]
    pub fn balance_by_load(mut self, on: bool) -> ShardingOptions {
        self.balance_by_load = on;
        self
    }

    /// Asks the server for owned objects by the slot label that writers set, so that each replica gets only its share. Owned
    /// objects without that label, say from before the controller was sharded, are not seen then. Default false: the
    /// share is taken here.
    #[must_use]
    pub fn children_by_label(mut self, on: bool) -> ShardingOptions {
        self.children_by_label = on;
        self
    }

    /// Whether the kind ShardMap is created where it is missing. Default true.
    #[must_use]
    pub fn install_crd(mut self, on: bool) -> ShardingOptions {
        self.install_crd = on;
        self
    }

    /// Everything that the core is told, checked.
    pub(crate) fn settings(
        &self,
        manager: &str,
        host: &str,
        config: &Config,
    ) -> Result<Settings, config::Error> {
        let group = self.group.clone().unwrap_or_else(|| manager.to_owned());
        let name = self.name.clone().unwrap_or_else(|| host.to_lowercase());
        let mut problems = Vec::new();
        if !is_label(&group) {
            problems.push(format!(
                "sharding.group: {group:?} cannot name a ShardMap and a label: use at most 50 lower-case letters, digits and -"
            ));
        }
        if !is_name(&name) {
            problems.push(format!(
                "node.name: {name:?} cannot name a Lease: use at most 200 lower-case letters, digits, - and ."
            ));
        }
        if self.function == KeyFunction::RootOwner {
            problems.push(
                "sharding.key: root-owner cannot be safe, because the topmost owner does not stand in the object and can change: children go \
                 with their owner anyway; use namespace to keep more together, uid, namespaced-name, or a key of your own \
                 (docs/sharding.md says why)"
                    .to_owned(),
            );
        }
        if self.user.is_none() && matches!(self.function, KeyFunction::User { .. }) {
            problems.push("sharding.key: a key of your own needs its function: use user_key".to_owned());
        }
        let slots = SlotCount::new(self.slots).unwrap_or_else(|bad| {
            problems.push(format!("sharding.slots: {bad}"));
            SlotCount::default()
        });
        let algorithm = self.algorithm.clone().unwrap_or_else(|| config.sharding.algorithm.clone());
        let identity = Identity {
            group,
            controller: manager.to_owned(),
            slots,
            key_function: self.function.clone(),
            algorithm,
        };
        let settings = Settings {
            identity: Arc::new(identity),
            name: name.into(),
            address: self.address.as_str().into(),
            revision: self.revision.as_str().into(),
            weight: self.weight,
            timers: Timers {
                lease_duration: config.state.lease_duration,
                renew_deadline: config.state.renew_deadline,
                retry_period: config.state.retry_period,
                clock_drift: self.clock_drift,
                sync_interval: config.state.sync_interval,
                health_check_interval: config.node.health_check_interval,
                health_check_timeout: config.node.health_check_timeout,
                node_timeout: config.node.node_timeout,
                warm_timeout: self.warm_timeout,
            },
            rebalancing: Rebalancing {
                threshold: config.sharding.rebalance_threshold,
                interval: config.sharding.rebalance_interval,
                budget: self.move_budget,
                replacement_grace: self.replacement_grace,
            },
        };
        problems.extend(settings.validate().err().into_iter().flatten().map(|bad| bad.to_string()));
        problems.extend(self.find_algorithm(&settings, config).err());
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(config::Error { file: "the configuration".to_owned(), problems })
        }
    }

    /// The algorithm that the settings name.
    pub(crate) fn find_algorithm(
        &self,
        settings: &Settings,
        config: &Config,
    ) -> Result<Arc<dyn Algorithm>, String> {
        if settings.identity.algorithm == "consistent-hash" {
            return Ok(Arc::new(ConsistentHash { virtual_nodes: config.sharding.virtual_nodes }));
        }
        let mut registry = Registry::default();
        for algorithm in &self.own_algorithms {
            registry.register(algorithm.clone()).map_err(|bad| format!("sharding.algorithm: {bad}"))?;
        }
        registry.get(&settings.identity.algorithm).map_err(|bad| bad.to_string())
    }

    pub(crate) fn partition(&self, settings: &Settings) -> Partition {
        Partition {
            slots: settings.identity.slots,
            function: self.function.clone(),
            user: self.user.clone(),
            label: Partition::label_of(&settings.identity.group),
            children_by_label: self.children_by_label,
        }
    }
}

/// Can be the name of an object and of a label.
fn is_label(text: &str) -> bool {
    text.len() <= 50 && !text.contains('.') && is_name(text)
}

/// Can be the name of an object, with room for a random part.
fn is_name(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 200
        && text.chars().all(|c| fine(c) || c == '-' || c == '.')
        && text.starts_with(fine)
        && text.ends_with(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(options: &ShardingOptions, yaml: &str) -> String {
        let config = Config::parse(yaml, &|_| None).unwrap();
        options.settings("web", "host-1", &config).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn the_defaults_can_be_used() {
        assert_eq!(problems(&ShardingOptions::new(), ""), "");
        assert_eq!(problems(&ShardingOptions::new(), "sharding: {algorithm: consistent-hash}"), "");
    }

    #[test]
    fn what_cannot_be_used_is_named_by_its_key() {
        let new = ShardingOptions::new;
        for (options, yaml, key) in [
            (new().slots(1000), "", "sharding.slots"),
            (new().group("Web_App"), "", "sharding.group"),
            (new().name("a b"), "", "node.name"),
            (new().key(KeyFunction::RootOwner), "", "sharding.key"),
            (new().clock_drift(2.0), "", "state.clockDrift"),
            (new().move_budget(0), "", "sharding.moveBudget"),
            (new(), "sharding: {algorithm: stiky}", "sharding.algorithm"),
            (new(), "state: {leaseDuration: 60s, renewDeadline: 10s}", "node.nodeTimeout"),
        ] {
            let told = problems(&options, yaml);
            assert!(told.contains(key), "{key}: {told}");
        }
    }
}
