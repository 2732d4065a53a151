//! Taints and tolerations, and the cordon, which is a taint in all but name.

use k8s_openapi::api::core::v1::Taint;

use crate::daemonset::nodes::tolerates;
use crate::scheduler::reason::Reason;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

const CORDON: &str = "node.kubernetes.io/unschedulable";

/// A cordoned node is for pods that tolerate the cordon.
pub fn cordon(pod: &Shape, node: &NodeInfo) -> Option<Reason> {
    if !node.is_unschedulable() {
        return None;
    }
    let taint = Taint { key: CORDON.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    (!pod.tolerations.iter().any(|toleration| tolerates(toleration, &taint))).then_some(Reason::Cordoned)
}

/// The first taint that keeps the pod away.
pub fn check(pod: &Shape, node: &NodeInfo) -> Option<Reason> {
    let taint = untolerated(pod, node, &["NoSchedule", "NoExecute"]).next()?;
    Some(Reason::Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default() })
}

/// Taints of some effects that the pod does not tolerate.
pub fn untolerated<'a>(
    pod: &'a Shape,
    node: &'a NodeInfo,
    effects: &'a [&str],
) -> impl Iterator<Item = &'a Taint> {
    let taints = node.taints().iter().filter(|taint| effects.contains(&taint.effect.as_str()));
    taints.filter(|taint| !pod.tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}
