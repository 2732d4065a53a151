//! Claims get their volumes.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use shoal_runtime::apply::status_code;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use super::plan::{self, class_of, is_for};
use super::{BOUND_BY_CONTROLLER, NAME, SELECTED_NODE, claims_of};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The controller; with a folder, it also makes volumes there.
pub fn controller(folder: Option<PathBuf>) -> Controller {
    let folder = folder.map(Arc::new);
    Controller::of::<PersistentVolumeClaim>(NAME)
        .field_manager("kube-controller-manager")
        .watches::<PersistentVolume>(who_wants_volume)
        .watches::<StorageClass>(|class, listers| {
            pending(listers, class.metadata.name.as_deref().unwrap_or_default())
        })
        .watches::<Pod>(|pod, listers| {
            let claims = listers.of::<PersistentVolumeClaim>();
            let is_pending = |key: &ObjectKey| claims.get(key).is_some_and(|claim| !has_volume(&claim));
            claims_of(pod).filter(is_pending).collect()
        })
        .reads::<Node>()
        .reconcile(move |context| reconcile(folder.clone(), context))
}

fn has_volume(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some()
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The claim that a volume has, or those that might take it.
fn who_wants_volume(volume: &PersistentVolume, listers: &Listers) -> Vec<ObjectKey> {
    let Some(spec) = &volume.spec else { return Vec::new() };
    match &spec.claim_ref {
        Some(claim) => {
            let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
            vec![ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default())]
        }
        None => pending(listers, spec.storage_class_name.as_deref().unwrap_or_default()),
    }
}

fn pending(listers: &Listers, class: &str) -> Vec<ObjectKey> {
    let claims = listers.of::<PersistentVolumeClaim>().list();
    let waits = claims.iter().filter(|claim| !has_volume(claim) && class_of(claim) == class);
    waits.map(|claim| ObjectKey::of(&**claim)).collect()
}

async fn reconcile(folder: Option<Arc<PathBuf>>, context: Context<PersistentVolumeClaim>) -> Result<Action> {
    let Some(claim) = context.object().filter(|claim| claim.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::done());
    };
    let writer = context.writer();
    if let Some(name) = volume_name(&claim) {
        // By name, and by nobody's choice but the user's: the volume must agree.
        return match writer.get::<PersistentVolume>(&ObjectKey::cluster(name)).await? {
            Some(volume) if is_for(&volume, &claim) => Box::pin(bind(&context, &claim, &volume)).await,
            Some(volume) if volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none()) => {
                Box::pin(bind(&context, &claim, &volume)).await
            }
            Some(_) => Ok(Action::done()),
            None => lost(&context, &claim).await,
        };
    }
    let class = Some(class_of(&claim)).filter(|name| !name.is_empty());
    let class = class.and_then(|name| context.lister::<StorageClass>().get(&ObjectKey::cluster(name)));
    let waits = class.as_ref().is_some_and(|class| plan::waits_for_consumer(class));
    let chosen = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(SELECTED_NODE));
    let chosen = chosen.filter(|_| waits);
    let volumes = context.lister::<PersistentVolume>().list();
    let node = chosen.and_then(|name| context.lister::<Node>().get(&ObjectKey::cluster(name)));
    // Until the node is known, only a volume that waits for this very claim is the right one.
    let is_possible = |volume: &&PersistentVolume| match &node {
        _ if !waits || is_for(volume, &claim) => true,
        Some(node) => plan::reaches(volume, node),
        None => false,
    };
    let possible = volumes.iter().map(AsRef::as_ref).filter(is_possible);
    if let Some(volume) = plan::choose(&claim, possible) {
        return Box::pin(bind(&context, &claim, volume)).await;
    }
    if waits && chosen.is_none() {
        let (reason, text) = who_is_missing(&context);
        context.recorder().normal(&*claim, reason, text);
        return Ok(Action::done());
    }
    let ours = class.filter(|class| class.provisioner == plan::PROVISIONER);
    match (ours, folder) {
        (Some(class), Some(folder)) => {
            let Some(volume) = plan::provision(&claim, &class, &folder, node.as_deref()) else {
                return Ok(Action::done());
            };
            let made = match writer.create(&volume).await {
                Ok(volume) => volume,
                // The cache is behind.
                Err(error) if status_code(&error) == Some(409) => {
                    let Some(volume) = writer.get(&ObjectKey::of(&volume)).await? else { return Err(error) };
                    volume
                }
                Err(error) => return Err(error),
            };
            let name = made.metadata.name.clone().unwrap_or_default();
            let text = format!("Successfully provisioned volume {name}");
            context.recorder().normal(&*claim, "ProvisioningSucceeded", text);
            Box::pin(bind(&context, &claim, &made)).await
        }
        _ if class_of(&claim).is_empty() => {
            let text = "no persistent volumes available for this claim and no storage class is set";
            context.recorder().normal(&*claim, "FailedBinding", text);
            Ok(Action::done())
        }
        _ => Ok(Action::done()),
    }
}

/// What a claim waits for whose volume depends on a node.
fn who_is_missing(context: &Context<PersistentVolumeClaim>) -> (&'static str, String) {
    let pods = context.lister::<Pod>().list_in(&context.key().namespace);
    let unplaced = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        node.is_empty() && claims_of(pod).any(|key| key == *context.key())
    };
    let mut names: Vec<String> =
        pods.iter().filter(|pod| unplaced(pod)).filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    match names.as_slice() {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [one] => ("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        more => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", more.join(","))),
    }
}

/// (Boxed where it is called: volumes are large.) The volume names the claim first: only one claim can win it. Then the claim names the volume.
async fn bind(
    context: &Context<PersistentVolumeClaim>,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<Action> {
    let writer = context.writer();
    let mut won = true;
    let key = ObjectKey::of(volume);
    let take = |volume: &mut PersistentVolume| {
        let free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        won = free || is_for(volume, claim);
        let bound = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref()).is_some();
        if !won || bound {
            return;
        }
        if free {
            let annotations = volume.metadata.annotations.get_or_insert_default();
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        volume.spec.get_or_insert_default().claim_ref = Some(plan::reference(claim));
    };
    let Some(volume) = writer.modify(&key, Some(volume), take).await? else {
        return Ok(Action::done());
    };
    if !won {
        return Ok(Action::done());
    }
    let name = &*key.name;
    let chosen_here = !has_volume(claim);
    let take = |claim: &mut PersistentVolumeClaim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
        if chosen_here {
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        claim.spec.get_or_insert_default().volume_name = Some(name.to_owned());
    };
    let Some(claim) = writer.modify(context.key(), Some(claim), take).await? else {
        return Ok(Action::done());
    };
    let tell = |claim: &mut PersistentVolumeClaim| {
        let status = claim.status.get_or_insert_default();
        status.phase = Some("Bound".to_owned());
        status.access_modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.clone());
        status.capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.clone());
    };
    writer.modify_status(context.key(), Some(&claim), tell).await?;
    Ok(Action::done())
}

async fn lost(context: &Context<PersistentVolumeClaim>, claim: &PersistentVolumeClaim) -> Result<Action> {
    let annotations = claim.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED)) {
        let text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        context.recorder().warning(claim, "ClaimLost", text);
        let tell = |claim: &mut PersistentVolumeClaim| {
            claim.status.get_or_insert_default().phase = Some("Lost".to_owned());
        };
        context.writer().modify_status(context.key(), Some(claim), tell).await?;
    }
    Ok(Action::done())
}
