//! StatefulSets: pods with an identity, made and changed in order.

pub mod identity;
pub mod plan;
pub mod retention;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shoal_objects::clock::Clock;
use shoal_runtime::apply::status_code;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result, owner};

use crate::time::now;
use crate::written::Written;
use crate::{children, claim, revisions};
use plan::{Revision, Step, View};

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);
const HASH: &str = "controller.kubernetes.io/hash";

/// What all reconciles share.
struct Shared {
    clock: Clock,
    written: Written,
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared = Arc::new(Shared { clock, written: Written::default() });
    Controller::of::<StatefulSet>("statefulset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches_metadata::<Pod>(|pod, listers| claim::who_might_adopt(pod, listers, selector))
        .reads::<PersistentVolumeClaim>()
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn selector(set: &StatefulSet) -> Option<&LabelSelector> {
    set.spec.as_ref().map(|spec| &spec.selector)
}

async fn reconcile(shared: Arc<Shared>, context: Context<StatefulSet>) -> Result<Action> {
    let Some(set) = context.object() else {
        shared.written.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = claim::selector(selector(&set)) else { return Ok(Action::done()) };
    if !shared.written.is_seen(&*set) {
        return Ok(Action::after(CATCH_UP));
    }
    let writer = context.writer();
    let mut candidates = claim::candidates::<_, Pod>(&context, &selector);
    candidates.retain(|pod| identity::ordinal(&set, pod).is_some());
    let pods = claim::settle(writer, &*set, &selector, candidates).await?;
    let candidates = claim::candidates::<_, ControllerRevision>(&context, &selector);
    let known = claim::settle(writer, &*set, &selector, candidates).await?;

    let Some(template) = set.spec.as_ref().map(|spec| &spec.template) else { return Ok(Action::done()) };
    let before = set.status.as_ref();
    let collisions = before.and_then(|status| status.collision_count);
    let Some(latest) = revisions::settle(writer, &*set, template, HASH, &known, collisions).await? else {
        return Ok(Action::after(CATCH_UP));
    };
    let update = Revision {
        name: latest.revision.metadata.name.clone().unwrap_or_default(),
        template: revisions::template(&latest.revision).unwrap_or_else(|| template.clone()),
    };
    let current = before
        .and_then(|status| status.current_revision.as_ref())
        .and_then(|name| known.iter().find(|revision| revision.metadata.name.as_ref() == Some(name)))
        .and_then(|revision| {
            let name = revision.metadata.name.clone()?;
            Some(Revision { name, template: revisions::template(revision)? })
        })
        .unwrap_or_else(|| update.clone());
    let mut plan = plan::plan(&View {
        set: &set,
        pods: pods.iter().map(AsRef::as_ref).collect(),
        current: &current,
        update: &update,
        now: now(&shared.clock),
    });
    plan.status.collision_count = Some(latest.collisions.unwrap_or_default());
    hold_claims(&context, &set, &pods).await?;
    let acted = act(&context, &set, &pods, &plan.steps).await;
    let status = plan.status.clone();
    let written = shared.written.status(&context, &*set, |set| set.status = Some(status.clone())).await?;
    let caught_up = acted?;
    if !written || !caught_up {
        return Ok(Action::after(CATCH_UP));
    }
    forget_history(&context, &set, &pods, &known, &[&current.name, &update.name]).await?;
    Ok(plan.again.map_or(Action::done(), Action::after))
}

/// Does the steps. `false`: the cache is behind, and so was the plan.
async fn act(
    context: &Context<StatefulSet>,
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    steps: &[Step],
) -> Result<bool> {
    let (writer, recorder) = (context.writer(), context.recorder());
    let of = set.metadata.name.as_deref().unwrap_or_default();
    for step in steps {
        match step {
            Step::Create(ordinal, pod) => {
                if !make_claims(context, set, *ordinal).await? {
                    return Ok(false);
                }
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                match writer.create(&**pod).await {
                    Ok(_) => {
                        let message = format!("create Pod {name} in StatefulSet {of} successful");
                        recorder.normal(set, "SuccessfulCreate", message);
                    }
                    Err(error) => {
                        let present = match status_code(&error) {
                            Some(409) => writer.get::<Pod>(&ObjectKey::of(&**pod)).await?,
                            _ => None,
                        };
                        if present.is_some_and(|pod| owner::is_controlled_by(&pod.metadata, &set.metadata)) {
                            return Ok(false);
                        }
                        let why = children::why(&error);
                        let message = format!("create Pod {name} in StatefulSet {of} failed error: {why}");
                        recorder.warning(set, "FailedCreate", message);
                        return Err(error);
                    }
                }
            }
            Step::Mend(mended) => {
                let known = pods.iter().find(|pod| pod.metadata.uid == mended.metadata.uid);
                let change = |pod: &mut Pod| pod.metadata.labels.clone_from(&mended.metadata.labels);
                writer.modify(&ObjectKey::of(&**mended), known.map(AsRef::as_ref), change).await?;
            }
            Step::Delete(name, uid) => {
                let Some(pod) = pods.iter().find(|pod| pod.metadata.uid.as_ref() == Some(uid)) else {
                    continue;
                };
                if let Err(error) = writer.delete(&**pod).await {
                    let why = children::why(&error);
                    let message = format!("delete Pod {name} in StatefulSet {of} failed error: {why}");
                    recorder.warning(set, "FailedDelete", message);
                    return Err(error);
                }
                let message = format!("delete Pod {name} in StatefulSet {of} successful");
                recorder.normal(set, "SuccessfulDelete", message);
            }
        }
    }
    Ok(true)
}

/// Creates the claims of an ordinal that are missing. `false`: one is still going, and its name is needed.
async fn make_claims(context: &Context<StatefulSet>, set: &StatefulSet, ordinal: i32) -> Result<bool> {
    let lister = context.lister::<PersistentVolumeClaim>();
    let (of, pod) = (set.metadata.name.as_deref().unwrap_or_default(), identity::pod_name(set, ordinal));
    for mut claim in identity::claims(set, ordinal) {
        if let Some(present) = lister.get(&ObjectKey::of(&claim)) {
            if present.metadata.deletion_timestamp.is_some() {
                return Ok(false);
            }
            continue;
        }
        let name = claim.metadata.name.clone().unwrap_or_default();
        retention::hold(&mut claim, set, None, retention::holder(set, false));
        match context.writer().create(&claim).await {
            Ok(_) => {
                let message = format!("create Claim {name} Pod {pod} in StatefulSet {of} success");
                context.recorder().normal(set, "SuccessfulCreate", message);
            }
            Err(error) if status_code(&error) == Some(409) => {}
            Err(error) => {
                let why = children::why(&error);
                let message =
                    format!("create Claim {name} for Pod {pod} in StatefulSet {of} failed error: {why}");
                context.recorder().warning(set, "FailedCreate", message);
                return Err(error);
            }
        }
    }
    Ok(true)
}

/// Makes each claim go with what the policy says, before anything is deleted.
async fn hold_claims(context: &Context<StatefulSet>, set: &StatefulSet, pods: &[Arc<Pod>]) -> Result<()> {
    if identity::templates(set).is_empty() || set.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let lister = context.lister::<PersistentVolumeClaim>();
    let range = identity::ordinals(set);
    for pod in pods {
        let Some(ordinal) = identity::ordinal(set, pod) else { continue };
        let holder = retention::holder(set, !range.contains(&ordinal));
        for claim in identity::claims(set, ordinal) {
            let key = ObjectKey::of(&claim);
            let Some(present) = lister.get(&key) else { continue };
            let hold = |claim: &mut PersistentVolumeClaim| retention::hold(claim, set, Some(pod), holder);
            context.writer().modify(&key, Some(&*present), hold).await?;
        }
    }
    Ok(())
}

async fn forget_history(
    context: &Context<StatefulSet>,
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    known: &[Arc<ControllerRevision>],
    needed: &[&str],
) -> Result<()> {
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut live: BTreeSet<&str> = pods.iter().map(|pod| identity::revision(pod)).collect();
    live.extend(needed);
    let of = set.metadata.name.as_deref().unwrap_or_default();
    for revision in revisions::obsolete(of, known, &live, limit) {
        context.writer().delete(revision).await?;
    }
    Ok(())
}
