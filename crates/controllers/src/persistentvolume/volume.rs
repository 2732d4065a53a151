//! The phase of a volume, and what becomes of it when its claim is gone.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use super::plan::{PROVISIONED_BY, PROVISIONER};

/// The controller.
pub fn controller() -> Controller {
    Controller::of::<PersistentVolume>("persistentvolume-phase-controller")
        .field_manager("kube-controller-manager")
        .watches::<PersistentVolumeClaim>(|claim, _| {
            let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            name.map(ObjectKey::cluster).into_iter().collect()
        })
        .reconcile(reconcile)
}

async fn reconcile(context: Context<PersistentVolume>) -> Result<Action> {
    let Some(volume) = context.object() else { return Ok(Action::done()) };
    let Some(spec) = &volume.spec else { return Ok(Action::done()) };
    let phase = match &spec.claim_ref {
        None => "Available",
        // A volume that waits for a claim of this name.
        Some(reference) if reference.uid.is_none() => "Available",
        Some(reference) => {
            let (namespace, name) = (reference.namespace.as_deref(), reference.name.as_deref());
            let key = ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
            let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid == reference.uid;
            let cached =
                context.lister::<PersistentVolumeClaim>().get(&key).is_some_and(|claim| is_it(&claim));
            // The cache may be behind, and a volume is not lightly let go.
            let there = cached
                || context
                    .writer()
                    .get::<PersistentVolumeClaim>(&key)
                    .await?
                    .is_some_and(|claim| is_it(&claim));
            if there { "Bound" } else { "Released" }
        }
    };
    if phase == "Released" && volume.metadata.deletion_timestamp.is_none() && is_ours_to_delete(&volume) {
        tell(&context, &volume, phase).await?;
        context.writer().delete(&*volume).await?;
        return Ok(Action::done());
    }
    tell(&context, &volume, phase).await?;
    Ok(Action::done())
}

async fn tell(context: &Context<PersistentVolume>, volume: &PersistentVolume, phase: &str) -> Result<()> {
    let set = |volume: &mut PersistentVolume| {
        volume.status.get_or_insert_default().phase = Some(phase.to_owned());
    };
    context.writer().modify_status(context.key(), Some(volume), set).await?;
    Ok(())
}

/// Only who made a volume knows how to unmake it.
fn is_ours_to_delete(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let maker = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROVISIONED_BY));
    policy == Some("Delete") && maker.is_some_and(|maker| maker == PROVISIONER)
}
