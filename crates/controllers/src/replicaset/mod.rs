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
use shoal_runtime::cache::Encoded;
use shoal_runtime::{Action, Context, Controller, Result, owner};

use crate::brief::Brief;
use crate::pace::Pace;
use crate::pending::Pending;
use crate::time::now;
use crate::{children, claim, pods};
use plan::{Failure, Plan};

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Each pod of a large set adds this much time between two looks, which cost far less.
const PER_POD: Duration = Duration::from_micros(1);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    entropy: Entropy,
    pending: Pending,
    pace: Pace,
}

/// The controller.
pub fn controller(clock: Clock, entropy: Entropy) -> Controller {
    let shared = Arc::new(Shared { clock, entropy, pending: Pending::default(), pace: Pace::new(PER_POD) });
    Controller::of::<ReplicaSet>("replicaset-controller")
        .owns::<Pod>()
        .watches_metadata::<Pod>(|pod, listers| claim::who_might_adopt(pod, listers, selector))
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn selector(set: &ReplicaSet) -> Option<&LabelSelector> {
    set.spec.as_ref().map(|spec| &spec.selector)
}

async fn reconcile(shared: Arc<Shared>, context: Context<ReplicaSet>) -> Result<Action> {
    let Some(set) = context.object() else {
        shared.pending.forget(context.key());
        shared.pace.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = claim::selector(selector(&set)) else {
        return Ok(Action::done());
    };
    if let Some(wait) = shared.pace.wait(context.key()) {
        return Ok(Action::after(wait));
    }
    let writer = context.writer();
    let lister = context.lister::<Pod>();
    if !shared.pending.is_seen(context.key(), &lister, writer).await? {
        return Ok(Action::after(CATCH_UP));
    }
    let briefs = lister.brief::<Brief>();
    let owned = claim::owned::<_, Pod>(&context, &set, &selector).await?;
    let kept = owned.kept.iter().filter_map(|pod| briefs.decode(pod));
    let taken = owned.taken.iter().filter_map(|pod| Brief::of(pod).map(Arc::new));
    let owned: Vec<Arc<Brief>> = kept.chain(taken).collect();
    shared.pace.looked(context.key(), owned.len());

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
    owned: &[Arc<Brief>],
) -> Option<(Failure, shoal_runtime::Error)> {
    let neighbours;
    let mut plan = plan::plan(set, owned, &[] as &[Arc<Brief>]);
    if let Plan::Delete(_) = plan {
        // Only who has to choose needs to know how crowded nodes are.
        neighbours = related(context, set);
        plan = plan::plan(set, owned, &neighbours);
    }
    match plan {
        Plan::Enough => None,
        Plan::Create(count) => create(shared, context, set, count).await,
        Plan::Delete(surplus) => {
            let pods = context.lister::<Pod>();
            let pods: Vec<Arc<Pod>> = surplus.into_iter().filter_map(|pod| pods.get(&pod.key())).collect();
            let deletions = pods.iter().map(|pod| children::delete(context, set, &shared.pending, pod));
            for result in futures::future::join_all(deletions).await {
                if let Err(error) = result {
                    let message = format!("Error deleting: {}", children::why(&error));
                    return Some((Failure { reason: "FailedDelete", message }, error));
                }
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
fn related(context: &Context<ReplicaSet>, set: &ReplicaSet) -> Vec<Arc<Brief>> {
    let briefs = context.lister::<Pod>().brief::<Brief>();
    let Some(parent) = owner::controller_of(&set.metadata) else {
        return context.children_metas::<Pod>().iter().filter_map(|pod| briefs.decode(pod)).collect();
    };
    let sets = context.lister::<ReplicaSet>().metas_in(&context.key().namespace);
    let siblings: Vec<_> = sets
        .iter()
        .filter(|set| set.controller().is_some_and(|owner| *owner.uid == *parent.uid))
        .map(|set| set.uid())
        .collect();
    let belongs = |pod: &&Arc<Encoded>| {
        pod.controller().is_some_and(|owner| siblings.iter().any(|uid| **uid == *owner.uid))
    };
    let pods = briefs.metas_in(&context.key().namespace);
    pods.iter().filter(belongs).filter_map(|pod| briefs.decode(pod)).collect()
}
