//! Who a pod of a StatefulSet is: its ordinal, name, claims and labels.

use std::ops::Range;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::claim;

/// Which template a pod was made from.
pub const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a pod, if its name is one that this set gives.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let prefix = set.metadata.name.as_deref()?;
    let digits = pod.metadata.name.as_deref()?.strip_prefix(prefix)?.strip_prefix('-')?;
    // `web-01` is not a name of ours.
    let canonical = digits == "0" || !digits.starts_with('0');
    digits.parse().ok().filter(|ordinal| canonical && *ordinal >= 0)
}

/// The ordinals that should exist.
pub fn ordinals(set: &StatefulSet) -> Range<i32> {
    let spec = set.spec.as_ref();
    let start = spec.and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or_default().max(0);
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
    start..start.saturating_add(replicas)
}

/// The pod's name.
pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The revision that a pod was made from.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(REVISION))
        .map(String::as_str)
        .unwrap_or_default()
}

/// The pod of this ordinal, made from `template`, which is that of `revision`.
pub fn pod(set: &StatefulSet, ordinal: i32, template: &PodTemplateSpec, revision: &str) -> Pod {
    let from = template.metadata.clone().unwrap_or_default();
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(set, ordinal)),
            generate_name: Some(format!("{}-", set.metadata.name.as_deref().unwrap_or_default())),
            namespace: set.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: claim::reference(set).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    };
    pod.metadata.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = pod.metadata.name.clone();
        spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    }
    take_identity(set, ordinal, &mut pod);
    pod
}

/// Gives a pod the labels and volumes of its ordinal. Tells whether anything was missing.
pub fn take_identity(set: &StatefulSet, ordinal: i32, pod: &mut Pod) -> bool {
    let before = pod.clone();
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name);
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    if let Some(spec) = &mut pod.spec {
        let volumes = spec.volumes.get_or_insert_default();
        for template in templates(set) {
            let volume = template.metadata.name.clone().unwrap_or_default();
            let claimed = Volume {
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim_name(set, &volume, ordinal),
                    read_only: None,
                }),
                name: volume,
                ..Volume::default()
            };
            match volumes.iter_mut().find(|present| present.name == claimed.name) {
                Some(present) => *present = claimed,
                None => volumes.push(claimed),
            }
        }
        if volumes.is_empty() {
            spec.volumes = None;
        }
    }
    *pod != before
}

/// The claims that the pod of this ordinal uses.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let labels = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    templates(set)
        .iter()
        .map(|template| {
            let mut claim = template.clone();
            let volume = claim.metadata.name.clone().unwrap_or_default();
            claim.metadata.name = Some(claim_name(set, &volume, ordinal));
            claim.metadata.namespace = set.metadata.namespace.clone();
            claim.metadata.labels.get_or_insert_default().extend(labels.clone());
            claim.status = None;
            claim
        })
        .collect()
}

/// The claim's name.
pub fn claim_name(set: &StatefulSet, volume: &str, ordinal: i32) -> String {
    format!("{volume}-{}", pod_name(set, ordinal))
}

pub(super) fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}
