//! DaemonSets: one pod on every node that wants it.

mod backoff;
pub mod nodes;
pub mod plan;
mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::{Action, Context, Controller, Result};

use crate::pending::Pending;
use crate::time::now;
use crate::{children, claim, pods, revisions};
use backoff::Backoff;
use plan::{GENERATION, Plan, REVISION, TEMPLATE_GENERATION, View};
use watch::Nodes;

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    entropy: Entropy,
    pending: Pending,
    failures: Backoff,
}

/// The controller.
pub fn controller(clock: Clock, entropy: Entropy) -> Controller {
    let shared =
        Arc::new(Shared { clock, entropy, pending: Pending::default(), failures: Backoff::default() });
    let nodes = Nodes::default();
    Controller::of::<DaemonSet>("daemonset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches_metadata::<Pod>(|pod, listers| claim::who_might_adopt(pod, listers, selector))
        .watches::<Node>(move |node, listers| nodes.see(node, listers))
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn selector(set: &DaemonSet) -> Option<&LabelSelector> {
    set.spec.as_ref().map(|spec| &spec.selector)
}

async fn reconcile(shared: Arc<Shared>, context: Context<DaemonSet>) -> Result<Action> {
    let Some(set) = context.object() else {
        shared.pending.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = claim::selector(selector(&set)) else { return Ok(Action::done()) };
    let writer = context.writer();
    if !shared.pending.is_seen(context.key(), &context.lister::<Pod>(), writer).await? {
        return Ok(Action::after(CATCH_UP));
    }
    let candidates = claim::candidates::<_, Pod>(&context, &selector);
    let owned = claim::settle(writer, &*set, &selector, candidates).await?;
    let candidates = claim::candidates::<_, ControllerRevision>(&context, &selector);
    let known = claim::settle(writer, &*set, &selector, candidates).await?;
    let Some(template) = set.spec.as_ref().map(|spec| &spec.template) else { return Ok(Action::done()) };
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let Some(latest) = revisions::settle(writer, &*set, template, REVISION, &known, collisions).await? else {
        return Ok(Action::after(CATCH_UP));
    };
    let of = set.metadata.name.as_deref().unwrap_or_default();
    let hash = revisions::hash(of, &latest.revision).to_owned();
    let nodes = context.lister::<Node>().list();
    let mut plan = plan::plan(&View {
        set: &set,
        pods: owned.iter().map(AsRef::as_ref).collect(),
        nodes: nodes.iter().map(AsRef::as_ref).collect(),
        revision: &hash,
        now: now(&shared.clock),
    });
    plan.status.collision_count = latest.collisions;
    let acted = act(&shared, &context, &set, &owned, &plan, &hash).await;
    let status = plan.status.clone();
    let change = |set: &mut DaemonSet| {
        // Conditions are nobody's here and stay.
        let conditions = set.status.take().and_then(|status| status.conditions);
        set.status = Some(k8s_openapi::api::apps::v1::DaemonSetStatus { conditions, ..status.clone() });
    };
    writer.modify_status(context.key(), Some(&*set), change).await?;
    let wait = acted?;
    forget_history(&context, &set, &owned, &known, &hash).await?;
    let again = [plan.again, wait].into_iter().flatten().min();
    Ok(again.map_or(Action::done(), Action::after))
}

/// Deletes and creates. Tells when to look again at daemons that failed.
async fn act(
    shared: &Shared,
    context: &Context<DaemonSet>,
    set: &DaemonSet,
    owned: &[Arc<Pod>],
    plan: &Plan,
    hash: &str,
) -> Result<Option<Duration>> {
    let mut wait: Option<Duration> = None;
    for name in &plan.delete {
        let Some(pod) = owned.iter().find(|pod| pod.metadata.name.as_ref() == Some(name)) else { continue };
        if pods::phase(pod) == "Failed" {
            let node = plan::target(pod);
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            if let Some(left) = shared.failures.wait(uid, node, now(&shared.clock)) {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
                continue;
            }
            let message = format!("Found failed daemon pod {} on node {node}, will try to kill it", key(pod));
            context.recorder().warning(set, "FailedDaemonPod", message);
        }
        children::delete(context, set, &shared.pending, pod).await?;
    }
    let pods = plan.create.iter().filter_map(|node| daemon(set, node, hash, &shared.entropy)).collect();
    match children::create(context, set, &shared.pending, pods).await.failure {
        Some((_, error)) => Err(error),
        None => Ok(wait),
    }
}

fn key(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default())
}

/// The pod of a node.
fn daemon(set: &DaemonSet, node: &str, hash: &str, entropy: &Entropy) -> Option<Pod> {
    let template = &set.spec.as_ref()?.template;
    let (name, namespace) = (set.metadata.name.as_deref()?, set.metadata.namespace.as_deref()?);
    let mut pod = pods::from_template(template, name, namespace, claim::reference(set)?, entropy);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), hash.to_owned());
    if let Some(generation) =
        set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TEMPLATE_GENERATION))
    {
        labels.insert(GENERATION.to_owned(), generation.clone());
    }
    let spec = pod.spec.as_mut()?;
    spec.tolerations = Some(nodes::tolerations(spec));
    nodes::pin(spec, node);
    Some(pod)
}

async fn forget_history(
    context: &Context<DaemonSet>,
    set: &DaemonSet,
    owned: &[Arc<Pod>],
    known: &[Arc<ControllerRevision>],
    current: &str,
) -> Result<()> {
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or_default();
    let labels = owned.iter().filter_map(|pod| pod.metadata.labels.as_ref()?.get(REVISION));
    let mut live: BTreeSet<&str> = labels.map(String::as_str).collect();
    live.insert(current);
    let of = set.metadata.name.as_deref().unwrap_or_default();
    for revision in revisions::obsolete(of, known, &live, limit) {
        context.writer().delete(revision).await?;
    }
    Ok(())
}
