//! ReplicaSets: as many pods of one template as asked for.

pub mod plan;
pub mod rank;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::{Action, Context, Controller, Result, owner};

use crate::pending::Pending;
use crate::time::now;
use crate::{children, claim, pods};
use plan::{Failure, Plan};

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    entropy: Entropy,
    pending: Pending,
}

/// The controller.
pub fn controller(clock: Clock, entropy: Entropy) -> Controller {
    let shared = Arc::new(Shared { clock, entropy, pending: Pending::default() });
    Controller::of::<ReplicaSet>("replicaset-controller")
        .owns::<Pod>()
        .watches::<Pod>(|pod, listers| claim::who_might_adopt(pod, listers, selector))
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn selector(set: &ReplicaSet) -> Option<&LabelSelector> {
    set.spec.as_ref().map(|spec| &spec.selector)
}

async fn reconcile(shared: Arc<Shared>, context: Context<ReplicaSet>) -> Result<Action> {
    let Some(set) = context.object() else {
        shared.pending.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = claim::selector(selector(&set)) else {
        return Ok(Action::done());
    };
    let writer = context.writer();
    let lister = context.lister::<Pod>();
    if !shared.pending.is_seen(context.key(), &lister, writer).await? {
        return Ok(Action::after(CATCH_UP));
    }
    let candidates = claim::candidates::<_, Pod>(&context, &selector);
    let owned = claim::settle(writer, &*set, &selector, candidates).await?;

    let mut failure = None;
    if set.metadata.deletion_timestamp.is_none() {
        failure = act(&shared, &context, &set, &owned).await;
    }
    let now = now(&shared.clock);
    let told = failure.as_ref().map(|(failure, _)| failure);
    let (status, again) = plan::status(&set, &owned, told, now);
    writer
        .modify_status(context.key(), Some(&*set), |set: &mut ReplicaSet| set.status = Some(status.clone()))
        .await?;
    match (failure, again) {
        (Some((_, error)), _) => Err(error),
        (None, Some(again)) => Ok(Action::after(again)),
        (None, None) => Ok(Action::done()),
    }
}

/// Creates and deletes; the first failure ends it, so that a server that refuses is not asked five hundred times.
async fn act(
    shared: &Shared,
    context: &Context<ReplicaSet>,
    set: &ReplicaSet,
    owned: &[Arc<Pod>],
) -> Option<(Failure, shoal_runtime::Error)> {
    let related = related(context, set);
    match plan::plan(set, owned, &related) {
        Plan::Enough => None,
        Plan::Create(count) => create(shared, context, set, count).await,
        Plan::Delete(surplus) => {
            for pod in surplus {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                shared.pending.deleted(context.key(), pod);
                if let Err(error) = context.writer().delete(pod).await {
                    let message = format!("Error deleting: {}", children::why(&error));
                    context.recorder().warning(set, "FailedDelete", message.clone());
                    return Some((Failure { reason: "FailedDelete", message }, error));
                }
                context.recorder().normal(set, "SuccessfulDelete", format!("Deleted pod: {name}"));
            }
            None
        }
    }
}

async fn create(
    shared: &Shared,
    context: &Context<ReplicaSet>,
    set: &ReplicaSet,
    count: usize,
) -> Option<(Failure, shoal_runtime::Error)> {
    let template = set.spec.as_ref()?.template.as_ref()?;
    let reference = claim::reference(set)?;
    let (namespace, name) = (set.metadata.namespace.as_deref()?, set.metadata.name.as_deref()?);
    let draw = |_| pods::from_template(template, name, namespace, reference.clone(), &shared.entropy);
    let made = children::create(context, set, &shared.pending, (0..count).map(draw).collect()).await;
    let (message, error) = made.failure?;
    Some((Failure { reason: "FailedCreate", message }, error))
}

/// Active pods of ReplicaSets with the same owner: they tell how crowded nodes are.
fn related(context: &Context<ReplicaSet>, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let Some(parent) = owner::controller_of(&set.metadata) else { return context.children::<Pod>() };
    let sets = context.lister::<ReplicaSet>().list_in(&context.key().namespace);
    let siblings: Vec<&str> = sets
        .iter()
        .filter(|set| owner::controller_of(&set.metadata).is_some_and(|owner| owner.uid == parent.uid))
        .filter_map(|set| set.metadata.uid.as_deref())
        .collect();
    let pods = context.lister::<Pod>().list_in(&context.key().namespace);
    let belongs = |pod: &Arc<Pod>| {
        owner::controller_of(&pod.metadata).is_some_and(|owner| siblings.contains(&owner.uid.as_str()))
    };
    pods.into_iter().filter(belongs).collect()
}
