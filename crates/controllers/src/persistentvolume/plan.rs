//! Which volume serves a claim.

use std::path::Path;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_objects::Quantity;

use crate::claim;

/// The provisioner whose volumes are folders of this machine.
pub const PROVISIONER: &str = "shoal.dev/local";
/// Who made a volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The class of a claim; nothing and empty both mean that there is none.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
}

/// The storage that a claim asks for.
fn wanted(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").and_then(|amount| Quantity::parse(&amount.0).ok())
}

fn capacity(volume: &PersistentVolume) -> Option<Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage").and_then(|amount| Quantity::parse(&amount.0).ok())
}

/// Whether a volume is meant for this claim, by name.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
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
    volumes.clone().find(|volume| is_for(volume, claim)).or_else(|| {
        volumes
            .filter(|volume| suits(volume, claim))
            .min_by(|a, b| (capacity(a), &a.metadata.name).cmp(&(capacity(b), &b.metadata.name)))
    })
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

/// A volume in a folder of this machine, for this claim.
pub fn provision(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    folder: &Path,
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
            host_path: Some(HostPathVolumeSource {
                path: path.to_string_lossy().into_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
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
