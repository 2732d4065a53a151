//! Nodes that fall silent, and nodes that say they are not well: conditions, taints, and the pods on them.

pub mod plan;
pub mod zones;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use shoal_objects::clock::Clock;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};
use tokio::time::Instant;

use crate::{brief, pods, time};
use plan::Health;
use zones::{Counts, Turns};

/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";
/// A node that was silent for so long is not there.
const GRACE: Duration = Duration::from_secs(50);
/// A node that has never said anything has a little longer.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Zones recover while nobody tells: asked again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// The last sign of life of a node, and when it was seen here. Clocks of nodes are not trusted.
#[derive(Clone, PartialEq)]
struct Seen {
    sign: (Option<Timestamp>, Option<Timestamp>),
    uid: Option<String>,
    at: Instant,
}

struct Shared {
    clock: Clock,
    start: Instant,
    seen: Mutex<HashMap<ObjectKey, Seen>>,
    turns: Mutex<Turns>,
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared =
        Arc::new(Shared { clock, start: Instant::now(), seen: Mutex::default(), turns: Mutex::default() });
    Controller::of::<Node>("node-controller")
        .field_manager("kube-controller-manager")
        .watches::<Lease>(node_of)
        .reads::<Pod>()
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn node_of(lease: &Lease, _: &Listers) -> Vec<ObjectKey> {
    let ours = lease.metadata.namespace.as_deref() == Some(LEASES);
    lease.metadata.name.as_deref().filter(|_| ours).map(ObjectKey::cluster).into_iter().collect()
}

async fn reconcile(shared: Arc<Shared>, context: Context<Node>) -> Result<Action> {
    let Some(node) = context.object().filter(|node| node.metadata.deletion_timestamp.is_none()) else {
        shared.seen.lock().remove(context.key());
        return Ok(Action::done());
    };
    let mut node = (*node).clone();
    let left = time_left(&shared, &context, &node);
    let mut again = left;
    let now = whole_seconds(time::now(&shared.clock));
    if left.is_none()
        && let Some(conditions) = plan::silent(&node, now)
    {
        let was_ready = plan::health(&node) == Health::Ready;
        let tell = |node: &mut Node| {
            node.status.get_or_insert_default().conditions = Some(conditions.clone());
        };
        match context.writer().modify_status(context.key(), Some(&node), tell).await? {
            Some(now) => node = now,
            None => return Ok(Action::done()),
        }
        if was_ready {
            let name = &context.key().name;
            context.recorder().normal(
                &node,
                "NodeNotReady",
                format!("Node {name} status is now: NodeNotReady"),
            );
        }
    }
    let (evict, later) = may_evict(&shared, &context, &node);
    again = [again, later].into_iter().flatten().min();
    // From the node at hand, which after a conflict is another than the one in the cache.
    let set = |node: &mut Node| {
        let taints = plan::taints(node, evict, now);
        let spec = node.spec.get_or_insert_with(NodeSpec::default);
        if spec.taints.as_deref().unwrap_or_default() != taints {
            spec.taints = (!taints.is_empty()).then_some(taints);
        }
    };
    context.writer().modify(context.key(), Some(&node), set).await?;
    if plan::health(&node) != Health::Ready {
        mark_pods_not_ready(&shared, &context).await?;
    }
    Ok(again.map_or(Action::done(), Action::after))
}

/// How long the node may go on being silent; nothing when it has been for too long.
fn time_left(shared: &Shared, context: &Context<Node>, node: &Node) -> Option<Duration> {
    let lease = context.lister::<Lease>().get(&ObjectKey::new(LEASES, &context.key().name));
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
    let heartbeat = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .and_then(|conditions| conditions.iter().find(|condition| condition.type_ == "Ready"))
        // What was written here in the node's place is no sign of life.
        .filter(|condition| condition.status != "Unknown")
        .and_then(|condition| condition.last_heartbeat_time.as_ref().map(|time| time.0));
    let never = renewed.is_none() && heartbeat.is_none();
    let now = Instant::now();
    let mut all = shared.seen.lock();
    let seen = all.entry(context.key().clone()).or_insert_with(|| Seen {
        sign: (renewed, heartbeat),
        uid: node.metadata.uid.clone(),
        at: now,
    });
    // Another time is a sign of life, also an earlier one: the node's clock may have been set back.
    let lives =
        renewed.is_some() && renewed != seen.sign.0 || heartbeat.is_some() && heartbeat != seen.sign.1;
    if lives || seen.uid != node.metadata.uid {
        *seen = Seen {
            sign: (renewed.or(seen.sign.0), heartbeat.or(seen.sign.1)),
            uid: node.metadata.uid.clone(),
            at: now,
        };
    }
    let grace = if never { STARTUP_GRACE } else { GRACE };
    grace.checked_sub(now - seen.at).filter(|left| !left.is_zero())
}

/// Whether pods may be driven from the node, if it is not ready: in its turn, or already. And when to ask again.
fn may_evict(shared: &Shared, context: &Context<Node>, node: &Node) -> (Option<bool>, Option<Duration>) {
    // One that has never said anything is still on its way.
    if plan::health(node) == Health::Ready || !plan::has_spoken(node) {
        return (None, None);
    }
    let mut counts = Counts::new();
    for other in context.lister::<Node>().list() {
        let (ready, not_ready) = counts.entry(plan::zone(&other)).or_default();
        let same = other.metadata.name == node.metadata.name;
        let health = if same { plan::health(node) } else { plan::health(&other) };
        *(if health == Health::Ready { ready } else { not_ready }) += 1;
    }
    let zone = plan::zone(node);
    let rate = zones::rate(&zone, &counts);
    let evicting = |taint: &k8s_openapi::api::core::v1::Taint| {
        taint.effect == plan::NO_EXECUTE && matches!(taint.key.as_str(), plan::NOT_READY | plan::UNREACHABLE)
    };
    let already = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    if already.is_some_and(|taints| taints.iter().any(evicting)) {
        // When nobody is ready any more, evictions that have begun are called off.
        return if rate > 0.0 { (None, None) } else { (Some(false), Some(AGAIN)) };
    }
    match shared.turns.lock().take(&zone, rate, shared.start.elapsed()) {
        Ok(()) => (Some(true), None),
        Err(later) => (None, Some(later.unwrap_or(AGAIN))),
    }
}

/// Nobody shall send requests to pods of a node that is not ready.
async fn mark_pods_not_ready(shared: &Shared, context: &Context<Node>) -> Result<()> {
    let name = &*context.key().name;
    for pod in brief::on_node(&context.lister::<Pod>(), name) {
        if !pods::is_ready(&pod) {
            continue;
        }
        let now = whole_seconds(time::now(&shared.clock));
        let mark = |pod: &mut Pod| {
            let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
            for condition in conditions.iter_mut().filter(|c| c.type_ == "Ready" && c.status == "True") {
                condition.status = "False".to_owned();
                condition.last_transition_time = Some(Time(now));
            }
        };
        context.writer().modify_status(&ObjectKey::of(&*pod), Some(&*pod), mark).await?;
        context.recorder().warning(&*pod, "NodeNotReady", "Node is not ready");
    }
    Ok(())
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or_default()
}
