//! Jobs and CronJobs.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shoal_controllers::{cronjob, job};
use shoal_objects::Timestamp;
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;

use crate::cluster::{api, condition, create, names, patch, start, template, until, until_all, until_told};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

fn jobs() -> shoal_runtime::Controller {
    job::controller(Clock::system(), Entropy::system())
}

fn spec(image: &str, extra: Value) -> Value {
    let mut template = template("work", image);
    template["spec"]["restartPolicy"] = json!("Never");
    let mut spec = json!({"template": template});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

fn named(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_its_pods_counts_each_once_and_lets_them_go() {
    let client = start(vec![jobs()]).await;
    create::<Job>(&client, named("j", spec("succeeds", json!({"completions": 7, "parallelism": 3})))).await;
    let done = until(&api::<Job>(&client), "j", |job| condition(job, "Complete")["status"] == "True").await;
    assert_eq!(done["status"]["succeeded"], 7);
    assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
    assert_eq!(condition(&done, "SuccessCriteriaMet")["reason"], "CompletionsReached");
    let pods = until_all(&api::<Pod>(&client), |_| true).await;
    assert_eq!(pods.len(), 7, "never more than needed");
    assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    until_told(&client, "Completed", "Job completed").await;
    until_told(&client, "SuccessfulCreate", "Created pod: j-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexed_job_runs_every_index() {
    let client = start(vec![jobs()]).await;
    let extra = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
    create::<Job>(&client, named("j", spec("succeeds", extra))).await;
    let done = until(&api::<Job>(&client), "j", |job| condition(job, "Complete")["status"] == "True").await;
    assert_eq!(done["status"]["completedIndexes"], "0-3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_fails_at_its_limit_and_after_its_deadline() {
    let client = start(vec![jobs()]).await;
    create::<Job>(&client, named("limit", spec("fails", json!({"backoffLimit": 0, "parallelism": 1})))).await;
    create::<Job>(&client, named("late", spec("wait", json!({"activeDeadlineSeconds": 1})))).await;
    let is_failed = |job: &Value| condition(job, "Failed")["status"] == "True";
    let limit = until(&api::<Job>(&client), "limit", is_failed).await;
    assert_eq!(condition(&limit, "Failed")["reason"], "BackoffLimitExceeded");
    let late = until(&api::<Job>(&client), "late", is_failed).await;
    assert_eq!(condition(&late, "Failed")["reason"], "DeadlineExceeded");
    assert_eq!(late["status"]["failed"], 1);
    until_all(&api::<Pod>(&client), |pods| pods.len() == 1).await;
    until_told(&client, "DeadlineExceeded", "active longer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_policy_ends_a_job_at_once() {
    let client = start(vec![jobs()]).await;
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]);
    let extra = json!({"backoffLimit": 6, "podFailurePolicy": {"rules": rules}});
    create::<Job>(&client, named("j", spec("fails", extra))).await;
    let failed = until(&api::<Job>(&client), "j", |job| condition(job, "Failed")["status"] == "True").await;
    assert_eq!(condition(&failed, "Failed")["reason"], "PodFailurePolicy");
    assert_eq!(failed["status"]["failed"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let client = start(vec![jobs()]).await;
    let all = api::<Job>(&client);
    create::<Job>(&client, named("j", spec("wait", json!({"parallelism": 2, "completions": 2})))).await;
    until_all(&api::<Pod>(&client), |pods| pods.len() == 2).await;
    patch(&all, "j", json!({"spec": {"suspend": true}})).await;
    until_all(&api::<Pod>(&client), <[Value]>::is_empty).await;
    until(&all, "j", |job| condition(job, "Suspended")["status"] == "True").await;
    patch(&all, "j", json!({"spec": {"suspend": false}})).await;
    until_all(&api::<Pod>(&client), |pods| pods.len() == 2).await;
    until(&all, "j", |job| condition(job, "Suspended")["status"] == "False").await;
    until_told(&client, "Resumed", "Job resumed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_job_is_deleted_after_its_time() {
    let client = start(vec![jobs()]).await;
    create::<Job>(&client, named("j", spec("succeeds", json!({"ttlSecondsAfterFinished": 1})))).await;
    // Its pods are the garbage collector's, which goes first.
    until(&api::<Job>(&client), "j", |job| !job["metadata"]["deletionTimestamp"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_job_that_is_gone_are_held_by_nobody() {
    let client = start(vec![jobs()]).await;
    create::<Job>(&client, named("j", spec("run", json!({})))).await;
    let pods = api::<Pod>(&client);
    let held = |pods: &[Value]| pods.len() == 1 && pods[0]["metadata"]["finalizers"] == json!([FINALIZER]);
    until_all(&pods, held).await;
    api::<Job>(&client).delete("j", &DeleteParams::background()).await.unwrap();
    until_all(&pods, |pods| pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null())).await;
}

/// A clock that is ahead, so that what is due in two minutes is due now.
fn ahead() -> Clock {
    let clock = Clock::system();
    Clock::from_fn(move || Timestamp(clock.now().0 + 125_000_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_starts_its_jobs_and_follows_them() {
    let client = start(vec![jobs(), cronjob::controller(ahead())]).await;
    let template = json!({"spec": spec("succeeds", json!({}))});
    let spec = json!({"schedule": "* * * * *", "jobTemplate": template, "successfulJobsHistoryLimit": 0});
    create::<CronJob>(&client, named("c", spec)).await;
    let crons = api::<CronJob>(&client);
    until_told(&client, "SuccessfulCreate", "Created job c-").await;
    let done = until(&crons, "c", |cron| !cron["status"]["lastSuccessfulTime"].is_null()).await;
    assert!(done["status"]["lastScheduleTime"].is_string());
    until_all(&api::<Job>(&client), <[Value]>::is_empty).await;
    until_told(&client, "SawCompletedJob", "condition: Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_cron_job_starts_nothing() {
    let client = start(vec![jobs(), cronjob::controller(ahead())]).await;
    let template = json!({"spec": spec("wait", json!({}))});
    let schedule = |suspend: bool| {
        json!({"schedule": "* * * * *", "timeZone": "Europe/Berlin", "suspend": suspend, "jobTemplate": template})
    };
    create::<CronJob>(&client, named("off", schedule(true))).await;
    create::<CronJob>(&client, named("on", schedule(false))).await;
    let on = until(&api::<CronJob>(&client), "on", |cron| !cron["status"]["active"].is_null()).await;
    let started = until_all(&api::<Job>(&client), |jobs| !jobs.is_empty()).await;
    assert_eq!(names(&started), [on["status"]["active"][0]["name"].as_str().unwrap()]);
    let scheduled = &started[0]["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert!(scheduled.as_str().unwrap().contains("+0"), "in its zone: {scheduled}");
}
