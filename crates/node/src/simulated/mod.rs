//! Plays any number of nodes: Node objects, their leases, and pods that run in name only.
//!
//! All nodes are one controller of pods and one task of heartbeats. A pod costs one write for each step of its life.

pub mod addresses;
mod heartbeat;
pub mod node;
pub mod options;
pub mod pod;
pub mod status;
pub mod usage;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::Clock;
use shoal_runtime::client::send_unread;
use shoal_runtime::reconcile::class_of;
use shoal_runtime::{
    Action, Component, Context, Controller, Error, Lister, Manager, ObjectKey, Result, worker,
};
use tokio::time::Instant;

pub use options::Options;

use addresses::Pool;
use heartbeat::{Heart, merge_patch};
use pod::{Stage, Step};

/// Pods that are worked on at one time: their writes wait for the server, not for a processor.
const AT_ONCE: usize = 64;
/// Until pods of a node that counts as not ready are looked at again.
const NODE_PAUSE: Duration = Duration::from_secs(1);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    options: Options,
    addresses: Mutex<Addresses>,
    /// Since when pods are in a stage that takes time.
    since: Mutex<HashMap<ObjectKey, (Stage, Instant)>>,
}

#[derive(Default)]
struct Addresses {
    pool: Pool,
    /// Pods that had addresses before this process began.
    known: bool,
}

/// Adds the nodes to a manager. They count as ready once all are registered.
pub fn add(manager: &mut Manager, options: Options) {
    let registered = Arc::new(AtomicBool::new(false));
    let (tell, asked) = (registered.clone(), registered);
    let heart = Heart {
        client: manager.client(),
        clock: manager.clock().clone(),
        options: options.clone(),
        nodes: manager.informers().of::<Node>().lister(),
    };
    manager.add(
        Component::new("simulated-nodes", move |stop| {
            heart.run(stop, move || tell.store(true, Ordering::Release))
        })
        .ready(move || asked.load(Ordering::Acquire)),
    );
    let clock = manager.clock().clone();
    manager.add(controller(clock, options));
}

/// The controller of the pods on all nodes.
pub fn controller(clock: Clock, options: Options) -> Controller {
    let shared = Arc::new(Shared { clock, options, addresses: Mutex::default(), since: Mutex::default() });
    Controller::of::<Pod>("simulated-kubelet")
        .field_manager("kubelet")
        .reads::<Node>()
        .worker_settings(worker::Settings { max_concurrent: AT_ONCE, ..worker::Settings::default() })
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

async fn reconcile(shared: Arc<Shared>, context: Context<Pod>) -> Result<Action> {
    let Some(pod) = context.object() else {
        shared.since.lock().remove(context.key());
        if let Some(last) = context.last_state()
            && let Some(address) = address_of(&last)
        {
            shared.addresses.lock().pool.give_back(address);
        }
        return Ok(Action::done());
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let Some(index) = shared.options.index(node) else { return Ok(Action::done()) };
    let nodes = context.lister::<Node>();
    let key = ObjectKey::cluster(node);
    if is_dead(&nodes, &key) {
        return Ok(Action::after(NODE_PAUSE));
    }
    let stage = pod::stage(&pod);
    if pod::was_doubted(&pod, stage) && !is_ready(&nodes, &key) {
        // Whoever says that the node is not ready would say the same of the pod again.
        return Ok(Action::after(NODE_PAUSE));
    }
    let since = shared.since(context.key(), &pod, stage);
    let address = shared.address(&context, &pod, stage, index);
    match pod::next(&pod, &shared.options, since, address.pair(), shared.clock.now()) {
        Step::Nothing => {
            address.unused(&shared);
            Ok(Action::done())
        }
        Step::Wait(time) => {
            address.unused(&shared);
            Ok(Action::after(time))
        }
        Step::Write(patch) => {
            let result = write_status(&context, &patch).await;
            if result.is_err() || patch["status"].get("podIP").is_none() {
                address.unused(&shared);
            }
            // What follows comes with the event of this write.
            settled(result)
        }
        Step::Remove(status) => {
            if let Some(patch) = status {
                write_status(&context, &patch).await.or_else(gone)?;
            }
            settled(remove(&context, &pod).await)
        }
    }
}

/// A pod that is gone, or replaced by another of its name, needs nothing any more.
fn settled(result: Result<(), kube::Error>) -> Result<Action> {
    result.or_else(gone).map(|()| Action::done())
}

fn gone(error: kube::Error) -> Result<()> {
    match &error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
        _ => Err(Error {
            class: class_of(&error),
            action: "cannot tell of a pod".into(),
            source: Some(error.into()),
        }),
    }
}

fn path(key: &ObjectKey) -> String {
    format!("{}/{}", Pod::url_path(&(), Some(&key.namespace)), key.name)
}

async fn write_status(context: &Context<Pod>, patch: &Value) -> Result<(), kube::Error> {
    let path = format!("{}/status?fieldManager=kubelet", path(context.key()));
    let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
    let request = merge_patch(&path, "application/strategic-merge-patch+json", body)?;
    send_unread(context.client(), request).await
}

async fn remove(context: &Context<Pod>, pod: &Pod) -> Result<(), kube::Error> {
    let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}).to_string();
    let request = Request::delete(path(context.key()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.into_bytes())
        .map_err(kube::Error::HttpError)?;
    send_unread(context.client(), request).await
}

/// Whether someone has let the machine die.
fn is_dead(nodes: &Lister<Node>, node: &ObjectKey) -> bool {
    nodes.meta(node).is_some_and(|node| node.label(options::DEAD).is_some())
}

/// Whether the cluster believes that the node is there.
fn is_ready(nodes: &Lister<Node>, node: &ObjectKey) -> bool {
    let node = nodes.get(node);
    let conditions = node.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|told| told.type_ == "Ready" && told.status == "True")
}

fn address_of(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

/// The pod's address and its node's; given back when it turns out that the pod does not need it.
enum Address {
    None,
    Had(Ipv4Addr, Ipv4Addr),
    Taken(Ipv4Addr, Ipv4Addr),
}

impl Address {
    fn pair(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        match self {
            Address::None => None,
            Address::Had(own, node) | Address::Taken(own, node) => Some((*own, *node)),
        }
    }

    fn unused(&self, shared: &Shared) {
        if let Address::Taken(own, _) = self {
            shared.addresses.lock().pool.give_back(&own.to_string());
        }
    }
}

impl Shared {
    /// How long the pod has been in its stage, as far as this process has seen.
    fn since(&self, key: &ObjectKey, pod: &Pod, stage: Stage) -> Duration {
        let lasts = pod::stays(pod, stage, &self.options).is_some_and(|time| !time.is_zero());
        let mut all = self.since.lock();
        if !lasts {
            if !all.is_empty() {
                all.remove(key);
            }
            return Duration::ZERO;
        }
        let now = Instant::now();
        match all.get(key) {
            Some((known, since)) if *known == stage => now.duration_since(*since),
            _ => {
                all.insert(key.clone(), (stage, now));
                Duration::ZERO
            }
        }
    }

    fn address(&self, context: &Context<Pod>, pod: &Pod, stage: Stage, index: u32) -> Address {
        let node = addresses::of_node(index);
        if let Some(had) = address_of(pod) {
            return had.parse().map_or(Address::None, |own| Address::Had(own, node));
        }
        if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            return Address::Had(node, node);
        }
        // Only pods that are about to start need one.
        if !matches!(stage, Stage::New | Stage::Creating) || pod.metadata.deletion_timestamp.is_some() {
            return Address::None;
        }
        let mut addresses = self.addresses.lock();
        if !addresses.known {
            addresses.known = true;
            for pod in context.lister::<Pod>().list() {
                if let Some(address) = address_of(&pod) {
                    addresses.pool.reserve(address);
                }
            }
        }
        addresses.pool.take().map_or(Address::None, |own| Address::Taken(own, node))
    }
}
