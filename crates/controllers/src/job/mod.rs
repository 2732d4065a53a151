//! Jobs: pods that run to an end, counted exactly once.

mod failure;
pub mod indexes;
mod orphans;
pub mod plan;
pub mod pod;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DeleteParams;
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::{Action, Context, Controller, Error, Result, finalizer};

use crate::pending::Pending;
use crate::time::now;
use crate::written::Written;
use crate::{children, claim};
use orphans::Orphans;
use plan::Plan;

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);
/// So many finalizers are removed at a time.
const RELEASES: usize = 16;
/// The only value of `managedBy` that means this controller.
const OURSELVES: &str = "kubernetes.io/job-controller";

/// What all reconciles share.
struct Shared {
    clock: Clock,
    entropy: Entropy,
    pending: Pending,
    written: Written,
    orphans: Orphans,
}

/// The controller.
pub fn controller(clock: Clock, entropy: Entropy) -> Controller {
    let shared = Arc::new(Shared {
        clock,
        entropy,
        pending: Pending::default(),
        written: Written::default(),
        orphans: Orphans::default(),
    });
    let seen = Arc::clone(&shared);
    Controller::of::<Job>("job-controller")
        .owns::<Pod>()
        .watches_metadata::<Pod>(|pod, listers| claim::who_might_adopt(pod, listers, selector))
        .watches::<Pod>(move |pod, listers| seen.orphans.see(pod, listers))
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn selector(job: &Job) -> Option<&LabelSelector> {
    job.spec.as_ref().and_then(|spec| spec.selector.as_ref())
}

async fn reconcile(shared: Arc<Shared>, context: Context<Job>) -> Result<Action> {
    shared.orphans.release(&context).await?;
    let Some(job) = context.object() else {
        shared.pending.forget(context.key());
        shared.written.forget(context.key());
        return Ok(Action::done());
    };
    let other = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    let Some(selector) = claim::selector(selector(&job)).filter(|_| other.is_none_or(|by| by == OURSELVES))
    else {
        return Ok(Action::done());
    };
    let writer = context.writer();
    if !shared.written.is_seen(&*job)
        || !shared.pending.is_seen(context.key(), &context.lister::<Pod>(), writer).await?
    {
        return Ok(Action::after(CATCH_UP));
    }
    let candidates = claim::candidates::<_, Pod>(&context, &selector);
    let owned = claim::settle(writer, &*job, &selector, candidates).await?;
    let mut plan = plan::plan(&job, &owned, now(&shared.clock));
    if plan.expired {
        writer.delete_with(&*job, DeleteParams::foreground()).await?;
        return Ok(Action::done());
    }
    let failure = act(&shared, &context, &job, &owned, &mut plan).await?;
    let status = plan.status.clone();
    if !shared.written.status(&context, &*job, |job| job.status = Some(status.clone())).await? {
        return Ok(Action::after(CATCH_UP));
    }
    for (reason, message, good) in plan::news(job.status.as_ref(), &plan.status) {
        match good {
            true => context.recorder().normal(&*job, &reason, message),
            false => context.recorder().warning(&*job, &reason, message),
        }
    }
    release(&context, &owned, &plan).await?;
    match failure {
        Some(error) => Err(error),
        None => Ok(plan.again.map_or(Action::done(), Action::after)),
    }
}

/// Deletes and creates. What could not be created is not active either.
async fn act(
    shared: &Shared,
    context: &Context<Job>,
    job: &Job,
    owned: &[Arc<Pod>],
    plan: &mut Plan,
) -> Result<Option<Error>> {
    for name in &plan.delete {
        if let Some(pod) = owned.iter().find(|pod| pod.metadata.name.as_ref() == Some(name)) {
            children::delete(context, job, &shared.pending, pod).await?;
        }
    }
    let wanted = plan.create.len();
    let failed = |index: &Option<i32>| index.and_then(|index| plan.failures.get(&index).copied());
    let make =
        |index: &Option<i32>| pod::create(job, *index, failed(index).unwrap_or_default(), &shared.entropy);
    let pods = plan.create.iter().filter_map(make).collect();
    let made = children::create(context, job, &shared.pending, pods).await;
    let missing = i32::try_from(wanted - made.created).unwrap_or(i32::MAX);
    let active = plan.status.active.unwrap_or_default() - missing;
    plan.status.active = (active > 0).then_some(active);
    Ok(made.failure.map(|(_, error)| error))
}

async fn release(context: &Context<Job>, owned: &[Arc<Pod>], plan: &Plan) -> Result<()> {
    let named = |pod: &&Arc<Pod>| pod.metadata.name.as_ref().is_some_and(|name| plan.release.contains(name));
    let pods: Vec<&Arc<Pod>> = owned.iter().filter(named).collect();
    for some in pods.chunks(RELEASES) {
        let removals = some.iter().map(|pod| finalizer::remove(context.writer(), &***pod, pod::TRACKING));
        futures::future::try_join_all(removals).await?;
    }
    Ok(())
}
