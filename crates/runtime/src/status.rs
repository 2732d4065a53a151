//! Conditions: what is true of an object, since when, and for which generation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// What is said about one aspect of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The aspect, in CamelCase: `Ready`.
    pub type_: &'a str,
    /// True, false, or not known.
    pub status: Option<bool>,
    /// Why, for programs: one word in CamelCase.
    pub reason: &'a str,
    /// Why, for people.
    pub message: String,
}

/// Records a report in the conditions of an object of this generation. Tells whether anything has changed.
///
/// The transition time moves only when the status does.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    report: Report<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let status = match report.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    // Kubernetes keeps these times in whole seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut next = Condition {
        last_transition_time: now,
        message: report.message,
        observed_generation: generation,
        reason: report.reason.to_owned(),
        status: status.to_owned(),
        type_: report.type_.to_owned(),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == report.type_) {
        Some(present) => {
            if present.status == next.status {
                next.last_transition_time = present.last_transition_time.clone();
            }
            let changed = *present != next;
            *present = next;
            changed
        }
        None => {
            conditions.push(next);
            true
        }
    }
}

/// The condition of this type.
pub fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition is there and true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    condition(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: bool, message: &str) -> Report<'static> {
        let reason = if status { "Works" } else { "Waits" };
        Report { type_: "Ready", status: Some(status), reason, message: message.to_owned() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        assert!(set_condition(&mut conditions, report(false, "a"), Some(1), at(10)));
        assert!(!set_condition(&mut conditions, report(false, "a"), Some(1), at(20)));
        assert!(set_condition(&mut conditions, report(false, "b"), Some(2), at(30)));
        assert_eq!(condition(&conditions, "Ready").unwrap().last_transition_time, Time(at(10)));
        assert_eq!(condition(&conditions, "Ready").unwrap().observed_generation, Some(2));
        assert!(set_condition(&mut conditions, report(true, "c"), Some(2), at(40)));
        assert_eq!(condition(&conditions, "Ready").unwrap().last_transition_time, Time(at(40)));
        assert!(is_true(&conditions, "Ready"));
        assert_eq!(conditions.len(), 1);
    }
}
