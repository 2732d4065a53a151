//! Who a claim goes with: `persistentVolumeClaimRetentionPolicy` as owner references, so that the garbage collector
//! does the rest.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// What a claim is deleted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It stays.
    Nobody,
    /// The set.
    Set,
    /// Its pod, which is about to go.
    Pod,
}

/// What the claims of a pod are deleted with; `condemned`: the set has become too small for the pod.
pub fn holder(set: &StatefulSet, condemned: bool) -> Holder {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    let deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    match (scaled, deleted) {
        (true, _) if condemned => Holder::Pod,
        (_, true) => Holder::Set,
        _ => Holder::Nobody,
    }
}

/// Gives the claim the owner that it should have. A claim that someone else controls is left alone.
pub fn hold(claim: &mut PersistentVolumeClaim, set: &StatefulSet, pod: Option<&Pod>, holder: Holder) {
    let set_reference = set.controller_owner_ref(&());
    let pod_reference = pod.and_then(|pod| pod.controller_owner_ref(&()));
    let is = |one: &OwnerReference, other: &Option<OwnerReference>| {
        other.as_ref().is_some_and(|other| other.uid == one.uid)
    };
    let present = claim.metadata.owner_references.clone().unwrap_or_default();
    let foreign = present.iter().any(|reference| {
        reference.controller == Some(true)
            && !is(reference, &set_reference)
            // An earlier pod of the same name.
            && !(reference.kind == "Pod" && Some(&reference.name) == pod_name(pod))
    });
    if foreign {
        return;
    }
    let wanted = match holder {
        Holder::Nobody => None,
        Holder::Set => set_reference.clone(),
        Holder::Pod => pod_reference.clone(),
    };
    if present.iter().any(|reference| is(reference, &wanted)) && present.len() == 1 {
        return;
    }
    let stays = |reference: &OwnerReference| {
        !is(reference, &set_reference) && !(reference.kind == "Pod" && Some(&reference.name) == pod_name(pod))
    };
    let mut next: Vec<OwnerReference> = present.into_iter().filter(stays).collect();
    next.extend(wanted);
    claim.metadata.owner_references = (!next.is_empty()).then_some(next);
}

fn pod_name(pod: Option<&Pod>) -> Option<&String> {
    pod.and_then(|pod| pod.metadata.name.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(policy: Value) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "db", "uid": "s"},
            "spec": {"selector": {}, "template": {}, "persistentVolumeClaimRetentionPolicy": policy}
        }))
        .unwrap()
    }

    #[test]
    fn the_policy_says_what_a_claim_goes_with() {
        for (scaled, deleted, condemned, expected) in [
            ("Retain", "Retain", true, Holder::Nobody),
            ("Delete", "Retain", false, Holder::Nobody),
            ("Delete", "Retain", true, Holder::Pod),
            ("Retain", "Delete", true, Holder::Set),
            ("Delete", "Delete", false, Holder::Set),
            ("Delete", "Delete", true, Holder::Pod),
        ] {
            let set = set(json!({"whenScaled": scaled, "whenDeleted": deleted}));
            assert_eq!(holder(&set, condemned), expected, "{scaled} {deleted} {condemned}");
        }
    }

    #[test]
    fn a_claim_has_one_owner_or_none_and_others_are_respected() {
        let set = set(json!({}));
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "db-0", "uid": "p"}})).unwrap();
        let owners = |claim: &PersistentVolumeClaim| {
            let references = claim.metadata.owner_references.iter().flatten();
            references.map(|reference| reference.uid.clone()).collect::<Vec<_>>()
        };
        let mut claim = PersistentVolumeClaim::default();
        for (next, expected) in [
            (Holder::Set, vec!["s"]),
            (Holder::Set, vec!["s"]),
            (Holder::Pod, vec!["p"]),
            (Holder::Nobody, vec![]),
        ] {
            hold(&mut claim, &set, Some(&pod), next);
            assert_eq!(owners(&claim), expected);
        }
        let other = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]);
        claim.metadata.owner_references = serde_json::from_value(other).unwrap();
        hold(&mut claim, &set, Some(&pod), Holder::Set);
        assert_eq!(owners(&claim), ["x"]);
    }
}
