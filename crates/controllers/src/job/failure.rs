//! What the failure of a pod means for its Job: the rules of `podFailurePolicy`.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};

/// What a failed pod does to its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts towards `backoffLimit`.
    Count,
    /// It does not count.
    Ignore,
    /// Its index fails.
    FailIndex,
    /// The whole Job fails, for this reason.
    FailJob(String),
}

/// The verdict of the first rule that matches.
pub(super) fn verdict(job: &Job, pod: &Pod) -> Verdict {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                Verdict::FailJob(format!(
                    "{why} for pod {namespace}/{name} matching FailJob rule at index {index}"
                ))
            }
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    if let Some(codes) = &rule.on_exit_codes {
        return ended(pod)
            .filter(|(name, _)| codes.container_name.as_deref().is_none_or(|wanted| wanted == *name))
            .find(|(_, end)| {
                let listed = codes.values.contains(&end.exit_code);
                end.exit_code != 0 && if codes.operator == "NotIn" { !listed } else { listed }
            })
            .map(|(name, end)| format!("Container {name} for exit code {} failed", end.exit_code));
    }
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    rule.on_pod_conditions.iter().flatten().find_map(|pattern| {
        conditions
            .iter()
            .find(|condition| {
                condition.type_ == pattern.type_
                    && condition.status == pattern.status.as_deref().unwrap_or("True")
            })
            .map(|condition| format!("Pod has condition {}", condition.type_))
    })
}

fn ended(pod: &Pod) -> impl Iterator<Item = (&str, &ContainerStateTerminated)> {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    statuses
        .iter()
        .chain(init)
        .filter_map(|status| Some((status.name.as_str(), status.state.as_ref()?.terminated.as_ref()?)))
}
