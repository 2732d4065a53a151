//! What a ReplicaSet needs: pods to create or delete, and the status that is true now.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::rank;
use crate::brief::Brief;
use crate::pods::Availability;

/// No more pods than this are created or deleted in one go.
pub const BURST: usize = 500;

/// What brings the number of pods to the wanted one.
#[derive(Debug, PartialEq)]
pub enum Plan<'a> {
    /// There are as many as there should be.
    Enough,
    /// So many are missing.
    Create(usize),
    /// These are too many.
    Delete(Vec<&'a Brief>),
}

/// What to do, given the pods that the ReplicaSet owns. `related` are all pods of the namespace that belong to
/// ReplicaSets of the same owner: of those on crowded nodes, ours go first.
pub fn plan<'a>(set: &ReplicaSet, owned: &'a [impl AsRef<Brief>], related: &[impl AsRef<Brief>]) -> Plan<'a> {
    let active: Vec<&Brief> = owned.iter().map(AsRef::as_ref).filter(|pod| pod.is_active()).collect();
    let wanted = wanted(set);
    if active.len() < wanted {
        return Plan::Create((wanted - active.len()).min(BURST));
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Plan::Enough;
    }
    Plan::Delete(rank::first_to_go(active, related, surplus))
}

fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}

/// The status that the pods give, and when to look again because a pod becomes available by mere time.
pub fn status(
    set: &ReplicaSet,
    owned: &[impl AsRef<Brief>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<Duration>) {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let template_labels = spec
        .and_then(|spec| spec.template.as_ref())
        .and_then(|template| template.metadata.as_ref())
        .and_then(|metadata| metadata.labels.as_ref());
    let (mut replicas, mut labelled, mut ready, mut available, mut terminating) = (0, 0, 0, 0, 0);
    let mut again: Option<Duration> = None;
    for pod in owned.iter().map(AsRef::as_ref) {
        if pod.is_terminating() {
            terminating += 1;
        }
        if !pod.is_active() {
            continue;
        }
        replicas += 1;
        let has = |(key, value): (&String, &String)| pod.label(key) == Some(value);
        labelled += i32::from(template_labels.is_none_or(|wanted| wanted.iter().all(has)));
        match pod.availability(min_ready, now) {
            Availability::Unready => {}
            Availability::In(left) => {
                ready += 1;
                again = Some(again.map_or(left, |again| again.min(left)));
            }
            Availability::Available => {
                ready += 1;
                available += 1;
            }
        }
    }
    let counted = |count: i32| (count != 0).then_some(count);
    let before = set.status.as_ref();
    let status = ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: counted(labelled),
        ready_replicas: counted(ready),
        available_replicas: counted(available),
        terminating_replicas: Some(terminating),
        observed_generation: set.metadata.generation,
        conditions: conditions(before.and_then(|status| status.conditions.as_deref()), failure, now),
    };
    (status, again)
}

/// Why pods could not be created or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// What the server said.
    pub message: String,
}

const REPLICA_FAILURE: &str = "ReplicaFailure";

fn conditions(
    before: Option<&[ReplicaSetCondition]>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let before = before.unwrap_or_default();
    let mut after: Vec<_> =
        before.iter().filter(|condition| condition.type_ != REPLICA_FAILURE).cloned().collect();
    if let Some(failure) = failure {
        let present = before.iter().find(|condition| condition.type_ == REPLICA_FAILURE);
        let time = || Timestamp::from_second(now.as_second()).map(Time).ok();
        after.push(match present {
            Some(present) if present.reason.as_deref() == Some(failure.reason) => present.clone(),
            _ => ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(failure.reason.to_owned()),
                message: Some(failure.message.clone()),
                last_transition_time: time(),
            },
        });
    }
    (!after.is_empty()).then_some(after)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn set(replicas: i32, min_ready: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "r", "uid": "1", "generation": 4},
            "spec": {
                "replicas": replicas, "minReadySeconds": min_ready,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}
            }
        }))
        .unwrap()
    }

    fn pod(name: &str, phase: &str, ready_at: Option<i64>) -> Arc<Brief> {
        let mut conditions = Vec::new();
        if let Some(second) = ready_at {
            let time = Timestamp::from_second(second).unwrap().to_string();
            conditions.push(json!({"type": "Ready", "status": "True", "lastTransitionTime": time}));
        }
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "status": {"phase": phase, "conditions": conditions}
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    const NONE: &[Arc<Brief>] = &[];

    #[test]
    fn missing_pods_are_created_and_finished_ones_do_not_count() {
        let pods = [pod("a", "Running", None), pod("b", "Failed", None)];
        assert_eq!(plan(&set(3, 0), &pods, NONE), Plan::Create(2));
        assert_eq!(plan(&set(1, 0), &pods, NONE), Plan::Enough);
        assert_eq!(plan(&set(100_000, 0), &pods, NONE), Plan::Create(BURST));
    }

    #[test]
    fn surplus_pods_go_the_least_useful_first() {
        let pods = [
            pod("ready", "Running", Some(10)),
            pod("pending", "Pending", None),
            pod("running", "Running", None),
        ];
        let Plan::Delete(go) = plan(&set(1, 0), &pods, NONE) else { panic!("too many pods") };
        let names: Vec<_> = go.iter().map(|pod| pod.name.clone()).collect();
        assert_eq!(names, ["pending".into(), "running".into()] as [Box<str>; 2]);
    }

    #[test]
    fn a_pod_is_available_after_min_ready_seconds_and_the_controller_looks_again_then() {
        let now = Timestamp::from_second(100).unwrap();
        let pods =
            [pod("old", "Running", Some(50)), pod("new", "Running", Some(95)), pod("not", "Running", None)];
        let (status, again) = status(&set(3, 30), &pods, None, now);
        assert_eq!(
            (status.replicas, status.ready_replicas, status.available_replicas),
            (3, Some(2), Some(1))
        );
        assert_eq!(again, Some(Duration::from_secs(25)));
        assert_eq!(status.observed_generation, Some(4));
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let now = Timestamp::from_second(100).unwrap();
        let failure = Failure { reason: "FailedCreate", message: "quota".to_owned() };
        let mut set = set(1, 0);
        let (failed, _) = status(&set, NONE, Some(&failure), now);
        assert_eq!(failed.conditions.as_ref().unwrap()[0].reason.as_deref(), Some("FailedCreate"));
        set.status = Some(failed);
        assert_eq!(status(&set, NONE, None, now).0.conditions, None);
    }
}
