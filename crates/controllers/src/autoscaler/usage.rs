//! From what pods use to how many there should be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use shoal_objects::Quantity;

use crate::pods;

/// Since when the CPU usage of a pod says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starting {
    /// For so many seconds after its start a pod's CPU usage says little: it may still be starting.
    pub initialization: i64,
    /// A pod that was never ready within so many seconds of its start has never been ready.
    pub initial_readiness: i64,
}

impl Default for Starting {
    fn default() -> Starting {
        Starting { initialization: 300, initial_readiness: 30 }
    }
}

/// What a pod was measured to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Usage in thousandths.
    pub milli: i64,
    /// When it was measured.
    pub at: Timestamp,
    /// Over how many seconds.
    pub window: i64,
}

/// What a metric wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Percent of what pods request.
    Utilization(i32),
    /// Thousandths per pod.
    Average(i64),
}

/// What is measured of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure<'a> {
    /// `cpu`, `memory` and the like.
    pub resource: &'a str,
    /// Of one container only.
    pub container: Option<&'a str>,
}

/// How far off the goal counts as on it: for less and for more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For scaling down.
    pub down: f64,
    /// For scaling up.
    pub up: f64,
}

/// What a metric says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// So many replicas would bring it to its goal.
    pub replicas: i32,
    /// Usage in percent of requests, where that was asked for.
    pub utilization: Option<i32>,
    /// Thousandths per pod.
    pub average: i64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// Pods by what their samples are worth.
struct Groups<'a> {
    ready: BTreeMap<&'a str, i64>,
    unready: Vec<&'a str>,
    missing: Vec<&'a str>,
}

/// How many replicas would bring the usage to its goal.
pub fn read(
    replicas: i32,
    pods: &[impl AsRef<Pod>],
    samples: &BTreeMap<String, Sample>,
    (measure, goal): (Measure<'_>, Goal),
    (tolerance, starting): (Tolerance, Starting),
    now: Timestamp,
) -> Result<Reading, String> {
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(&pods, samples, measure, (starting, now));
    if groups.ready.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let requests = match goal {
        Goal::Utilization(_) => requests(&pods, measure)?,
        Goal::Average(_) => BTreeMap::new(),
    };
    let ratio_of = |used: &BTreeMap<&str, i64>| ratio(used, &requests, goal);
    let (first, utilization, average) = ratio_of(&groups.ready)?;
    let count = |ratio: f64, pods: usize| to_replicas(ratio * pods as f64);
    let reading = |replicas: i32| Reading { replicas, utilization, average };
    let with_unready = !groups.unready.is_empty() && first > 1.0;
    if !with_unready && groups.missing.is_empty() {
        let stay = tolerance.covers(first);
        return Ok(reading(if stay { replicas } else { count(first, groups.ready.len()) }));
    }
    // What is not known is taken to be against the change.
    let mut used = groups.ready.clone();
    for pod in &groups.missing {
        let request = requests.get(pod).copied().unwrap_or_default();
        let assumed = match goal {
            _ if first > 1.0 => 0,
            Goal::Utilization(percent) => request.saturating_mul(i64::from(percent.max(100))) / 100,
            Goal::Average(milli) => milli,
        };
        if first != 1.0 {
            used.insert(pod, assumed);
        }
    }
    if with_unready {
        used.extend(groups.unready.iter().map(|pod| (*pod, 0)));
    }
    let (second, ..) = ratio_of(&used)?;
    if tolerance.covers(second) || (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0) {
        return Ok(reading(replicas));
    }
    let next = count(second, used.len());
    let against = (second < 1.0 && next > replicas) || (second > 1.0 && next < replicas);
    Ok(reading(if against { replicas } else { next }))
}

fn to_replicas(exact: f64) -> i32 {
    // As casts do: a number beyond the type is its end, and nonsense is zero.
    exact.ceil() as i32
}

/// Usage relative to the goal, in percent of requests, and per pod.
fn ratio(
    used: &BTreeMap<&str, i64>,
    requests: &BTreeMap<&str, i64>,
    goal: Goal,
) -> Result<(f64, Option<i32>, i64), String> {
    let total: i64 = used.values().fold(0, |sum, used| sum.saturating_add(*used));
    let average = total / i64::try_from(used.len()).unwrap_or(1).max(1);
    match goal {
        Goal::Utilization(percent) => {
            let wanted = used.keys().filter_map(|pod| requests.get(pod));
            let wanted: i64 = wanted.fold(0, |sum, request| sum.saturating_add(*request));
            if wanted == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = i32::try_from(total.saturating_mul(100) / wanted).unwrap_or(i32::MAX);
            Ok((f64::from(utilization) / f64::from(percent.max(1)), Some(utilization), average))
        }
        Goal::Average(milli) => Ok((average as f64 / milli.max(1) as f64, None, average)),
    }
}

fn group<'a>(
    pods: &[&'a Pod],
    samples: &BTreeMap<String, Sample>,
    measure: Measure<'_>,
    (starting, now): (Starting, Timestamp),
) -> Groups<'a> {
    let mut groups = Groups { ready: BTreeMap::new(), unready: Vec::new(), missing: Vec::new() };
    for pod in pods {
        let Some(name) = pod.metadata.name.as_deref() else { continue };
        if pod.metadata.deletion_timestamp.is_some() || pods::is_finished(pod) {
            continue;
        }
        if pods::phase(pod) == "Pending" {
            groups.unready.push(name);
            continue;
        }
        match samples.get(name) {
            None => groups.missing.push(name),
            Some(sample) if measure.resource == "cpu" && starting.includes(pod, sample, now) => {
                groups.unready.push(name);
            }
            Some(sample) => {
                groups.ready.insert(name, sample.milli);
            }
        }
    }
    groups
}

impl Starting {
    /// Whether the CPU that a pod uses may be that of its start.
    fn includes(self, pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let (Some(started), Some(ready)) = (started, pods::condition(pod, "Ready")) else { return true };
        let started = started.0.as_second();
        let since = ready.last_transition_time.as_ref().map_or(started, |time| time.0.as_second());
        let not_ready = ready.status == "False";
        if started.saturating_add(self.initialization) > now.as_second() {
            return not_ready || sample.at.as_second() < since.saturating_add(sample.window);
        }
        not_ready && started.saturating_add(self.initial_readiness) > since
    }
}

/// What pods request, in thousandths.
fn requests<'a>(pods: &[&'a Pod], measure: Measure<'_>) -> Result<BTreeMap<&'a str, i64>, String> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let Some(name) = pod.metadata.name.as_deref() else { continue };
        let mut sum: i64 = 0;
        for container in counted(pod, measure) {
            let request = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            let request = request.and_then(|requests| requests.get(measure.resource));
            let request =
                request.and_then(|quantity| Quantity::parse(&quantity.0).ok()).ok_or_else(|| {
                    let (resource, container) = (measure.resource, &container.name);
                    format!("missing request for {resource} in container {container} of Pod {name}")
                })?;
            sum = sum.saturating_add(request.milli_value());
        }
        all.insert(name, sum);
    }
    Ok(all)
}

/// Containers whose usage counts: those that run as long as the pod does.
fn counted<'a>(pod: &'a Pod, measure: Measure<'a>) -> impl Iterator<Item = &'a Container> {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|init| init.restart_policy.as_deref() == Some("Always"));
    containers
        .iter()
        .chain(sidecars)
        .filter(move |container| measure.container.is_none_or(|wanted| wanted == container.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    const TOLERANCE: Tolerance = Tolerance { down: 0.1, up: 0.1 };
    const CPU: Measure<'_> = Measure { resource: "cpu", container: None };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Pods that request one core each and have been ready for long; those above `ready` are pending.
    fn pods(count: usize, ready: usize) -> Vec<Arc<Pod>> {
        (0..count)
            .map(|index| {
                let phase = if index < ready { "Running" } else { "Pending" };
                let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
                let ready =
                    json!({"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"});
                Arc::new(
                    serde_json::from_value(json!({
                        "metadata": {"name": format!("p{index}")}, "spec": {"containers": [container]},
                        "status": {"phase": phase, "startTime": "1970-01-01T00:00:00Z", "conditions": [ready]}
                    }))
                    .unwrap(),
                )
            })
            .collect()
    }

    fn samples(milli: &[i64]) -> BTreeMap<String, Sample> {
        let sample = |milli: &i64| Sample { milli: *milli, at: at(9_990), window: 15 };
        milli.iter().enumerate().map(|(index, milli)| (format!("p{index}"), sample(milli))).collect()
    }

    fn wanted(count: usize, ready: usize, milli: &[i64], goal: Goal) -> i32 {
        let replicas = i32::try_from(count).unwrap();
        read(
            replicas,
            &pods(count, ready),
            &samples(milli),
            (CPU, goal),
            (TOLERANCE, Starting::default()),
            at(10_000),
        )
        .unwrap()
        .replicas
    }

    #[test]
    fn replicas_follow_the_ratio_of_usage_to_goal() {
        let half = Goal::Utilization(50);
        assert_eq!(wanted(2, 2, &[1000, 1000], half), 4);
        assert_eq!(wanted(4, 4, &[100, 100, 100, 100], half), 1);
        assert_eq!(wanted(2, 2, &[520, 520], half), 2, "within tolerance");
        assert_eq!(wanted(2, 2, &[900, 900], Goal::Average(300)), 6);
    }

    #[test]
    fn what_is_not_known_speaks_against_the_change() {
        let half = Goal::Utilization(50);
        assert_eq!(wanted(3, 3, &[1000, 1000], half), 4, "the third is taken to use nothing");
        assert_eq!(wanted(3, 3, &[100, 100], half), 3, "and here to use everything");
        assert_eq!(wanted(4, 2, &[1000, 1000], half), 4, "pods that are starting will help");
    }

    #[test]
    fn without_requests_or_samples_nothing_can_be_said() {
        let mut bare = pods(1, 1);
        Arc::make_mut(&mut bare[0]).spec.as_mut().unwrap().containers[0].resources = None;
        let goal = (CPU, Goal::Utilization(50));
        let error =
            read(1, &bare, &samples(&[10]), goal, (TOLERANCE, Starting::default()), at(10_000)).unwrap_err();
        assert_eq!(error, "missing request for cpu in container c of Pod p0");
        assert!(
            read(1, &pods(1, 1), &samples(&[]), goal, (TOLERANCE, Starting::default()), at(10_000)).is_err()
        );
        let none: [Arc<Pod>; 0] = [];
        assert!(read(1, &none, &samples(&[1]), goal, (TOLERANCE, Starting::default()), at(10_000)).is_err());
    }
}
