//! What is in use stays until it is not: finalizers on claims that pods use and on volumes that are bound.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use shoal_runtime::{Action, Context, Controller, Object, ObjectKey, Result, finalizer};

use super::claims_of;
use crate::pods;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// The controller for claims.
pub fn of_claims() -> Controller {
    Controller::of::<PersistentVolumeClaim>("pvc-protection-controller")
        .field_manager("kube-controller-manager")
        .watches::<Pod>(|pod, listers| {
            let claims = listers.of::<PersistentVolumeClaim>();
            claims_of(pod).filter(|key| claims.meta(key).is_some_and(|claim| claim.is_deleting())).collect()
        })
        .reconcile(reconcile_claim)
}

/// The controller for volumes.
pub fn of_volumes() -> Controller {
    Controller::of::<PersistentVolume>("pv-protection-controller")
        .field_manager("kube-controller-manager")
        .reconcile(reconcile_volume)
}

fn waits<T: Object>(object: &T, finalizer: &str) -> bool {
    let meta = object.meta();
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().any(|present| present == finalizer)
}

async fn reconcile_claim(context: Context<PersistentVolumeClaim>) -> Result<Action> {
    let Some(claim) = context.object().filter(|claim| waits(&**claim, CLAIM)) else {
        return Ok(Action::done());
    };
    let pods = context.lister::<Pod>().list_in(&context.key().namespace);
    let uses = |pod: &Pod| {
        let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        scheduled && !pods::is_finished(pod) && claims_of(pod).any(|key: ObjectKey| key == *context.key())
    };
    if !pods.iter().any(|pod| uses(pod)) {
        finalizer::remove(context.writer(), &*claim, CLAIM).await?;
    }
    Ok(Action::done())
}

async fn reconcile_volume(context: Context<PersistentVolume>) -> Result<Action> {
    let Some(volume) = context.object().filter(|volume| waits(&**volume, VOLUME)) else {
        return Ok(Action::done());
    };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Bound") {
        finalizer::remove(context.writer(), &*volume, VOLUME).await?;
    }
    Ok(Action::done())
}
