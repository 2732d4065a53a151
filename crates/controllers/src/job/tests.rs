use std::sync::Arc;

use serde_json::{Value, json};
use shoal_objects::entropy::Entropy;

use super::*;

/// A Job and its pods; `act` plays the API server in the order in which the controller writes.
struct World {
    job: Job,
    pods: Vec<Arc<Pod>>,
    second: i64,
    made: usize,
    entropy: Entropy,
}

impl World {
    fn new(extra: Value) -> World {
        let mut spec = json!({"template": {"metadata": {}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}, "completions": 1, "parallelism": 1});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let job = json!({"metadata": {"name": "j", "namespace": "a", "uid": "1"}, "spec": spec});
        World {
            job: serde_json::from_value(job).unwrap(),
            pods: Vec::new(),
            second: 1000,
            made: 0,
            entropy: Entropy::seeded(1),
        }
    }

    fn act(&mut self) -> Plan {
        let now = Timestamp::from_second(self.second).unwrap();
        let plan = plan(&self.job, &self.pods, now);
        for index in &plan.create {
            let failures = index.and_then(|index| plan.failures.get(&index).copied()).unwrap_or_default();
            let mut pod = pod::create(&self.job, *index, failures, &self.entropy).unwrap();
            self.made += 1;
            pod.metadata.uid = Some(format!("u{}", self.made));
            self.pods.push(Arc::new(pod));
        }
        self.job.status = Some(plan.status.clone());
        for pod in &mut self.pods {
            let name = pod.metadata.name.clone().unwrap();
            let pod = Arc::make_mut(pod);
            if plan.release.contains(&name) {
                pod.metadata.finalizers = None;
            }
            if plan.delete.contains(&name) {
                pod.status = serde_json::from_value(json!({"phase": "Failed"})).unwrap();
            }
        }
        plan
    }

    fn end(&mut self, which: usize, phase: &str, code: i32) {
        let finished = Timestamp::from_second(self.second).unwrap().to_string();
        let pod = Arc::make_mut(&mut self.pods[which]);
        pod.status = serde_json::from_value(json!({"phase": phase, "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "finishedAt": finished}}}]}))
        .unwrap();
    }

    fn settle(&mut self) {
        for _ in 0..6 {
            self.act();
        }
    }

    fn status(&self) -> &JobStatus {
        self.job.status.as_ref().unwrap()
    }

    fn ended(&self) -> Option<String> {
        let conditions = self.status().conditions.iter().flatten();
        conditions
            .filter(|c| matches!(c.type_.as_str(), "Complete" | "Failed"))
            .filter_map(|c| c.reason.clone())
            .next()
    }
}

#[test]
fn a_job_runs_as_many_pods_as_it_may_and_counts_each_once() {
    let mut world = World::new(json!({"completions": 3, "parallelism": 2}));
    assert_eq!(world.act().create.len(), 2);
    assert!(world.act().create.is_empty());
    world.end(0, "Succeeded", 0);
    let plan = world.act();
    assert_eq!(plan.create.len(), 1);
    assert_eq!(plan.status.uncounted_terminated_pods.unwrap().succeeded.unwrap(), ["u1"]);
    assert_eq!(world.status().succeeded, None, "first noted, then released, then counted");
    world.act();
    assert_eq!(world.status().succeeded, Some(1));
    world.act();
    assert_eq!(world.status().succeeded, Some(1));
    world.end(1, "Succeeded", 0);
    world.end(2, "Succeeded", 0);
    world.settle();
    assert_eq!(world.status().succeeded, Some(3));
    assert_eq!(world.ended().as_deref(), Some("CompletionsReached"));
    assert!(world.pods.iter().all(|pod| !pod::is_tracked(pod)));
    assert_eq!(world.status().active, None);
}

#[test]
fn a_crash_between_any_two_writes_counts_nothing_twice() {
    let mut world = World::new(json!({"completions": 2, "parallelism": 2}));
    world.act();
    world.end(0, "Succeeded", 0);
    world.end(1, "Succeeded", 0);
    // The status was written, the finalizers were not removed: the same plan again.
    let now = Timestamp::from_second(1000).unwrap();
    let first = plan(&world.job, &world.pods, now);
    world.job.status = Some(first.status);
    let again = plan(&world.job, &world.pods, now);
    assert_eq!(again.status.succeeded, None);
    assert_eq!(again.release.len(), 2);
    // The finalizers were removed and the pods deleted by the user before they were counted.
    world.pods.clear();
    let counted = plan(&world.job, &world.pods, now);
    assert_eq!(counted.status.succeeded, Some(2));
}

#[test]
fn failures_are_retried_with_growing_delay_up_to_the_limit() {
    let mut world = World::new(json!({"backoffLimit": 1}));
    world.act();
    world.end(0, "Failed", 1);
    let plan = world.act();
    assert!(plan.create.is_empty());
    assert_eq!(plan.again, Some(Duration::from_secs(10)));
    world.second += 10;
    assert_eq!(world.act().create.len(), 1);
    world.end(1, "Failed", 1);
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(world.status().failed, Some(2));
}

#[test]
fn an_indexed_job_completes_every_index() {
    let mut world = World::new(json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"}));
    assert_eq!(world.act().create, [Some(0), Some(1), Some(2)]);
    let spec = world.pods[1].spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("j-1"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    world.end(1, "Succeeded", 0);
    world.settle();
    assert_eq!(world.status().completed_indexes.as_deref(), Some("1"));
    world.end(0, "Succeeded", 0);
    world.end(2, "Succeeded", 0);
    world.settle();
    assert_eq!(world.status().completed_indexes.as_deref(), Some("0-2"));
    assert_eq!(world.ended().as_deref(), Some("CompletionsReached"));
}

#[test]
fn a_job_past_its_deadline_deletes_its_pods_and_fails() {
    let mut world = World::new(json!({"activeDeadlineSeconds": 5}));
    assert_eq!(world.act().again, Some(Duration::from_secs(5)));
    world.second += 5;
    let plan = world.act();
    assert_eq!(plan.delete.len(), 1);
    assert_eq!(world.ended(), None, "it ends when its pods have");
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("DeadlineExceeded"));
    assert_eq!(world.status().failed, Some(1));
}

#[test]
fn a_suspended_job_has_no_pods_and_its_clock_starts_anew() {
    let mut world = World::new(json!({"suspend": true}));
    world.act();
    assert_eq!((world.pods.len(), world.status().start_time.clone()), (0, None));
    world.job.spec.as_mut().unwrap().suspend = Some(false);
    world.second += 50;
    world.act();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.status().start_time.as_ref().unwrap().0.as_second(), 1050);
}

#[test]
fn the_failure_policy_decides_what_an_exit_code_means() {
    let policy = json!({"podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]}, "backoffLimit": 0});
    let mut world = World::new(policy.clone());
    world.act();
    world.end(0, "Failed", 7);
    world.settle();
    assert_eq!((world.ended(), world.status().failed), (None, None), "ignored");
    assert!(!pod::is_tracked(&world.pods[0]), "and let go");
    let mut world = World::new(policy);
    world.act();
    world.end(0, "Failed", 42);
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("PodFailurePolicy"));
}

#[test]
fn an_ended_job_goes_after_its_time() {
    let mut world = World::new(json!({"ttlSecondsAfterFinished": 30}));
    world.act();
    world.end(0, "Succeeded", 0);
    world.settle();
    let plan = world.act();
    assert_eq!((plan.expired, plan.again), (false, Some(Duration::from_secs(30))));
    world.second += 30;
    assert!(world.act().expired);
}

#[test]
fn a_clock_that_jumps_ends_an_ended_job_early_or_late_but_holds_up_no_other() {
    let mut ended = World::new(json!({"ttlSecondsAfterFinished": 30}));
    ended.act();
    ended.end(0, "Succeeded", 0);
    ended.settle();
    ended.second -= 900;
    let plan = ended.act();
    assert_eq!((plan.expired, plan.again), (false, Some(Duration::from_secs(930))));
    ended.second += 4500;
    assert!(ended.act().expired);

    let mut failing = World::new(json!({"backoffLimit": 9}));
    failing.act();
    failing.end(0, "Failed", 1);
    failing.second -= 900;
    let plan = failing.act();
    assert!(plan.again.is_some_and(|again| again <= Duration::from_secs(10)), "{:?}", plan.again);
}

#[test]
fn a_pod_that_is_going_keeps_its_place_if_only_ended_ones_are_replaced() {
    for (policy, expected) in [("Failed", 0), ("TerminatingOrFailed", 1)] {
        let mut world = World::new(json!({"podReplacementPolicy": policy, "backoffLimit": 9}));
        world.act();
        let pod = Arc::make_mut(&mut world.pods[0]);
        pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(900).unwrap()));
        assert_eq!(world.act().create.len(), expected, "{policy}");
    }
}

#[test]
fn an_index_that_fails_too_often_fails_alone() {
    let limits =
        json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    let mut world = World::new(limits);
    assert_eq!(world.act().create, [Some(0)]);
    world.end(0, "Failed", 1);
    assert_eq!(world.act().create, [Some(1)], "the first waits, the second need not");
    world.end(1, "Succeeded", 0);
    world.settle();
    world.second += 10;
    assert_eq!(world.act().create, [Some(0)]);
    assert_eq!(pod::failures(&world.pods[2]), 1);
    // The first failure may be forgotten meanwhile: the second pod knows of it.
    world.pods.remove(0);
    world.end(1, "Failed", 1);
    world.settle();
    assert_eq!(world.status().failed_indexes.as_deref(), Some("0"));
    assert_eq!(world.ended().as_deref(), Some("FailedIndexes"));
}
