//! Which volume serves a claim.

use std::path::Path;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_objects::Quantity;

use crate::claim;
use crate::daemonset::nodes::term_matches;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The provisioner whose volumes are folders of this machine.
pub const PROVISIONER: &str = "shoal.dev/local";
/// Who made a volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The class of a claim; nothing and empty both mean that there is none.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
}

/// Whether claims of a class get their volumes only when the node of their first pod is known.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The claim that a volume has, or waits for.
pub fn claim_of(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether a volume can be used on a node.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    affinity.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// The storage that a claim asks for.
pub fn wanted(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").and_then(|amount| Quantity::parse(&amount.0).ok())
}

fn capacity(volume: &PersistentVolume) -> Option<Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage").and_then(|amount| Quantity::parse(&amount.0).ok())
}

/// Whether a volume is meant for this claim, by name.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_of(volume).is_some_and(|reference| {
        reference.namespace == claim.metadata.namespace
            && reference.name == claim.metadata.name
            && reference.uid.as_ref().is_none_or(|uid| Some(uid) == claim.metadata.uid.as_ref())
    })
}

/// The volume for a claim: one that waits for it, or the smallest that is enough.
pub fn choose<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume> + Clone,
) -> Option<&'a PersistentVolume> {
    candidates(claim, volumes).first().copied()
}

/// The volumes that would do for a claim, the best first. If one waits for the claim, no other would.
pub fn candidates<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume> + Clone,
) -> Vec<&'a PersistentVolume> {
    if let Some(volume) = volumes.clone().find(|volume| is_for(volume, claim)) {
        return vec![volume];
    }
    let mut all: Vec<_> = volumes.filter(|volume| suits(volume, claim)).collect();
    all.sort_by(|a, b| (capacity(a), &a.metadata.name).cmp(&(capacity(b), &b.metadata.name)));
    all
}

fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(offered), Some(asked)) = (&volume.spec, &claim.spec) else { return false };
    let selected = asked.selector.is_none()
        || claim::selector(asked.selector.as_ref())
            .is_some_and(|selector| claim::matches(&selector, &volume.metadata));
    let modes = offered.access_modes.as_deref().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    volume.metadata.deletion_timestamp.is_none()
        && offered.claim_ref.is_none()
        && offered.storage_class_name.as_deref().unwrap_or_default() == class_of(claim)
        && asked.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && mode(&offered.volume_mode) == mode(&asked.volume_mode)
        && selected
        && capacity(volume) >= wanted(claim)
}

/// A volume in a folder, for this claim: of the node that was chosen for it, else of this machine.
pub fn provision(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    folder: &Path,
    node: Option<&Node>,
) -> Option<PersistentVolume> {
    let (namespace, name) = (claim.metadata.namespace.as_deref()?, claim.metadata.name.as_deref()?);
    let uid = claim.metadata.uid.as_deref()?;
    let spec = claim.spec.as_ref()?;
    let size = spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.clone();
    let volume = format!("pvc-{uid}");
    let path = folder.join(format!("{namespace}_{name}_{volume}"));
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume),
            annotations: Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some([("storage".to_owned(), Amount(size.0))].into()),
            access_modes: spec.access_modes.clone(),
            volume_mode: spec.volume_mode.clone(),
            claim_ref: Some(reference(claim)),
            persistent_volume_reclaim_policy: Some(
                class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
            ),
            storage_class_name: class.metadata.name.clone(),
            node_affinity: node.map(only_on),
            host_path: Some(HostPathVolumeSource {
                path: path.to_string_lossy().into_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

fn only_on(node: &Node) -> VolumeNodeAffinity {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
    let host = NodeSelectorRequirement {
        key: if label.is_some() { HOSTNAME } else { "metadata.name" }.to_owned(),
        operator: "In".to_owned(),
        values: Some(label.or(node.metadata.name.as_ref()).cloned().into_iter().collect()),
    };
    let term = match label {
        Some(_) => NodeSelectorTerm { match_expressions: Some(vec![host]), match_fields: None },
        None => NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![host]) },
    };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// How a volume names its claim.
pub fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let mut all =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": all}))
            .unwrap()
    }

    fn volume(name: &str, size: &str, spec: Value) -> PersistentVolume {
        let mut all = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"l": name}}, "spec": all}))
            .unwrap()
    }

    fn chosen(claim: &PersistentVolumeClaim, volumes: &[PersistentVolume]) -> Option<String> {
        choose(claim, volumes.iter()).and_then(|volume| volume.metadata.name.clone())
    }

    #[test]
    fn the_smallest_volume_that_is_enough_is_taken() {
        let volumes = [
            volume("small", "500Mi", json!({})),
            volume("large", "10Gi", json!({})),
            volume("fits", "2000Mi", json!({})),
            volume("other-class", "1Gi", json!({"storageClassName": "fast"})),
            volume("taken", "1Gi", json!({"claimRef": {"namespace": "n", "name": "x", "uid": "v"}})),
        ];
        assert_eq!(chosen(&claim(json!({})), &volumes).as_deref(), Some("fits"));
        assert_eq!(
            chosen(&claim(json!({"storageClassName": "fast"})), &volumes).as_deref(),
            Some("other-class")
        );
        assert_eq!(chosen(&claim(json!({"accessModes": ["ReadWriteMany"]})), &volumes), None);
        let picky = claim(json!({"selector": {"matchLabels": {"l": "large"}}}));
        assert_eq!(chosen(&picky, &volumes).as_deref(), Some("large"));
    }

    #[test]
    fn a_volume_that_waits_for_its_claim_goes_before_all_others() {
        let waiting = volume("w", "100Gi", json!({"claimRef": {"namespace": "n", "name": "c"}}));
        let of_the_past =
            volume("p", "1Gi", json!({"claimRef": {"namespace": "n", "name": "c", "uid": "old"}}));
        let free = volume("f", "1Gi", json!({}));
        assert_eq!(chosen(&claim(json!({})), &[free.clone(), of_the_past, waiting]).as_deref(), Some("w"));
        assert_eq!(chosen(&claim(json!({})), &[free]).as_deref(), Some("f"));
    }
}
