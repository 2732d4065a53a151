//! Conditions of a pod that its node decides.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a condition says: true, or why not.
pub enum Verdict {
    /// It holds; a reason, if there is one to tell.
    True(Option<&'static str>),
    /// It does not; reason and message.
    False(&'static str, String),
}

/// A condition, which keeps the time of its last change if nothing changed.
pub fn condition(pod: &Pod, type_: &str, verdict: Verdict, now: &Time) -> PodCondition {
    let (status, reason, message) = match verdict {
        Verdict::True(reason) => ("True", reason.map(str::to_owned), None),
        Verdict::False(reason, message) => {
            let said = |text: String| (!text.is_empty()).then_some(text);
            ("False", said(reason.to_owned()), said(message))
        }
    };
    let known = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let known = known.into_iter().flatten().find(|known| known.type_ == type_ && known.status == status);
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: known
            .and_then(|known| known.last_transition_time.clone())
            .or(Some(now.clone())),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// Whether another says that the pod may be ready, for each of its readiness gates.
pub fn closed_gates(pod: &Pod) -> Vec<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let is_open = |type_: &str| {
        conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    gates.iter().map(|gate| gate.condition_type.clone()).filter(|type_| !is_open(type_)).collect()
}
