//! Volumes and claims: binding, the end of a claim, and protection of what is in use.

pub mod binder;
pub mod class;
pub mod plan;
pub mod protection;
pub mod volume;

use k8s_openapi::api::core::v1::Pod;
use shoal_runtime::ObjectKey;

const NAME: &str = "persistentvolume-controller";
/// On a claim: where its first pod will be, so where its volume has to be.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On volumes and claims: not a person has brought them together.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// The claims that a pod uses.
fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => claim.claim_name.clone(),
            (None, Some(_)) => format!("{}-{}", pod.metadata.name.as_deref()?, volume.name),
            (None, None) => return None,
        };
        Some(ObjectKey::new(namespace, &name))
    })
}
