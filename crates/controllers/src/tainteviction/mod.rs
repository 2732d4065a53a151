//! Pods leave nodes whose NoExecute taints they do not tolerate, or no longer.

pub mod plan;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shoal_objects::clock::Clock;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use crate::{brief, pods, time};
use plan::Stay;

/// The longest wait: taints and tolerations may have changed unseen.
const AGAIN: Duration = Duration::from_secs(3600);

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    Controller::of::<Node>("taint-eviction-controller")
        .field_manager("kube-controller-manager")
        .watches::<Pod>(tainted_node_of)
        .reconcile(move |context| reconcile(clock.clone(), context))
}

/// The node of a pod, if there is anything to decide.
fn tainted_node_of(pod: &Pod, listers: &Listers) -> Vec<ObjectKey> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let key = name.map(ObjectKey::cluster);
    key.filter(|key| listers.of::<Node>().get(key).is_some_and(|node| evicts(&node))).into_iter().collect()
}

fn evicts(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.effect == "NoExecute"))
}

async fn reconcile(clock: Clock, context: Context<Node>) -> Result<Action> {
    let Some(node) = context.object().filter(|node| evicts(node)) else { return Ok(Action::done()) };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let now = time::now(&clock);
    let mut again = None;
    for pod in brief::on_node(&context.lister::<Pod>(), &context.key().name) {
        let Some(spec) = pod.spec.as_ref().filter(|_| pod.metadata.deletion_timestamp.is_none()) else {
            continue;
        };
        match plan::stay(&taints, spec.tolerations.as_deref().unwrap_or_default(), now) {
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
