//! How fast an autoscaler may follow its metrics: stabilisation, rates and limits.

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
};
use k8s_openapi::jiff::Timestamp;
use shoal_objects::Quantity;

use super::usage::Tolerance;

/// As the real controller has it.
const DOWN_WINDOW: i32 = 300;
const TOLERANCE: f64 = 0.1;

/// What an autoscaler remembers of what it wanted and did.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Recommendations of so many seconds are regarded before anything is taken away, if the autoscaler does not say.
    down_window: i32,
    /// What metrics alone would have had.
    recommendations: Vec<(Timestamp, i32)>,
    /// Replicas that were added.
    ups: Vec<(Timestamp, i32)>,
    /// Replicas that were taken away.
    downs: Vec<(Timestamp, i32)>,
}

/// A number and why it is that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The number of replicas.
    pub replicas: i32,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: &'static str,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::lasting(DOWN_WINDOW)
    }
}

impl Memory {
    /// One that regards recommendations of so many seconds before anything is taken away.
    pub fn lasting(down_window: i32) -> Memory {
        Memory { down_window, recommendations: Vec::new(), ups: Vec::new(), downs: Vec::new() }
    }

    /// Before the first recommendation, what there is counts as one: a restart must not take anything away.
    pub fn begin(&mut self, replicas: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    /// Remembers that the number was changed.
    pub fn scaled(&mut self, from: i32, to: i32, now: Timestamp) {
        if to > from {
            self.ups.push((now, to - from));
        } else {
            self.downs.push((now, from - to));
        }
    }

    fn forget(&mut self, now: Timestamp, seconds: i32) {
        let recent = |entry: &(Timestamp, i32)| {
            entry.0.as_second() > now.as_second().saturating_sub(i64::from(seconds))
        };
        self.recommendations.retain(recent);
        self.ups.retain(recent);
        self.downs.retain(recent);
    }
}

fn rules(
    autoscaler: &HorizontalPodAutoscaler,
    of: fn(&HorizontalPodAutoscalerBehavior) -> Option<&HPAScalingRules>,
) -> Option<&HPAScalingRules> {
    autoscaler.spec.behavior.as_ref().and_then(of)
}

fn up(autoscaler: &HorizontalPodAutoscaler) -> Option<&HPAScalingRules> {
    rules(autoscaler, |behavior| behavior.scale_up.as_ref())
}

fn down(autoscaler: &HorizontalPodAutoscaler) -> Option<&HPAScalingRules> {
    rules(autoscaler, |behavior| behavior.scale_down.as_ref())
}

/// How far off the goal counts as on it.
pub fn tolerance(autoscaler: &HorizontalPodAutoscaler) -> Tolerance {
    let of = |rules: Option<&HPAScalingRules>| {
        let own = rules.and_then(|rules| rules.tolerance.as_ref());
        let own = own.and_then(|quantity| Quantity::parse(&quantity.0).ok());
        own.map_or(TOLERANCE, |quantity| quantity.milli_value() as f64 / 1000.0)
    };
    Tolerance { down: of(down(autoscaler)), up: of(up(autoscaler)) }
}

/// What recent recommendations make of a new one.
pub fn stabilize(
    autoscaler: &HorizontalPodAutoscaler,
    memory: &mut Memory,
    current: i32,
    wanted: i32,
    now: Timestamp,
) -> Limited {
    let window = |rules: Option<&HPAScalingRules>, usual: i32| {
        rules.and_then(|rules| rules.stabilization_window_seconds).unwrap_or(usual)
    };
    let (slow_up, slow_down) = (window(up(autoscaler), 0), window(down(autoscaler), memory.down_window));
    let longest = [up(autoscaler), down(autoscaler)]
        .into_iter()
        .flatten()
        .flat_map(|rules| rules.policies.iter().flatten())
        .map(|policy| policy.period_seconds)
        .chain([slow_up, slow_down, 15])
        .max();
    memory.forget(now, longest.unwrap_or(DOWN_WINDOW));
    let within = |seconds: i32| {
        let oldest = now.as_second().saturating_sub(i64::from(seconds));
        let recent = memory.recommendations.iter().filter(move |entry| entry.0.as_second() > oldest);
        recent.map(|entry| entry.1)
    };
    let lowest = within(slow_up).chain([wanted]).min().unwrap_or(wanted);
    let highest = within(slow_down).chain([wanted]).max().unwrap_or(wanted);
    memory.recommendations.push((now, wanted));
    let replicas = current.max(lowest).min(highest.max(lowest));
    let (reason, message) = if wanted >= current {
        (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        )
    } else {
        (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    };
    Limited { replicas, reason, message }
}

/// What rates and limits make of a number.
pub fn limit(
    autoscaler: &HorizontalPodAutoscaler,
    memory: &Memory,
    current: i32,
    wanted: i32,
    now: Timestamp,
) -> Limited {
    let spec = &autoscaler.spec;
    if wanted > current {
        let rate = fastest_up(up(autoscaler), memory, current, now).max(current);
        let (most, reason, message) = if spec.max_replicas > rate {
            let message = "the desired replica count is increasing faster than the maximum scale rate";
            (rate, "ScaleUpLimit", message)
        } else {
            let message = "the desired replica count is more than the maximum replica count";
            (spec.max_replicas, "TooManyReplicas", message)
        };
        if wanted > most {
            return Limited { replicas: most, reason, message };
        }
    } else if wanted < current {
        let rate = fastest_down(down(autoscaler), memory, current, now).min(current);
        let least = spec.min_replicas.unwrap_or(1);
        let (least, reason, message) = if least < rate {
            let message = "the desired replica count is decreasing faster than the maximum scale rate";
            (rate, "ScaleDownLimit", message)
        } else {
            (least, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
        };
        if wanted < least {
            return Limited { replicas: least, reason, message };
        }
    }
    let message = "the desired count is within the acceptable range";
    Limited { replicas: wanted, reason: "DesiredWithinRange", message }
}

/// The number of replicas when the period of a policy began.
fn at_start(memory: &Memory, current: i32, period: i32, now: Timestamp) -> i32 {
    let oldest = now.as_second().saturating_sub(i64::from(period));
    let sum = |changes: &[(Timestamp, i32)]| {
        let recent = changes.iter().filter(|change| change.0.as_second() > oldest);
        recent.fold(0_i32, |sum, change| sum.saturating_add(change.1))
    };
    current.saturating_sub(sum(&memory.ups)).saturating_add(sum(&memory.downs))
}

fn is_disabled(rules: Option<&HPAScalingRules>) -> bool {
    rules.and_then(|rules| rules.select_policy.as_deref()) == Some("Disabled")
}

fn prefers_least(rules: Option<&HPAScalingRules>) -> bool {
    rules.and_then(|rules| rules.select_policy.as_deref()) == Some("Min")
}

fn policies(rules: Option<&HPAScalingRules>, usual: &[(&str, i32)]) -> Vec<HPAScalingPolicy> {
    let own = rules.and_then(|rules| rules.policies.clone()).filter(|policies| !policies.is_empty());
    own.unwrap_or_else(|| {
        let policy = |(type_, value): &(&str, i32)| HPAScalingPolicy {
            type_: (*type_).to_owned(),
            value: *value,
            period_seconds: 15,
        };
        usual.iter().map(policy).collect()
    })
}

fn fastest_up(rules: Option<&HPAScalingRules>, memory: &Memory, current: i32, now: Timestamp) -> i32 {
    if is_disabled(rules) {
        return current;
    }
    let proposals = policies(rules, &[("Percent", 100), ("Pods", 4)]).into_iter().map(|policy| {
        let start = at_start(memory, current, policy.period_seconds, now);
        if policy.type_ == "Pods" {
            return start.saturating_add(policy.value);
        }
        (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32
    });
    if prefers_least(rules) { proposals.min() } else { proposals.max() }.unwrap_or(current)
}

fn fastest_down(rules: Option<&HPAScalingRules>, memory: &Memory, current: i32, now: Timestamp) -> i32 {
    if is_disabled(rules) {
        return current;
    }
    let proposals = policies(rules, &[("Percent", 100)]).into_iter().map(|policy| {
        let start = at_start(memory, current, policy.period_seconds, now);
        if policy.type_ == "Pods" {
            return start.saturating_sub(policy.value);
        }
        (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32
    });
    if prefers_least(rules) { proposals.max() } else { proposals.min() }.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn autoscaler(behavior: Value) -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({"metadata": {"name": "h"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "behavior": behavior}}))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn less_is_believed_only_after_it_was_wanted_for_some_time() {
        let plain = autoscaler(json!(null));
        let mut memory = Memory::default();
        memory.begin(6, at(0));
        let first = stabilize(&plain, &mut memory, 6, 2, at(15));
        assert_eq!((first.replicas, first.reason), (6, "ScaleDownStabilized"));
        assert_eq!(stabilize(&plain, &mut memory, 6, 9, at(30)).replicas, 9, "more is believed at once");
        assert_eq!(stabilize(&plain, &mut memory, 9, 2, at(320)).replicas, 9);
        assert_eq!(stabilize(&plain, &mut memory, 9, 2, at(331)).replicas, 2);
    }

    #[test]
    fn growth_is_limited_by_the_fastest_policy_and_the_maximum() {
        let plain = autoscaler(json!(null));
        let mut memory = Memory::default();
        let step = limit(&plain, &memory, 2, 18, at(100));
        assert_eq!((step.replicas, step.reason), (6, "ScaleUpLimit"), "four pods are more than double");
        memory.scaled(2, 6, at(100));
        assert_eq!(limit(&plain, &memory, 6, 18, at(105)).replicas, 6, "in the same period no more");
        assert_eq!(limit(&plain, &memory, 6, 18, at(116)).replicas, 12);
        let step = limit(&plain, &Memory::default(), 15, 40, at(100));
        assert_eq!((step.replicas, step.reason), (20, "TooManyReplicas"));
        let step = limit(&plain, &Memory::default(), 5, 1, at(100));
        assert_eq!((step.replicas, step.reason), (2, "TooFewReplicas"));
    }

    #[test]
    fn policies_and_their_selection_are_respected() {
        let slow = autoscaler(json!({"scaleDown": {"selectPolicy": "Min", "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
            "scaleUp": {"selectPolicy": "Disabled"}}));
        let step = limit(&slow, &Memory::default(), 10, 2, at(100));
        assert_eq!((step.replicas, step.reason), (9, "ScaleDownLimit"));
        assert_eq!(limit(&slow, &Memory::default(), 10, 15, at(100)).replicas, 10);
        let tolerant = autoscaler(json!({"scaleUp": {"tolerance": "500m"}}));
        assert_eq!(tolerance(&tolerant), Tolerance { down: 0.1, up: 0.5 });
    }
}
