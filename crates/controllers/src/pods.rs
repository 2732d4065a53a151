//! What controllers ask of pods, and how a template becomes one.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use shoal_objects::entropy::Entropy;

/// The phase, or nothing for a pod that no node has reported on.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Neither finished nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// All containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Being deleted, and still there.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// The condition of this type.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// Serves requests, as its node says.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when the pod is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0)
}

/// How a pod stands with regard to `minReadySeconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Not ready.
    Unready,
    /// Ready, and available after this time if it stays so.
    In(Duration),
    /// Ready for long enough.
    Available,
}

/// Whether the pod has been ready for `min_ready_seconds`.
pub fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    available(is_ready(pod), ready_since(pod), min_ready_seconds, now)
}

/// The same of a pod of which this is known.
pub fn available(
    ready: bool,
    since: Option<Timestamp>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Availability {
    if !ready {
        return Availability::Unready;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    let Some(since) = since else { return Availability::Unready };
    let left = since.as_second() + i64::from(min_ready_seconds) - now.as_second();
    match u64::try_from(left) {
        Ok(left) if left > 0 => Availability::In(Duration::from_secs(left)),
        _ => Availability::Available,
    }
}

/// A pod of this template. Its name is drawn here and not by the server: a create that is sent twice makes one pod.
pub fn from_template(
    template: &PodTemplateSpec,
    prefix: &str,
    namespace: &str,
    owner: OwnerReference,
    entropy: &Entropy,
) -> Pod {
    let from = template.metadata.clone().unwrap_or_default();
    let generate_name = name_prefix(prefix);
    Pod {
        metadata: ObjectMeta {
            name: Some(drawn_name(&generate_name, entropy)),
            generate_name: Some(generate_name),
            namespace: Some(namespace.to_owned()),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Pods of a controller with a very long name lose the dash, as names have an end.
fn name_prefix(controller: &str) -> String {
    let prefix = format!("{controller}-");
    if prefix.len() > 253 { controller.to_owned() } else { prefix }
}

/// As the server would draw it: at most 63 characters, five of them random.
pub(crate) fn drawn_name(prefix: &str, entropy: &Entropy) -> String {
    let base: String = prefix.chars().take(58).collect();
    format!("{base}{}", entropy.name_suffix(5))
}
