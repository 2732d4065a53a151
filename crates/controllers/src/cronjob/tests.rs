use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(extra: Value, status: Value) -> CronJob {
    let mut spec = json!({"schedule": "*/10 * * * *", "jobTemplate": {"metadata": {"labels": {"app": "x"}}, "spec": {"template": {}}}});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "1", "creationTimestamp": "2026-01-01T00:01:00Z"},
        "spec": spec, "status": status
    }))
    .unwrap()
}

fn job(name: &str, condition: Option<&str>) -> Arc<Job> {
    let conditions: Vec<Value> = condition
        .iter()
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:15:00Z"}))
        .collect();
    let completion = condition.filter(|type_| *type_ == "Complete").map(|_| "2026-01-01T00:15:00Z");
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "a", "uid": name},
            "status": {"conditions": conditions, "startTime": "2026-01-01T00:10:00Z", "completionTime": completion}
        }))
        .unwrap(),
    )
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.notes.iter().map(|note| note.reason).collect()
}

const NONE: &[Arc<Job>] = &[];

#[test]
fn nothing_happens_before_the_time_and_one_job_at_it() {
    let early = plan(&cron(json!({}), json!({})), NONE, at("2026-01-01T00:09:00Z"));
    assert_eq!(early.create, None);
    assert_eq!(early.again, Some(Duration::from_secs(60) + MARGIN));
    let due = plan(&cron(json!({}), json!({})), NONE, at("2026-01-01T00:10:01Z"));
    let job = due.create.unwrap();
    assert_eq!(job.metadata.name.as_deref(), Some("c-29453770"));
    assert_eq!(job.metadata.annotations.unwrap()[SCHEDULED], "2026-01-01T00:10:00Z");
    assert_eq!(due.status.last_schedule_time, Some(Time(at("2026-01-01T00:10:00Z"))));
    let status = json!({"lastScheduleTime": "2026-01-01T00:10:00Z"});
    assert_eq!(plan(&cron(json!({}), status), NONE, at("2026-01-01T00:10:02Z")).create, None);
}

#[test]
fn of_many_missed_times_only_the_last_is_made_up_for() {
    let late = plan(&cron(json!({}), json!({})), NONE, at("2026-01-01T00:35:00Z"));
    assert_eq!(late.status.last_schedule_time, Some(Time(at("2026-01-01T00:30:00Z"))));
    let very_late = plan(&cron(json!({}), json!({})), NONE, at("2026-06-01T00:00:30Z"));
    assert_eq!(very_late.status.last_schedule_time, Some(Time(at("2026-06-01T00:00:00Z"))));
    assert_eq!(reasons(&very_late), ["TooManyMissedTimes"]);
    let strict = cron(json!({"startingDeadlineSeconds": 60}), json!({}));
    assert_eq!(plan(&strict, NONE, at("2026-01-01T00:35:00Z")).create, None, "too late");
    assert!(plan(&strict, NONE, at("2026-01-01T00:30:30Z")).create.is_some());
}

#[test]
fn a_clock_that_jumps_starts_nothing_twice_and_nothing_too_early() {
    let started = json!({"lastScheduleTime": "2026-01-01T05:10:00Z"});
    // Back by an hour: the hour that comes again has had its Jobs.
    for now in ["2026-01-01T04:10:01Z", "2026-01-01T04:55:00Z", "2026-01-01T05:10:01Z"] {
        let again = plan(&cron(json!({}), started.clone()), NONE, at(now));
        assert_eq!(
            (again.create, again.status.last_schedule_time),
            (None, Some(Time(at("2026-01-01T05:10:00Z"))))
        );
        assert!(again.again.is_some(), "{now}");
    }
    // Forward by an hour: what was missed is made up for once.
    let late = plan(&cron(json!({}), started), NONE, at("2026-01-01T06:15:00Z"));
    assert_eq!(late.status.last_schedule_time, Some(Time(at("2026-01-01T06:10:00Z"))));
    assert!(late.create.is_some() && late.notes.is_empty());
    // Created in what is the future now: its first time is after its creation.
    let future = plan(&cron(json!({}), json!({})), NONE, at("2025-12-31T23:05:00Z"));
    assert_eq!((future.create, future.again), (None, Some(Duration::from_secs(65 * 60) + MARGIN)));
}

#[test]
fn a_suspended_or_unreadable_schedule_starts_nothing() {
    let now = at("2026-01-01T00:10:01Z");
    assert_eq!(plan(&cron(json!({"suspend": true}), json!({})), NONE, now).create, None);
    let bad = plan(&cron(json!({"schedule": "x"}), json!({})), NONE, now);
    assert_eq!((bad.create.is_none(), reasons(&bad)), (true, vec!["UnparseableSchedule"]));
    let zone = plan(&cron(json!({"timeZone": "Mars/X"}), json!({})), NONE, now);
    assert_eq!(reasons(&zone), ["UnknownTimeZone"]);
}

#[test]
fn the_policy_decides_what_happens_while_a_job_runs() {
    let status =
        json!({"active": [{"name": "c-1", "uid": "c-1"}], "lastScheduleTime": "2026-01-01T00:10:00Z"});
    let running = [job("c-1", None)];
    let now = at("2026-01-01T00:20:01Z");
    let run = |policy: &str| plan(&cron(json!({"concurrencyPolicy": policy}), status.clone()), &running, now);
    let allow = run("Allow");
    assert!(allow.create.is_some() && allow.replace.is_empty());
    let forbid = run("Forbid");
    assert_eq!((forbid.create.is_none(), reasons(&forbid)), (true, vec!["JobAlreadyActive"]));
    let replace = run("Replace");
    assert!(replace.create.is_some());
    assert_eq!(replace.replace, ["c-1"]);
}

#[test]
fn jobs_that_ended_leave_the_list_and_only_some_are_kept() {
    let status = json!({"active": [{"name": "c-5", "uid": "c-5"}, {"name": "gone", "uid": "gone"}]});
    let jobs: Vec<_> = (1..=5)
        .map(|number| job(&format!("c-{number}"), Some("Complete")))
        .chain([job("f-1", Some("Failed")), job("f-2", Some("Failed"))])
        .collect();
    let plan = plan(&cron(json!({}), status), &jobs, at("2026-01-01T00:05:00Z"));
    assert_eq!(plan.status.active, None);
    assert_eq!(reasons(&plan), ["SawCompletedJob", "MissingJob"]);
    assert_eq!(plan.forget, ["c-1", "c-2", "f-1"]);
    assert_eq!(plan.status.last_successful_time, Some(Time(at("2026-01-01T00:15:00Z"))));
}
