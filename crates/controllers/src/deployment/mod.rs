//! Deployments: ReplicaSets of changing templates, old ones going while the new one comes.

mod conditions;
pub mod plan;
mod rollout;
mod scale;
pub mod sets;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shoal_objects::clock::Clock;
use shoal_runtime::apply::status_code;
use shoal_runtime::cache::Encoded;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result, owner};

use crate::claim;
use crate::time::now;
use plan::{Change, Plan, View};
pub use rollout::resolve;

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    Controller::of::<Deployment>("deployment-controller")
        .owns::<ReplicaSet>()
        .watches_metadata::<ReplicaSet>(|set, listers| claim::who_might_adopt(set, listers, selector))
        .watches_metadata::<Pod>(who_waits_for)
        .reconcile(move |context| reconcile(clock.clone(), context))
}

fn selector(deployment: &Deployment) -> Option<&LabelSelector> {
    deployment.spec.as_ref().map(|spec| &spec.selector)
}

/// The Deployment that must see a pod gone before it makes new ones.
fn who_waits_for(pod: &Encoded, listers: &Listers) -> Vec<ObjectKey> {
    let key = |reference: &str| ObjectKey::new(pod.namespace(), reference);
    pod.controller()
        .filter(|reference| &*reference.kind == "ReplicaSet")
        .and_then(|reference| listers.of::<ReplicaSet>().get(&key(&reference.name)))
        .and_then(|set| owner::controller_of(&set.metadata).map(|reference| key(&reference.name)))
        .filter(|key| {
            listers.of::<Deployment>().get(key).is_some_and(|deployment| !rollout::is_rolling(&deployment))
        })
        .into_iter()
        .collect()
}

async fn reconcile(clock: Clock, context: Context<Deployment>) -> Result<Action> {
    let Some(deployment) = context.object() else { return Ok(Action::done()) };
    let Some(selector) = claim::selector(selector(&deployment)) else {
        return Ok(Action::done());
    };
    let namespace = &context.key().namespace;
    let candidates = claim::candidates::<_, ReplicaSet>(&context, &selector);
    let owned = claim::settle(context.writer(), &*deployment, &selector, candidates).await?;
    let pods = if rollout::is_rolling(&deployment) {
        Vec::new()
    } else {
        let uids: Vec<&str> = owned.iter().filter_map(|set| set.metadata.uid.as_deref()).collect();
        let lister = context.lister::<Pod>();
        let pods = lister.metas_in(namespace);
        let ours =
            pods.iter().filter(|pod| pod.controller().is_some_and(|owner| uids.contains(&&*owner.uid)));
        ours.filter_map(|pod| lister.decode(pod)).collect()
    };
    let plan = plan::plan(&View {
        deployment: &deployment,
        sets: owned.iter().map(AsRef::as_ref).collect(),
        pods: pods.iter().map(AsRef::as_ref).collect(),
        now: now(&clock),
    });
    act(&context, &deployment, &owned, &plan).await?;
    Ok(plan.again.map_or(Action::done(), Action::after))
}

async fn act(
    context: &Context<Deployment>,
    deployment: &Deployment,
    owned: &[Arc<ReplicaSet>],
    plan: &Plan,
) -> Result<()> {
    let writer = context.writer();
    let mut status = plan.status.clone();
    let mut told = false;
    if let Some(set) = &plan.create {
        match writer.create(set).await {
            Ok(_) => {}
            // The name is the template's: either it is the one we want and the cache is behind, or two templates share it.
            Err(error) if status_code(&error) == Some(409) => {
                let present = writer.get::<ReplicaSet>(&ObjectKey::of(set)).await?;
                let ours = present.as_ref().is_some_and(|present| {
                    owner::is_controlled_by(&present.metadata, &deployment.metadata)
                        && sets::current(deployment, &[present]).is_some()
                });
                // Whoever made it has said so.
                told = ours;
                if !ours {
                    status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
                }
            }
            Err(error) => return Err(error),
        }
    }
    for change in &plan.change {
        let key = ObjectKey::new(&context.key().namespace, &change.name);
        let cached = owned.iter().find(|set| set.metadata.name.as_ref() == Some(&change.name));
        writer.modify(&key, cached.map(AsRef::as_ref), |set| make(set, change)).await?;
    }
    for message in plan.scaled.iter().filter(|_| !told) {
        context.recorder().normal(deployment, "ScalingReplicaSet", message.clone());
    }
    for name in &plan.delete {
        if let Some(set) = owned.iter().find(|set| set.metadata.name.as_ref() == Some(name)) {
            writer.delete(&**set).await?;
        }
    }
    let mut latest = None;
    if let Some(revision) = &plan.revision {
        let set = |deployment: &mut Deployment| {
            let annotations = deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(sets::REVISION.to_owned(), revision.clone());
        };
        latest = writer.modify(context.key(), Some(deployment), set).await?;
    }
    let known = latest.as_ref().unwrap_or(deployment);
    writer
        .modify_status(context.key(), Some(known), |deployment: &mut Deployment| {
            deployment.status = Some(status.clone());
        })
        .await?;
    Ok(())
}

fn make(set: &mut ReplicaSet, change: &Change) {
    set.metadata.annotations.get_or_insert_default().extend(change.annotations.clone());
    if let Some(spec) = &mut set.spec {
        spec.replicas = change.replicas.or(spec.replicas);
        spec.min_ready_seconds = change.min_ready_seconds.or(spec.min_ready_seconds);
    }
}
