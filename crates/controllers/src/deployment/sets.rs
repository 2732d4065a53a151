//! The ReplicaSets of a Deployment: which one has the current template, and how a new one is made.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

use super::rollout;

/// The label that tells the pods of one template from those of another.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// Counts the templates that a Deployment has had.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Revisions that a ReplicaSet was before it became current again.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's replicas when the ReplicaSet was last sized.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods that the Deployment might have then.
pub const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of the Deployment that are about itself and not copied to its ReplicaSets.
const OWN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// Characters that make no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The ReplicaSet with the Deployment's template: the oldest if there are several.
pub fn current<'a>(deployment: &Deployment, sets: &[&'a ReplicaSet]) -> Option<&'a ReplicaSet> {
    let template = &deployment.spec.as_ref()?.template;
    let mut matching: Vec<_> = sets
        .iter()
        .copied()
        .filter(|set| {
            set.spec.as_ref().and_then(|spec| spec.template.as_ref()).is_some_and(|own| same(own, template))
        })
        .collect();
    matching.sort_by_key(|set| by_age(set));
    matching.first().copied()
}

/// Sorts by age, then by name.
pub fn by_age(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, set.metadata.name.clone().unwrap_or_default())
}

fn same(own: &PodTemplateSpec, template: &PodTemplateSpec) -> bool {
    if own.spec != template.spec {
        return false;
    }
    let plain = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        if let Some(labels) = &mut metadata.labels {
            labels.remove(TEMPLATE_HASH);
        }
        metadata.labels = metadata.labels.filter(|labels| !labels.is_empty());
        metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
        metadata.creation_timestamp = None;
        metadata
    };
    plain(own) == plain(template)
}

/// The revision that a ReplicaSet carries; 0 when it has none.
pub fn revision(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(super) fn annotation<'a>(set: &'a ReplicaSet, name: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The highest revision of all but the current one, plus one.
pub(super) fn next_revision(old: &[&ReplicaSet]) -> i64 {
    old.iter().map(|set| revision(set)).max().unwrap_or_default() + 1
}

/// A ReplicaSet of the Deployment's template, of no size yet.
pub(super) fn create(deployment: &Deployment, revision: i64) -> Option<ReplicaSet> {
    let spec = deployment.spec.as_ref()?;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions);
    let name = format!("{}-{hash}", deployment.metadata.name.as_deref()?);
    let mut template = spec.template.clone();
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let mut match_labels = spec.selector.match_labels.clone().unwrap_or_default();
    match_labels.insert(TEMPLATE_HASH.to_owned(), hash);
    let mut annotations = copied_annotations(deployment);
    annotations.insert(REVISION.to_owned(), revision.to_string());
    let owner = deployment.controller_owner_ref(&())?;
    Some(ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: deployment.metadata.namespace.clone(),
            labels: metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
                block_owner_deletion: Some(true),
                ..owner
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector: LabelSelector { match_labels: Some(match_labels), ..spec.selector.clone() },
            template: Some(template),
        }),
        status: None,
    })
}

/// Annotations that a ReplicaSet has from its Deployment.
pub(super) fn copied_annotations(deployment: &Deployment) -> BTreeMap<String, String> {
    let mut annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&name.as_str()));
    annotations
}

/// The annotations that say for which size of the Deployment a ReplicaSet was sized.
pub(super) fn sizes(deployment: &Deployment) -> [(String, String); 2] {
    let replicas = rollout::replicas(deployment);
    let maximum = replicas + rollout::max_surge(deployment);
    [(DESIRED.to_owned(), replicas.to_string()), (MAXIMUM.to_owned(), maximum.to_string())]
}

/// A short name for a template. Stable: the same template of the same Deployment has the same name for ever.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    // Typed objects print their fields in a fixed order.
    feed(&serde_json::to_vec(template).unwrap_or_default());
    if let Some(collisions) = collisions {
        feed(&collisions.to_le_bytes());
    }
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}
