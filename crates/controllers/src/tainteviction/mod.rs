//! Pods leave nodes whose NoExecute taints they do not tolerate, or no longer.

pub mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use shoal_objects::clock::Clock;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};
use tokio::time::Instant;

use crate::{brief, pods, time};
use plan::Stay;

/// The longest wait: taints and tolerations may have changed unseen.
const AGAIN: Duration = Duration::from_secs(3600);
const NO_EXECUTE: &str = "NoExecute";

/// Since when taints are seen here, by node. Times of day are not trusted: a clock that is set forward by an hour would
/// drive away everybody at once.
#[derive(Default)]
struct Seen {
    taints: HashMap<ObjectKey, Vec<(Taint, Instant)>>,
}

struct Shared {
    clock: Clock,
    seen: Mutex<Seen>,
}

impl Seen {
    /// The taints that drive pods away, with the time for which each was seen.
    fn look(&mut self, key: &ObjectKey, node: &Node, now: Instant) -> Vec<(Taint, Duration)> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let known = self.taints.remove(key).unwrap_or_default();
        let since = |taint: &Taint| known.iter().find(|(same, _)| same == taint).map_or(now, |(_, at)| *at);
        let seen: Vec<(Taint, Instant)> = taints
            .iter()
            .filter(|taint| taint.effect == NO_EXECUTE)
            .map(|taint| (taint.clone(), since(taint)))
            .collect();
        self.taints.insert(key.clone(), seen.clone());
        seen.into_iter().map(|(taint, at)| (taint, now.saturating_duration_since(at))).collect()
    }
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared = Arc::new(Shared { clock, seen: Mutex::default() });
    Controller::of::<Node>("taint-eviction-controller")
        .field_manager("kube-controller-manager")
        .watches::<Pod>(tainted_node_of)
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

/// The node of a pod, if there is anything to decide.
fn tainted_node_of(pod: &Pod, listers: &Listers) -> Vec<ObjectKey> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let key = name.map(ObjectKey::cluster);
    key.filter(|key| listers.of::<Node>().get(key).is_some_and(|node| evicts(&node))).into_iter().collect()
}

fn evicts(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.effect == NO_EXECUTE))
}

async fn reconcile(shared: Arc<Shared>, context: Context<Node>) -> Result<Action> {
    let Some(node) = context.object().filter(|node| evicts(node)) else {
        shared.seen.lock().taints.remove(context.key());
        return Ok(Action::done());
    };
    let taints = shared.seen.lock().look(context.key(), &node, Instant::now());
    let now = time::now(&shared.clock);
    let mut again = None;
    for pod in brief::on_node(&context.lister::<Pod>(), &context.key().name) {
        let Some(spec) = pod.spec.as_ref().filter(|_| pod.metadata.deletion_timestamp.is_none()) else {
            continue;
        };
        let under = taints.iter().map(|(taint, been)| (taint, *been));
        match plan::stay(under, spec.tolerations.as_deref().unwrap_or_default()) {
            Stay::ForEver => {}
            Stay::For(left) if left.is_zero() => evict(&context, &pod, now).await?,
            Stay::For(left) => again = Some(again.map_or(left, |other: Duration| other.min(left))),
        }
    }
    Ok(again.map_or(Action::done(), |again| Action::after(again.min(AGAIN))))
}

async fn evict(context: &Context<Node>, pod: &Pod, now: Timestamp) -> Result<()> {
    let writer = context.writer();
    let key = ObjectKey::of(pod);
    context.recorder().normal(pod, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
    if !pods::is_finished(pod) {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("DeletionByTaintManager".to_owned()),
            message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
            last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or_default())),
            ..PodCondition::default()
        };
        let tell = |pod: &mut Pod| {
            let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
            if !conditions.iter().any(|known| known.type_ == condition.type_ && known.status == "True") {
                conditions.retain(|known| known.type_ != condition.type_);
                conditions.push(condition.clone());
            }
        };
        writer.modify_status(&key, Some(pod), tell).await?;
    }
    writer.delete_with(pod, kube::api::DeleteParams::default()).await?;
    Ok(())
}
