//! What a Job needs next, and what its status says.
//!
//! A pod that has ended is counted in three moves, so that a crash between any two loses and repeats nothing: its uid
//! is noted in the status as uncounted, its finalizer is removed, and only then it moves from the note to the count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::failure::{self, Verdict};
use super::{indexes, pod};
use crate::pods;

/// First delay before a failed pod is replaced; doubles with every failure in a row.
const BACK_OFF: i64 = 10;
const MAX_BACK_OFF: i64 = 600;
/// No more pods than this are created in one go.
const BURST: usize = 500;
/// No more uids than this are noted at a time: the status must not grow with the Job.
const MAX_UNCOUNTED: usize = 500;

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Pods to create: their indexes, or nothing for a Job without.
    pub create: Vec<Option<i32>>,
    /// How often indexes have failed, for Jobs that limit it by index.
    pub failures: BTreeMap<i32, i32>,
    /// Names of pods to delete.
    pub delete: Vec<String>,
    /// Names of pods whose finalizer goes, after the status is written.
    pub release: Vec<String>,
    /// The status that is true now.
    pub status: JobStatus,
    /// The Job itself is to be deleted: it ended long enough ago.
    pub expired: bool,
    /// When to look again though nothing changes.
    pub again: Option<Duration>,
}

/// What the Job needs next, given the pods that it controls.
pub fn plan(job: &Job, owned: &[impl AsRef<Pod>], now: Timestamp) -> Plan {
    let owned: Vec<&Pod> = owned.iter().map(AsRef::as_ref).collect();
    let mut status = job.status.clone().unwrap_or_default();
    if let Some(ended) = ended_at(&status) {
        return finished(job, &owned, ended, now);
    }
    if job.metadata.deletion_timestamp.is_some() {
        return Plan { release: tracked(&owned), status, ..Plan::default() };
    }
    let facts = Facts::of(job, &owned, &mut status, now);
    let mut plan = Plan { release: facts.release(&owned), ..Plan::default() };
    let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or_default();
    suspend(&mut status, suspended, now);
    let mut active: Vec<&Pod> = owned.iter().copied().filter(|pod| pods::is_active(pod)).collect();
    let verdict = outcome(job, &facts, &status, (suspended, active.len()), now);

    match &verdict {
        Some(end) => {
            announce(&mut status, end, now);
            plan.delete = active.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
            active.clear();
            let waiting = owned.iter().any(|pod| !pods::is_finished(pod))
                || facts.uncounted > 0
                || !plan.release.is_empty();
            if !waiting {
                conclude(&mut status, end, now);
            }
        }
        None if suspended => {
            plan.delete = active.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
            active.clear();
        }
        None => {
            plan.again = deadline(job, &status, now);
            let going: Vec<&Pod> = match replaces_only_ended(job) {
                true => owned.iter().copied().filter(|pod| pods::is_terminating(pod)).collect(),
                false => Vec::new(),
            };
            manage(job, &facts, (&active, &going), &mut plan, now);
            active.retain(|pod| !pod.metadata.name.as_ref().is_some_and(|name| plan.delete.contains(name)));
        }
    }
    let counted = |count: usize| i32::try_from(count).ok().filter(|count| *count != 0);
    status.active = counted(active.len() + plan.create.len());
    status.ready = Some(counted(active.iter().filter(|pod| pods::is_ready(pod)).count()).unwrap_or_default());
    status.terminating =
        Some(counted(owned.iter().filter(|pod| pods::is_terminating(pod)).count()).unwrap_or_default());
    plan.status = status;
    plan
}

/// What the pods and the status together say.
struct Facts {
    succeeded: i32,
    failed: i32,
    uncounted: usize,
    done: BTreeSet<i32>,
    failed_indexes: BTreeSet<i32>,
    failures_by_index: BTreeMap<i32, (i32, Option<Timestamp>)>,
    fail_job: Option<String>,
    last_failure: Option<Timestamp>,
    failures: i64,
    restarts: i32,
    noted: BTreeSet<String>,
}

impl Facts {
    /// Reads the pods and brings the counts of the status up to date.
    fn of(job: &Job, owned: &[&Pod], status: &mut JobStatus, now: Timestamp) -> Facts {
        if status.start_time.is_none() && !job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or_default()
        {
            status.start_time = seconds(now);
        }
        let limit = completions(job).unwrap_or(i32::MAX);
        let mut facts = Facts {
            succeeded: 0,
            failed: 0,
            uncounted: 0,
            done: indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), limit),
            failed_indexes: indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), limit),
            failures_by_index: BTreeMap::new(),
            fail_job: None,
            last_failure: None,
            failures: 0,
            restarts: 0,
            noted: BTreeSet::new(),
        };
        let note = status.uncounted_terminated_pods.take().unwrap_or_default();
        let mut note = (
            note.succeeded.unwrap_or_default().into_iter().collect::<BTreeSet<_>>(),
            note.failed.unwrap_or_default().into_iter().collect::<BTreeSet<_>>(),
        );
        let tracked: BTreeSet<&str> = owned
            .iter()
            .filter(|pod| pod::is_tracked(pod))
            .filter_map(|pod| pod.metadata.uid.as_deref())
            .collect();
        // The third move: a noted pod whose finalizer is gone is counted.
        let count = |noted: &mut BTreeSet<String>, total: &mut Option<i32>| {
            let before = noted.len();
            noted.retain(|uid| tracked.contains(uid.as_str()));
            let moved = i32::try_from(before - noted.len()).unwrap_or_default();
            *total = Some(total.unwrap_or_default() + moved).filter(|total| *total != 0);
        };
        count(&mut note.0, &mut status.succeeded);
        count(&mut note.1, &mut status.failed);
        for pod in owned {
            facts.look_at(job, pod, &mut note);
        }
        // A pod of an index that is done already counts once.
        facts.succeeded = match pod::is_indexed(job) {
            true => i32::try_from(facts.done.len()).unwrap_or(i32::MAX),
            false => status.succeeded.unwrap_or_default() + i32::try_from(note.0.len()).unwrap_or_default(),
        };
        facts.failed = status.failed.unwrap_or_default() + i32::try_from(note.1.len()).unwrap_or_default();
        facts.uncounted = note.0.len() + note.1.len();
        facts.noted.extend(note.0.iter().chain(&note.1).cloned());
        let some = |uids: BTreeSet<String>| (!uids.is_empty()).then(|| uids.into_iter().collect());
        status.uncounted_terminated_pods =
            Some(UncountedTerminatedPods { succeeded: some(note.0), failed: some(note.1) });
        if pod::is_indexed(job) {
            status.completed_indexes = Some(indexes::format(&facts.done)).filter(|text| !text.is_empty());
            if per_index(job).is_some() {
                status.failed_indexes = Some(indexes::format(&facts.failed_indexes));
            }
        }
        facts
    }

    fn look_at(&mut self, job: &Job, pod: &Pod, note: &mut (BTreeSet<String>, BTreeSet<String>)) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let index = pod::index(pod);
        let room = pod::is_tracked(pod) && note.0.len() + note.1.len() < MAX_UNCOUNTED;
        if pods::phase(pod) == "Succeeded" {
            self.done.extend(index);
            if room {
                note.0.insert(uid);
            }
        } else if has_failed(job, pod) {
            let verdict = failure::verdict(job, pod);
            if let Verdict::FailJob(why) = &verdict {
                self.fail_job.get_or_insert_with(|| why.clone());
            }
            if let Some(index) = index {
                // Each pod knows how often its index has failed before it.
                let failures = pod::failures(pod).saturating_add(i32::from(verdict != Verdict::Ignore));
                let (known, last) = self.failures_by_index.entry(index).or_default();
                *known = failures.max(*known);
                *last = ended(pod).max(*last);
                let over = per_index(job).is_some_and(|limit| *known > limit);
                if over || verdict == Verdict::FailIndex {
                    self.failed_indexes.insert(index);
                }
            }
            self.last_failure = self.last_failure.max(ended(pod));
            self.failures += 1;
            if room {
                let noted = if verdict == Verdict::Ignore { &mut self.noted } else { &mut note.1 };
                noted.insert(uid);
            }
        } else {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
            self.restarts +=
                statuses.unwrap_or_default().iter().map(|status| status.restart_count).sum::<i32>();
        }
    }

    /// The second move: pods that are noted lose their finalizer.
    fn release(&self, owned: &[&Pod]) -> Vec<String> {
        owned
            .iter()
            .filter(|pod| pod::is_tracked(pod))
            .filter(|pod| pod.metadata.uid.as_ref().is_some_and(|uid| self.noted.contains(uid)))
            .filter_map(|pod| pod.metadata.name.clone())
            .collect()
    }
}

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    success: bool,
    reason: String,
    message: String,
}

impl End {
    fn failure(reason: &str, message: impl Into<String>) -> Option<End> {
        Some(End { success: false, reason: reason.to_owned(), message: message.into() })
    }

    fn success(reason: &str, message: &str) -> Option<End> {
        Some(End { success: true, reason: reason.to_owned(), message: message.to_owned() })
    }
}

fn outcome(
    job: &Job,
    facts: &Facts,
    status: &JobStatus,
    (suspended, active): (bool, usize),
    now: Timestamp,
) -> Option<End> {
    // What was announced stays, whatever happens to the pods meanwhile.
    for (type_, success) in [("FailureTarget", false), ("SuccessCriteriaMet", true)] {
        if let Some(told) = condition(status, type_) {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return Some(End { success, reason: text(&told.reason), message: text(&told.message) });
        }
    }
    if let Some(why) = &facts.fail_job {
        return End::failure("PodFailurePolicy", why.clone());
    }
    let spec = job.spec.as_ref()?;
    let started = status.start_time.as_ref().map(|time| time.0.as_second());
    let late = spec
        .active_deadline_seconds
        .zip(started)
        .is_some_and(|(allowed, started)| now.as_second() - started >= allowed);
    if late && !suspended {
        return End::failure("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let limit = spec.backoff_limit.unwrap_or(if per_index(job).is_some() { i32::MAX } else { 6 });
    let on_failure =
        spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
    let restarted = on_failure && if limit == 0 { facts.restarts > 0 } else { facts.restarts >= limit };
    if facts.failed > limit || restarted {
        return End::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if pod::is_indexed(job) {
        let failed = i32::try_from(facts.failed_indexes.len()).unwrap_or(i32::MAX);
        if spec.max_failed_indexes.is_some_and(|most| failed > most) {
            return End::failure(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            );
        }
        if let Some(message) = enough(job, facts) {
            return End::success("SuccessPolicy", &message);
        }
        let over = facts.succeeded + failed >= completions(job).unwrap_or(i32::MAX);
        if over && failed > 0 {
            return End::failure("FailedIndexes", "Job has failed indexes");
        }
    }
    let reached = match completions(job) {
        Some(completions) => facts.succeeded >= completions,
        // Without a number, one success means that the work is done; the others may finish.
        None => facts.succeeded > 0 && active == 0,
    };
    if reached {
        End::success("CompletionsReached", "Reached expected number of succeeded pods")
    } else {
        None
    }
}

/// Whether a rule of `successPolicy` is met.
fn enough(job: &Job, facts: &Facts) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let limit = completions(job).unwrap_or(i32::MAX);
    let rules = &spec.success_policy.as_ref()?.rules;
    rules.iter().enumerate().find_map(|(index, rule)| {
        let wanted = rule.succeeded_indexes.as_deref().map(|text| indexes::parse(text, limit));
        let done = match &wanted {
            Some(wanted) => facts.done.intersection(wanted).count(),
            None => facts.done.len(),
        };
        let needed = rule
            .succeeded_count
            .and_then(|count| usize::try_from(count).ok())
            .or_else(|| wanted.as_ref().map(BTreeSet::len))?;
        (done >= needed).then(|| format!("Matched rules at index {index}"))
    })
}

/// Creates what is missing and deletes what is too much. Pods that are `going` still hold their place.
fn manage(job: &Job, facts: &Facts, (active, going): (&[&Pod], &[&Pod]), plan: &mut Plan, now: Timestamp) {
    let parallelism =
        usize::try_from(job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1)).unwrap_or_default();
    let left = completions(job)
        .map(|completions| usize::try_from(completions - facts.succeeded).unwrap_or_default());
    let wanted = match left {
        Some(left) => left.min(parallelism),
        None if facts.succeeded > 0 => active.len().min(parallelism),
        None => parallelism,
    };
    let mut surplus: Vec<&Pod> = Vec::new();
    let mut present = BTreeSet::new();
    if pod::is_indexed(job) {
        // Two pods of one index, or an index that is done or failed: the later ones are too many.
        for pod in active {
            match pod::index(pod) {
                Some(index)
                    if !facts.done.contains(&index)
                        && !facts.failed_indexes.contains(&index)
                        && present.insert(index) => {}
                _ => surplus.push(pod),
            }
        }
    }
    let kept = active.len() - surplus.len();
    if kept > wanted {
        let mut by_use: Vec<&Pod> = active.to_vec();
        by_use.sort_by_key(|pod| {
            (pods::is_ready(pod), std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|t| t.0)))
        });
        surplus.extend(by_use.into_iter().take(kept - wanted));
    }
    plan.delete = surplus.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    if kept + going.len() >= wanted {
        return;
    }
    present.extend(going.iter().filter_map(|pod| pod::index(pod)));
    let by_index = per_index(job).is_some();
    if let Some(wait) = back_off((facts.failures, facts.last_failure), now).filter(|_| !by_index) {
        plan.look_after(wait);
        return;
    }
    let missing = (wanted - kept - going.len()).min(BURST);
    plan.create = if pod::is_indexed(job) {
        let limit = completions(job).unwrap_or_default();
        let free = |index: &i32| {
            !facts.done.contains(index) && !facts.failed_indexes.contains(index) && !present.contains(index)
        };
        let mut indexes = Vec::new();
        for index in (0..limit).filter(free) {
            let failed = facts.failures_by_index.get(&index).filter(|_| by_index);
            match failed.and_then(|(count, last)| back_off((i64::from(*count), *last), now)) {
                // One that fails does not hold up the others.
                Some(wait) => plan.look_after(wait),
                None => indexes.push(Some(index)),
            }
            if indexes.len() == missing {
                break;
            }
        }
        indexes
    } else {
        vec![None; missing]
    };
    if by_index {
        plan.failures = facts.failures_by_index.iter().map(|(index, (count, _))| (*index, *count)).collect();
    }
}

impl Plan {
    fn look_after(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }
}

/// How long to wait after so many failures, the last at this time.
fn back_off((failures, last): (i64, Option<Timestamp>), now: Timestamp) -> Option<Duration> {
    let since = last?;
    let doublings = u32::try_from((failures - 1).clamp(0, 6)).unwrap_or_default();
    let delay = (BACK_OFF << doublings).min(MAX_BACK_OFF);
    // A clock that was set back makes nobody wait for longer than the back-off itself.
    let left = (since.as_second() + delay - now.as_second()).min(delay);
    u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
}

fn deadline(job: &Job, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let allowed = job.spec.as_ref()?.active_deadline_seconds?;
    let left = status.start_time.as_ref()?.0.as_second() + allowed - now.as_second();
    Some(Duration::from_secs(u64::try_from(left).unwrap_or_default()))
}

/// A Job that has ended keeps its pods; only their finalizers go, and in time itself.
fn finished(job: &Job, owned: &[&Pod], ended: Timestamp, now: Timestamp) -> Plan {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let left = ttl.map(|ttl| ended.as_second() + i64::from(ttl) - now.as_second());
    Plan {
        release: tracked(owned),
        status: job.status.clone().unwrap_or_default(),
        expired: left.is_some_and(|left| left <= 0),
        again: left
            .and_then(|left| u64::try_from(left).ok())
            .filter(|left| *left > 0)
            .map(Duration::from_secs),
        ..Plan::default()
    }
}

/// Names of the pods that have not been let go.
fn tracked(owned: &[&Pod]) -> Vec<String> {
    owned.iter().filter(|pod| pod::is_tracked(pod)).filter_map(|pod| pod.metadata.name.clone()).collect()
}

fn completions(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|spec| spec.completions)
}

fn per_index(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|spec| spec.backoff_limit_per_index)
}

/// Whether a pod is replaced only when its containers have ended.
fn replaces_only_ended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.pod_replacement_policy.as_deref()) == Some("Failed")
}

/// A pod that is deleted before it ends may never say how it ended: it has failed, unless only an end may be replaced.
fn has_failed(job: &Job, pod: &Pod) -> bool {
    let only_ended = replaces_only_ended(job);
    let deleted = pod.metadata.deletion_timestamp.is_some();
    match pods::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        "Pending" | "" => deleted,
        _ => deleted && !only_ended,
    }
}

fn condition<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_ && condition.status == "True")
}

fn ended_at(status: &JobStatus) -> Option<Timestamp> {
    let ended = condition(status, "Complete").or_else(|| condition(status, "Failed"))?;
    ended.last_transition_time.as_ref().map(|time| time.0)
}

/// When the last container of a pod ended; of one that never ran, when it was to be deleted.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let containers = statuses
        .unwrap_or_default()
        .iter()
        .filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let deleted = pod.metadata.deletion_timestamp.as_ref();
    containers.map(|time| time.0).max().or(deleted.map(|time| time.0))
}

fn seconds(now: Timestamp) -> Option<Time> {
    Timestamp::from_second(now.as_second()).map(Time).ok()
}

fn told(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: seconds(now),
        last_transition_time: seconds(now),
    }
}

/// What people are told about a status that follows another: reason, message, and whether it is good news.
pub fn news(before: Option<&JobStatus>, after: &JobStatus) -> Vec<(String, String, bool)> {
    let known = |condition: &JobCondition| {
        before.and_then(|status| status.conditions.as_ref()).is_some_and(|known| {
            known.iter().any(|known| known.type_ == condition.type_ && known.status == condition.status)
        })
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let new = after.conditions.iter().flatten().filter(|condition| !known(condition));
    new.filter_map(|condition| match (condition.type_.as_str(), condition.status.as_str()) {
        ("Complete", "True") => Some(("Completed".to_owned(), "Job completed".to_owned(), true)),
        ("Failed", "True") => Some((text(&condition.reason), text(&condition.message), false)),
        ("Suspended", "True") => Some(("Suspended".to_owned(), text(&condition.message), true)),
        ("Suspended", _) => Some(("Resumed".to_owned(), text(&condition.message), true)),
        _ => None,
    })
    .collect()
}

/// Says that the Job will end so, while its pods are still going.
fn announce(status: &mut JobStatus, end: &End, now: Timestamp) {
    let type_ = if end.success { "SuccessCriteriaMet" } else { "FailureTarget" };
    if condition(status, type_).is_none() {
        status.conditions.get_or_insert_default().push(told(type_, "True", &end.reason, &end.message, now));
    }
}

fn conclude(status: &mut JobStatus, end: &End, now: Timestamp) {
    let type_ = if end.success { "Complete" } else { "Failed" };
    if end.success {
        status.completion_time = seconds(now);
    }
    status.conditions.get_or_insert_default().push(told(type_, "True", &end.reason, &end.message, now));
}

fn suspend(status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let was = condition(status, "Suspended").is_some();
    let (next, reason, message) = match (was, suspended) {
        (false, true) => ("True", "JobSuspended", "Job suspended"),
        (true, false) => ("False", "JobResumed", "Job resumed"),
        _ => return,
    };
    status.start_time = if suspended { None } else { seconds(now) };
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "Suspended");
    conditions.push(told("Suspended", next, reason, message, now));
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
