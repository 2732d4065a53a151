//! How many pods the controllers of covered pods want.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shoal_runtime::{Context, Object, ObjectKey, owner};

use crate::scale::{self, Target};

/// The number that the budget is measured against.
pub(super) async fn count(
    context: &Context<PodDisruptionBudget>,
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
) -> Result<i32, String> {
    let spec = budget.spec.as_ref();
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
    // A number of pods that must be there needs no knowledge of how many there should be.
    if most.is_none() && !matches!(least, Some(IntOrString::String(_))) {
        return Ok(i32::try_from(covered.len()).unwrap_or(i32::MAX));
    }
    let mut wanted: HashMap<String, i32> = HashMap::new();
    for pod in covered {
        let Some(parent) = owner::controller_of(&pod.metadata) else { continue };
        if wanted.contains_key(&parent.uid) {
            continue;
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let (uid, replicas) =
            replicas(context, parent).await?.ok_or(format!("found no controllers for pod {name:?}"))?;
        wanted.insert(parent.uid.clone(), 0);
        // ReplicaSets of one Deployment share its number.
        wanted.insert(uid, replicas);
    }
    Ok(wanted.values().fold(0, |sum, replicas| sum.saturating_add(*replicas)))
}

/// The uid of the object that says how many, and its number.
async fn replicas(
    context: &Context<PodDisruptionBudget>,
    parent: &OwnerReference,
) -> Result<Option<(String, i32)>, String> {
    let group = parent.api_version.split_once('/').map_or("", |(group, _)| group);
    let answer = |replicas: Option<i32>| Some((parent.uid.clone(), replicas.unwrap_or(1)));
    Ok(match (group, parent.kind.as_str()) {
        ("apps", "ReplicaSet") => {
            let Some(set) = find::<ReplicaSet>(context, parent) else { return Ok(None) };
            let above = owner::controller_of(&set.metadata)
                .filter(|above| above.kind == "Deployment" && above.api_version.starts_with("apps/"));
            match above {
                Some(above) => find::<Deployment>(context, above).map(|deployment| {
                    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                    (above.uid.clone(), replicas.unwrap_or(1))
                }),
                None => answer(set.spec.as_ref().and_then(|spec| spec.replicas)),
            }
        }
        ("apps", "StatefulSet") => find::<StatefulSet>(context, parent)
            .and_then(|set| answer(set.spec.as_ref().and_then(|spec| spec.replicas))),
        ("", "ReplicationController") => find::<ReplicationController>(context, parent)
            .and_then(|set| answer(set.spec.as_ref().and_then(|spec| spec.replicas))),
        _ => {
            let target = Target {
                api_version: &parent.api_version,
                kind: &parent.kind,
                namespace: &context.key().namespace,
                name: &parent.name,
            };
            let (_, scale) = scale::get(context.client(), target).await.map_err(|error| match error {
                scale::Unscaled::Refused(kube::Error::Api(status)) if status.code == 404 => {
                    let kind = parent.kind.to_lowercase();
                    format!("{kind}s.{group} does not implement the scale subresource")
                }
                error => error.to_string(),
            })?;
            answer(scale.spec.and_then(|spec| spec.replicas).or(Some(0)))
        }
    })
}

fn find<T: Object>(context: &Context<PodDisruptionBudget>, reference: &OwnerReference) -> Option<Arc<T>> {
    let found = context.lister::<T>().get(&ObjectKey::new(&context.key().namespace, &reference.name))?;
    (found.meta().uid.as_ref() == Some(&reference.uid)).then_some(found)
}
