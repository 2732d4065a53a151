//! What a CronJob does now: Jobs to start, to replace and to forget.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;

use super::schedule::Schedule;
use crate::claim;

/// Which time a Job was started for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Missing more times than this is worth a warning.
const MANY: i64 = 100;
/// Looks a little after the time, not a little before.
const MARGIN: Duration = Duration::from_millis(100);

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Something needs attention.
    pub warning: bool,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of Jobs that make way for the new one.
    pub replace: Vec<String>,
    /// A Job to start.
    pub create: Option<Box<Job>>,
    /// Names of Jobs that ended long ago.
    pub forget: Vec<String>,
    /// The status that is true now, without the Job that is to be started.
    pub status: CronJobStatus,
    /// What to tell people.
    pub notes: Vec<Note>,
    /// When to look again though nothing changes.
    pub again: Option<Duration>,
}

/// What the CronJob does now, given the Jobs that it controls.
pub fn plan(cron: &CronJob, owned: &[impl AsRef<Job>], now: Timestamp) -> Plan {
    let owned: Vec<&Job> = owned.iter().map(AsRef::as_ref).collect();
    let mut plan = Plan { status: cron.status.clone().unwrap_or_default(), ..Plan::default() };
    follow(&owned, &mut plan);
    plan.forget = history(cron, &owned);
    if cron.metadata.deletion_timestamp.is_some() {
        plan.forget.clear();
        return plan;
    }
    let spec = &cron.spec;
    if spec.suspend.unwrap_or_default() {
        return plan;
    }
    let schedule = match Schedule::parse(&spec.schedule, spec.time_zone.as_deref()) {
        Ok(schedule) => schedule,
        Err(why) => {
            match spec.time_zone.as_deref().filter(|zone| why.ends_with(zone)) {
                Some(zone) => {
                    plan.warn("UnknownTimeZone", format!("invalid timeZone: {zone:?}: {why}"));
                }
                None => {
                    let text = &spec.schedule;
                    plan.warn("UnparseableSchedule", format!("unparseable schedule: {text:?} : {why}"));
                }
            }
            return plan;
        }
    };
    let due = due(cron, &schedule, now);
    plan.again = due.next.map(|next| until(next, now));
    if due.missed > MANY {
        plan.warn(
            "TooManyMissedTimes",
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
        );
    }
    if let Some(time) = due.time {
        start(cron, &schedule, &owned, time, now, &mut plan);
    }
    plan
}

fn until(next: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(next.duration_since(now)).unwrap_or_default() + MARGIN
}

/// Times that a schedule means.
struct Due {
    /// The last one that has come and was not yet acted on.
    time: Option<Timestamp>,
    /// The first one to come.
    next: Option<Timestamp>,
    /// How many have come since the last that was acted on.
    missed: i64,
}

fn due(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Due {
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let since = last.or(cron.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    let deadline = cron.spec.starting_deadline_seconds;
    // What is too late anyway need not be counted.
    let since = deadline
        .and_then(|allowed| Timestamp::from_second(now.as_second().saturating_sub(allowed)).ok())
        .map_or(since, |earliest| since.max(earliest));
    let Some(first) = schedule.next(since) else { return Due { time: None, next: None, missed: 0 } };
    if first > now {
        return Due { time: None, next: Some(first), missed: 0 };
    }
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Due { time: Some(first), next: schedule.next(first), missed: 1 };
    };
    // Years may have passed: near the end is soon enough to go step by step.
    let between = (second.as_second() - first.as_second()).max(1);
    let missed = (now.as_second() - first.as_second()) / between + 1;
    let near = Timestamp::from_second(first.as_second() + (missed - 2).max(0) * between).unwrap_or(first);
    let (mut time, mut next) = (first, schedule.next(near));
    while let Some(at) = next.filter(|at| *at <= now) {
        time = at;
        next = schedule.next(at);
    }
    Due { time: Some(time), next, missed }
}

fn start(
    cron: &CronJob,
    schedule: &Schedule,
    owned: &[&Job],
    time: Timestamp,
    now: Timestamp,
    plan: &mut Plan,
) {
    let spec = &cron.spec;
    let late = spec
        .starting_deadline_seconds
        .is_some_and(|allowed| time.as_second().saturating_add(allowed) < now.as_second());
    if late {
        plan.warn("MissSchedule", format!("Missed scheduled time to start a job: {}", schedule.local(time)));
        return;
    }
    let Some(job) = job(cron, schedule, time) else { return };
    let active = plan.status.active.clone().unwrap_or_default();
    let done = plan.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == time)
        || active.iter().any(|active| active.name == job.metadata.name);
    if done {
        return;
    }
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.notes.push(Note { warning: false, reason: "JobAlreadyActive", message: message.to_owned() });
            return;
        }
        Some("Replace") => {
            let names: Vec<String> = active.iter().filter_map(|active| active.name.clone()).collect();
            plan.replace = owned
                .iter()
                .filter_map(|job| job.metadata.name.clone())
                .filter(|name| names.contains(name))
                .collect();
            plan.status.active = None;
        }
        _ => {}
    }
    plan.status.last_schedule_time = Some(Time(time));
    plan.create = Some(Box::new(job));
}

/// The Job of a time. Its name is the time's: started twice, it is one Job.
fn job(cron: &CronJob, schedule: &Schedule, time: Timestamp) -> Option<Job> {
    let template = &cron.spec.job_template;
    let from = template.metadata.clone().unwrap_or_default();
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), schedule.local(time));
    Some(Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron.metadata.name.as_deref()?, time.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: from.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![claim::reference(cron)?]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    })
}

/// How a Job ended, if it did.
fn ended(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| {
            condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed")
        })
        .map(|condition| condition.type_.as_str())
}

/// Brings the list of active Jobs up to date.
fn follow(owned: &[&Job], plan: &mut Plan) {
    let mut active: Vec<ObjectReference> = plan.status.active.take().unwrap_or_default();
    for job in owned {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let listed = active.iter().any(|active| active.uid == job.metadata.uid);
        match (listed, ended(job)) {
            (false, None) => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.warn("UnexpectedJob", message);
            }
            (true, Some(condition)) => {
                active.retain(|active| active.uid != job.metadata.uid);
                plan.notes.push(Note {
                    warning: false,
                    reason: "SawCompletedJob",
                    message: format!("Saw completed job: {name}, condition: {condition}"),
                });
            }
            _ => {}
        }
        if ended(job) == Some("Complete")
            && let Some(time) = job.status.as_ref().and_then(|status| status.completion_time.as_ref())
            && plan.status.last_successful_time.as_ref().is_none_or(|last| last.0 < time.0)
        {
            plan.status.last_successful_time = Some(time.clone());
        }
    }
    active.retain(|active| {
        let present = owned.iter().any(|job| job.metadata.uid == active.uid);
        if !present {
            let name = active.name.as_deref().unwrap_or_default();
            let message = format!("Active job went missing: {name}");
            plan.notes.push(Note { warning: false, reason: "MissingJob", message });
        }
        present
    });
    plan.status.active = (!active.is_empty()).then_some(active);
}

/// Jobs that ended and are more than are kept, the oldest.
fn history(cron: &CronJob, owned: &[&Job]) -> Vec<String> {
    let spec = &cron.spec;
    let mut gone = Vec::new();
    for (condition, limit) in [
        ("Complete", spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", spec.failed_jobs_history_limit.unwrap_or(1)),
    ] {
        let mut jobs: Vec<&&Job> = owned
            .iter()
            .filter(|job| ended(job) == Some(condition) && job.metadata.deletion_timestamp.is_none())
            .collect();
        jobs.sort_by_key(|job| {
            let started =
                job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (started, job.metadata.name.clone())
        });
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        gone.extend(jobs.iter().take(surplus).filter_map(|job| job.metadata.name.clone()));
    }
    gone
}

/// How the status refers to a Job that was started.
pub fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some(Job::api_version(&()).into_owned()),
        kind: Some(Job::kind(&()).into_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

impl Plan {
    fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note { warning: true, reason, message: message.into() });
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
