//! How long a pod may stay on a node with taints.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It tolerates everything.
    ForEver,
    /// It goes after this time, or now.
    For(Duration),
}

/// How long a pod with these tolerations stays under these taints, of which only NoExecute counts; with each, for how
/// long the pod has been under it.
pub fn stay<'a>(taints: impl IntoIterator<Item = (&'a Taint, Duration)>, tolerations: &[Toleration]) -> Stay {
    let mut stay = Stay::ForEver;
    for (taint, been) in taints.into_iter().filter(|(taint, _)| taint.effect == "NoExecute") {
        let mut all = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if all.peek().is_none() {
            return Stay::For(Duration::ZERO);
        }
        // The shortest counts; a toleration without a time is no limit.
        let Some(seconds) = all.filter_map(|toleration| toleration.toleration_seconds).min() else {
            continue;
        };
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(been);
        stay = match stay {
            Stay::For(other) if other < left => Stay::For(other),
            _ => Stay::For(left),
        };
    }
    stay
}

/// Whether a toleration means a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect)
        || given(&toleration.key).is_some_and(|key| key != taint.key)
    {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            given(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(taints: Value, tolerations: Value) -> Stay {
        let (taints, tolerations): (Vec<Taint>, Vec<Toleration>) =
            (serde_json::from_value(taints).unwrap(), serde_json::from_value(tolerations).unwrap());
        stay(taints.iter().map(|taint| (taint, Duration::from_secs(60))), &tolerations)
    }

    #[test]
    fn pods_stay_as_long_as_they_tolerate_all_taints() {
        let taint = json!({"key": "k", "effect": "NoExecute"});
        let milder = json!([{"key": "k", "effect": "NoSchedule"}]);
        let seconds = |seconds: i64| json!({"key": "k", "operator": "Exists", "tolerationSeconds": seconds});
        assert_eq!(of(milder, json!([])), Stay::ForEver);
        assert_eq!(of(json!([taint]), json!([])), Stay::For(Duration::ZERO));
        assert_eq!(of(json!([taint]), json!([{"operator": "Exists"}])), Stay::ForEver);
        assert_eq!(of(json!([taint]), json!([seconds(300)])), Stay::For(Duration::from_secs(240)));
        assert_eq!(
            of(json!([taint]), json!([seconds(300), seconds(70)])),
            Stay::For(Duration::from_secs(10))
        );
        assert_eq!(of(json!([taint]), json!([seconds(-5)])), Stay::For(Duration::ZERO));
        assert_eq!(
            of(json!([taint]), json!([seconds(i64::MAX)])),
            Stay::For(Duration::from_secs(9_223_372_036_854_775_807 - 60))
        );
        let other = json!({"key": "l", "effect": "NoExecute"});
        assert_eq!(of(json!([taint, other]), json!([seconds(300)])), Stay::For(Duration::ZERO));
    }

    #[test]
    fn values_must_be_equal_unless_existence_is_enough() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        for (toleration, expected) in [
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "l", "operator": "Exists"}), false),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"value": "v"}), false),
        ] {
            assert_eq!(
                tolerates(&serde_json::from_value(toleration.clone()).unwrap(), &taint),
                expected,
                "{toleration}"
            );
        }
    }
}
