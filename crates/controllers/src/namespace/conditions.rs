//! What holds a namespace that is to go, in words.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::sweep::Remains;

/// The five conditions of a namespace that is not gone yet.
pub fn of(remains: &[Remains], failed: &[String]) -> Vec<NamespaceCondition> {
    let problem = (!failed.is_empty()).then(|| {
        format!("Discovery failed for some groups, {} failing: {}", failed.len(), failed.join(", "))
    });
    let errors: Vec<&str> = remains.iter().filter_map(|remains| remains.error.as_deref()).collect();
    let failure = (!errors.is_empty()).then(|| {
        format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "))
    });
    let left: Vec<String> = remains.iter().filter(|remains| remains.count > 0).map(describe).collect();
    let left = (!left.is_empty()).then(|| format!("Some resources are remaining: {}", left.join(", ")));
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (finalizer, count) in remains.iter().flat_map(|remains| &remains.finalizers) {
        *counts.entry(finalizer).or_default() += count;
    }
    let held: Vec<String> = counts
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let held = (!held.is_empty())
        .then(|| format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")));
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            problem,
            "DiscoveryFailed",
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            "GroupVersionParsingFailed",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            failure,
            "ContentDeletionFailed",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        condition(
            "NamespaceContentRemaining",
            left,
            "SomeResourcesRemain",
            ("ContentRemoved", "All content successfully removed"),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            held,
            "SomeFinalizersRemain",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ]
}

fn describe(remains: &Remains) -> String {
    let resource = &remains.kind.resource;
    format!("{}.{} has {} resource instances", resource.plural, resource.group, remains.count)
}

fn condition(
    type_: &str,
    trouble: Option<String>,
    reason: &str,
    (fine, all_well): (&str, &str),
) -> NamespaceCondition {
    let (status, reason) = if trouble.is_some() { ("True", reason) } else { ("False", fine) };
    NamespaceCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(trouble.unwrap_or_else(|| all_well.to_owned())),
        last_transition_time: None,
    }
}

/// Puts conditions in their place. The time is that of the last change of a status.
pub fn merge(present: &mut Vec<NamespaceCondition>, wanted: &[NamespaceCondition], now: Timestamp) {
    for condition in wanted {
        let known = present.iter_mut().find(|known| known.type_ == condition.type_);
        let since = known
            .as_ref()
            .filter(|known| known.status == condition.status)
            .and_then(|known| known.last_transition_time.clone());
        let next = NamespaceCondition {
            last_transition_time: since.or(Some(Time(seconds(now)))),
            ..condition.clone()
        };
        match known {
            Some(known) => *known = next,
            None => present.push(next),
        }
    }
}

/// Times in the API have whole seconds: with more, an object that was read would differ from the one that was written.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::remains;

    #[test]
    fn what_holds_a_namespace_is_named() {
        let told = of(&[remains("configmaps", 1, &[("x.test/hold", 1)])], &[]);
        let text = |place: usize| told[place].message.clone().unwrap();
        assert_eq!(text(3), "Some resources are remaining: configmaps. has 1 resource instances");
        assert_eq!(
            text(4),
            "Some content in the namespace has finalizers remaining: x.test/hold in 1 resource instances"
        );
        let states: Vec<&str> = told.iter().map(|condition| condition.status.as_str()).collect();
        assert_eq!(states, ["False", "False", "False", "True", "True"]);
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_only() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut present = Vec::new();
        merge(&mut present, &of(&[remains("pods", 2, &[])], &[]), at(1));
        merge(&mut present, &of(&[remains("pods", 1, &[])], &["g/v1".to_owned()]), at(2));
        let times: Vec<i64> =
            present.iter().map(|c| c.last_transition_time.as_ref().unwrap().0.as_second()).collect();
        assert_eq!(times, [2, 1, 1, 1, 1]);
        assert!(present[0].message.as_ref().unwrap().ends_with("1 failing: g/v1"));
    }
}
