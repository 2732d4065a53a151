//! What an autoscaler does, from the size of its target and what its metrics say.

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::behavior::{self, Memory};

pub(super) const ABLE: &str = "AbleToScale";
pub(super) const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

/// What one metric says.
pub type Measured = Result<Found, Failed>;

/// A metric that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What it is, for people.
    pub name: String,
    /// How many replicas it wants.
    pub replicas: i32,
    /// What the status says of it.
    pub status: MetricStatus,
}

/// A metric that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
    /// Which value it was.
    pub value: String,
}

/// Whether metrics are needed to know the size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nobody wants the target to run.
    Disabled,
    /// The target is outside its limits: this size, for this reason.
    Fixed(i32, &'static str),
    /// They are.
    Metrics,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The size to give the target, and why.
    pub rescale: Option<(i32, String)>,
    /// The status that is true now, before the target is changed.
    pub status: HorizontalPodAutoscalerStatus,
    /// Warnings: reason and message.
    pub warnings: Vec<(&'static str, String)>,
}

/// Whether metrics are needed for a target of this size.
pub fn need(autoscaler: &HorizontalPodAutoscaler, current: i32) -> Need {
    let least = autoscaler.spec.min_replicas.unwrap_or(1);
    if current == 0 && least != 0 {
        Need::Disabled
    } else if current > autoscaler.spec.max_replicas {
        Need::Fixed(autoscaler.spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    } else if current < least {
        Need::Fixed(least, "Current number of replicas below Spec.MinReplicas")
    } else {
        Need::Metrics
    }
}

/// What to do about a target of this size.
pub fn plan(
    autoscaler: &HorizontalPodAutoscaler,
    current: i32,
    measured: &[Measured],
    memory: &mut Memory,
    now: Timestamp,
) -> Plan {
    let mut status = autoscaler.status.clone().unwrap_or_default();
    status.current_replicas = Some(current);
    status.current_metrics = None;
    let mut plan = Plan { rescale: None, status, warnings: Vec::new() };
    let message = "the HPA controller was able to get the target's current scale";
    plan.tell(ABLE, true, "SucceededGetScale", message, now);
    memory.begin(current, now);
    match need(autoscaler, current) {
        Need::Disabled => {
            let message = "scaling is disabled since the replica count of the target is zero";
            plan.tell(ACTIVE, false, "ScalingDisabled", message, now);
            plan.status.desired_replicas = 0;
        }
        Need::Fixed(replicas, why) => plan.resize(current, replicas, why),
        Need::Metrics => {
            let statuses = measured.iter().map(|one| match one {
                Ok(found) => found.status.clone(),
                Err(_) => MetricStatus::default(),
            });
            plan.status.current_metrics = Some(statuses.collect());
            if let Some(found) = plan.judge(current, measured, now) {
                plan.follow(autoscaler, current, found, memory, now);
            }
        }
    }
    plan
}

/// The status when the target's size could not be read.
pub fn unreadable(autoscaler: &HorizontalPodAutoscaler, why: &str, now: Timestamp) -> Plan {
    let status = autoscaler.status.clone().unwrap_or_default();
    let mut plan = Plan { rescale: None, status, warnings: vec![("FailedGetScale", why.to_owned())] };
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    plan.tell(ABLE, false, "FailedGetScale", &message, now);
    plan
}

impl Plan {
    /// The size was changed.
    pub fn succeed(&mut self, replicas: i32, now: Timestamp) {
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        self.tell(ABLE, true, "SucceededRescale", &message, now);
        self.status.desired_replicas = replicas;
        self.status.last_scale_time = seconds(now);
    }

    /// The size could not be changed.
    pub fn fail(&mut self, before: i32, why: &str, now: Timestamp) {
        let message = format!("the HPA controller was unable to update the target scale: {why}");
        self.tell(ABLE, false, "FailedUpdateScale", &message, now);
        self.status.desired_replicas = before;
    }

    fn tell(&mut self, type_: &str, status: bool, reason: &str, message: &str, now: Timestamp) {
        let conditions = self.status.conditions.get_or_insert_default();
        let mut next = HorizontalPodAutoscalerCondition {
            type_: type_.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: seconds(now),
        };
        match conditions.iter_mut().find(|present| present.type_ == type_) {
            Some(present) => {
                if present.status == next.status {
                    next.last_transition_time = present.last_transition_time.clone();
                }
                *present = next;
            }
            None => conditions.push(next),
        }
    }

    /// The metric that wants most. A metric that is missing may be the one that needs what would be taken away.
    fn judge<'a>(&mut self, current: i32, measured: &'a [Measured], now: Timestamp) -> Option<&'a Found> {
        let failed: Vec<&Failed> = measured.iter().filter_map(|one| one.as_ref().err()).collect();
        let found = measured.iter().filter_map(|one| one.as_ref().ok());
        // Of equals the first.
        let most = found.reduce(|most, one| if one.replicas > most.replicas { one } else { most });
        for failure in &failed {
            self.warnings.push((failure.reason, failure.message.clone()));
        }
        if let Some(first) = failed.first()
            && most.is_none_or(|most| most.replicas < current)
        {
            let message = format!("the HPA was unable to compute the replica count: {}", first.message);
            self.tell(ACTIVE, false, first.reason, &message, now);
            let message = format!(
                "invalid metrics ({} invalid out of {}), first error is: failed to get {}: {}",
                failed.len(),
                measured.len(),
                first.value,
                first.message
            );
            self.warnings.push(("FailedComputeMetricsReplicas", message));
            return None;
        }
        most
    }

    fn follow(
        &mut self,
        autoscaler: &HorizontalPodAutoscaler,
        current: i32,
        found: &Found,
        memory: &mut Memory,
        now: Timestamp,
    ) {
        let name = &found.name;
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        self.tell(ACTIVE, true, "ValidMetricFound", &message, now);
        let steady = behavior::stabilize(autoscaler, memory, current, found.replicas, now);
        if steady.replicas == found.replicas {
            self.tell(ABLE, true, "ReadyForNewScale", "recommended size matches current size", now);
        } else {
            self.tell(ABLE, true, steady.reason, steady.message, now);
        }
        let limited = behavior::limit(autoscaler, memory, current, steady.replicas, now);
        let is_limited = limited.replicas != steady.replicas;
        self.tell(LIMITED, is_limited, limited.reason, limited.message, now);
        let why = match limited.replicas > current {
            true => format!("{name} above target"),
            false => "All metrics below target".to_owned(),
        };
        self.resize(current, limited.replicas, &why);
    }

    fn resize(&mut self, current: i32, replicas: i32, why: &str) {
        self.status.desired_replicas = replicas;
        self.rescale = (replicas != current).then(|| (replicas, why.to_owned()));
    }
}

fn seconds(now: Timestamp) -> Option<Time> {
    Timestamp::from_second(now.as_second()).map(Time).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn autoscaler() -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({"metadata": {"name": "h"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 5}}))
        .unwrap()
    }

    fn found(replicas: i32) -> Measured {
        Ok(Found { name: "cpu resource".to_owned(), replicas, status: MetricStatus::default() })
    }

    fn failed() -> Measured {
        let message = "failed to get cpu utilization: no metrics".to_owned();
        Err(Failed { reason: "FailedGetResourceMetric", message, value: "cpu resource metric value".to_owned() })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn told(plan: &Plan) -> Vec<String> {
        let conditions = plan.status.conditions.iter().flatten();
        conditions.map(|c| format!("{}={} {}", c.type_, c.status, c.reason.as_deref().unwrap())).collect()
    }

    #[test]
    fn without_metrics_nothing_is_scaled_and_the_condition_says_why() {
        let plan = plan(&autoscaler(), 2, &[failed()], &mut Memory::default(), at(0));
        assert_eq!(plan.rescale, None);
        assert_eq!(
            told(&plan),
            ["AbleToScale=True SucceededGetScale", "ScalingActive=False FailedGetResourceMetric"]
        );
        assert_eq!((plan.status.current_replicas, plan.status.desired_replicas), (Some(2), 0));
        assert_eq!(plan.status.current_metrics.map(|metrics| metrics.len()), Some(1));
    }

    #[test]
    fn the_metric_that_wants_most_wins_and_the_limits_hold() {
        let plan = plan(&autoscaler(), 2, &[found(3), found(9)], &mut Memory::default(), at(0));
        assert_eq!(plan.rescale, Some((5, "cpu resource above target".to_owned())));
        assert_eq!(
            told(&plan),
            [
                "AbleToScale=True ReadyForNewScale",
                "ScalingActive=True ValidMetricFound",
                "ScalingLimited=True TooManyReplicas"
            ]
        );
    }

    #[test]
    fn a_missing_metric_forbids_less_but_not_more() {
        let mut memory = Memory::default();
        assert_eq!(plan(&autoscaler(), 4, &[found(2), failed()], &mut memory, at(0)).rescale, None);
        let more = plan(&autoscaler(), 2, &[found(4), failed()], &mut Memory::default(), at(0));
        assert_eq!(more.rescale.unwrap().0, 4);
    }

    #[test]
    fn a_target_outside_its_limits_needs_no_metrics() {
        let mut memory = Memory::default();
        assert_eq!(plan(&autoscaler(), 9, &[], &mut memory, at(0)).rescale.unwrap().0, 5);
        let off = plan(&autoscaler(), 0, &[], &mut memory, at(0));
        assert_eq!((off.rescale.clone(), told(&off)[1].as_str()), (None, "ScalingActive=False ScalingDisabled"));
    }
}
