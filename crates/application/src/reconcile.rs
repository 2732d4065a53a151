//! One look at one Application: fetch, validate, plan, build, act, status.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use shoal_runtime::events::Severity;
use shoal_runtime::{Action, Context, ObjectKey, Result, finalizer};

use crate::act::{Act, Children, belongs, labelled};
use crate::api::{APP_LABEL, ApplicationStatus, FINALIZER, REVISION_LABEL, rules};
use crate::controller::Shared;
use crate::elsewhere::AGAIN;
use crate::plan::{self, Choice, Note, Observed, Problem, Rollout};
use crate::{Application, build, clean_up};

/// How many pods of a rollout are looked at.
const PODS: u32 = 20;

/// Reconciles, and counts it.
pub(crate) async fn reconcile(shared: Arc<Shared>, context: Context<Application>) -> Result<Action> {
    if shared.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.is_at_work(context.recorder())) {
        return Ok(Action::after(AGAIN));
    }
    shared.metrics.follow(context.lister::<Application>());
    let begin = tokio::time::Instant::now();
    let result = look_after(&shared, &context).await;
    shared.metrics.reconciled(begin.elapsed(), result.as_ref().err());
    match result {
        // Nothing new comes into a namespace that goes; the deletion of the Application will be told.
        Err(error) if error.is_ordinary() && error.class == shoal_runtime::Class::Permanent => {
            Ok(Action::done())
        }
        result => result,
    }
}

async fn look_after(shared: &Shared, context: &Context<Application>) -> Result<Action> {
    let Some(app) = context.object() else {
        shared.forget(context.key());
        shared.written.forget(context.key());
        shared.gone(context.key());
        return Ok(Action::done());
    };
    // A decision from a status that is not the last one could undo what was decided since. The event is on its way.
    if !shared.written.is_seen(&*app) {
        return Ok(Action::done());
    }
    if app.metadata.deletion_timestamp.is_some() {
        return clean_up::clean_up(shared, context, &app).await;
    }
    let app = finalizer::ensure(context.writer(), &*app, FINALIZER).await?;
    if app.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    if let Some(problem) = validate(&app) {
        let children = as_they_are(context, &app);
        let status = status_of(shared, &app, &unchanged(&children), &children, Some(problem));
        return conclude(shared, context, &app, status, Vec::new(), None).await;
    }
    if app.spec.paused {
        let children = as_they_are(context, &app);
        let status = status_of(shared, &app, &unchanged(&children), &children, None);
        return conclude(shared, context, &app, status, Vec::new(), None).await;
    }
    work(shared, context, &app).await
}

async fn work(shared: &Shared, context: &Context<Application>, app: &Application) -> Result<Action> {
    let wanted = build::template(app);
    let live = context.lister::<Deployment>().get(context.key()).filter(|live| belongs(app, &live.metadata));
    let state = plan::rollout(live.as_deref(), &wanted.1);
    let trouble = match &state {
        Rollout::UnderWay { .. } if shared.is_due(context.key(), &wanted.1) => {
            ask_pods(shared, context, app, &wanted.1).await?
        }
        Rollout::Overdue(_) => ask_pods(shared, context, app, &wanted.1).await?,
        Rollout::UnderWay { .. } => None,
        Rollout::Ahead | Rollout::Complete => {
            shared.forget(context.key());
            None
        }
    };
    let last_good = last_good(context, app);
    let template = last_good.as_ref().map(|(template, _)| template.clone());
    let choice = plan::choose(app, wanted, &state, trouble, last_good);
    if choice.is_new {
        // Written down before anything is undone: who comes after a crash must know what was decided.
        let children = as_they_are(context, app);
        let status = status_of(shared, app, &choice, &children, None);
        shared.metrics.rollout(choice.is_rolled_back());
        conclude(shared, context, app, status, Vec::new(), None).await?;
        return Ok(Action::done());
    }
    let mut act = Act::new(context, app, shared);
    let children = act.run(&choice, template.as_ref()).await?;
    let mut observed = observe(shared, app, &choice, &children, act.problem());
    observed.children = std::mem::take(&mut act.children);
    observed.children.sort();
    let status = plan::assess(&observed);
    let before = app.status.as_ref().and_then(|status| status.last_good_revision.as_ref());
    if status.last_good_revision.as_ref() != before && status.last_good_revision.is_some() {
        act.keep(&choice.applied, &choice.template).await?;
        shared.metrics.rolled_out();
    }
    let under_way = plan::is_under_way(&status).then_some(shared.settings.look_at_pods);
    let again = [under_way, act.again].into_iter().flatten().min();
    let notes = std::mem::take(&mut act.notes);
    conclude(shared, context, app, status, notes, again).await
}

/// Whether the specification can be worked with at all.
fn validate(app: &Application) -> Option<Problem> {
    if let Some(error) = &app.malformed {
        let message =
            format!("the stored specification cannot be read: {error}; correct it with kubectl edit");
        return Some(Problem::new("InvalidSpec", message));
    }
    let broken = rules::broken(&app.spec);
    (!broken.is_empty()).then(|| Problem::new("InvalidSpec", broken.join("; ")))
}

/// The last template that worked, as far as it is kept.
fn last_good(context: &Context<Application>, app: &Application) -> Option<(PodTemplateSpec, String)> {
    let revision = app.status.as_ref()?.last_good_revision.clone()?;
    let key = ObjectKey::new(&context.key().namespace, &build::revision_name(app, &revision));
    let kept = context.lister::<ControllerRevision>().get(&key)?;
    if !belongs(app, &kept.metadata) {
        return None;
    }
    let template: PodTemplateSpec = serde_json::from_value(kept.data.clone()?.0).ok()?;
    (build::revision_of(&template) == Some(revision.as_str())).then_some((template, revision))
}

/// What the pods of the new template say.
async fn ask_pods(
    shared: &Shared,
    context: &Context<Application>,
    app: &Application,
    revision: &str,
) -> Result<Option<Problem>> {
    let pods: Api<Pod> = Api::namespaced(context.client().clone(), &context.key().namespace);
    let labels = format!("{APP_LABEL}={},{REVISION_LABEL}={revision}", context.key().name);
    let pods = pods.list(&ListParams::default().labels(&labels).limit(PODS)).await?;
    Ok(plan::trouble(&pods.items, app.spec.rollback.crash_loop_restarts, now(shared)))
}

/// The children, without doing anything.
fn as_they_are(context: &Context<Application>, app: &Application) -> Children {
    let key = context.key();
    let ours = |meta: &ObjectMeta| belongs(app, meta);
    Children {
        deployment: context.lister::<Deployment>().get(key).filter(|live| ours(&live.metadata)),
        service: context.lister::<Service>().get(key).filter(|live| ours(&live.metadata)),
        autoscaler: context.lister::<HorizontalPodAutoscaler>().get(key).filter(|live| ours(&live.metadata)),
        claims: labelled::<PersistentVolumeClaim>(context, app),
    }
}

/// The choice of one who does nothing: what is there stays.
fn unchanged(children: &Children) -> Choice {
    let template = children.deployment.as_ref().and_then(|live| Some(live.spec.as_ref()?.template.clone()));
    let template = template.unwrap_or_default();
    let revision = build::revision_of(&template).unwrap_or_default().to_owned();
    Choice { wanted: revision.clone(), applied: revision, template, failure: None, is_new: false }
}

/// The status of an Application whose children are as they are.
pub(crate) fn status_of_unchanged(
    shared: &Shared,
    context: &Context<Application>,
    app: &Application,
) -> ApplicationStatus {
    let children = as_they_are(context, app);
    status_of(shared, app, &unchanged(&children), &children, None)
}

fn status_of(
    shared: &Shared,
    app: &Application,
    choice: &Choice,
    children: &Children,
    problem: Option<Problem>,
) -> ApplicationStatus {
    let mut observed = observe(shared, app, choice, children, problem);
    observed.children = app.status.as_ref().map(|status| status.children.clone()).unwrap_or_default();
    plan::assess(&observed)
}

fn observe<'a>(
    shared: &Shared,
    app: &'a Application,
    choice: &'a Choice,
    children: &'a Children,
    problem: Option<Problem>,
) -> Observed<'a> {
    Observed {
        app,
        problem,
        choice,
        deployment: children.deployment.as_deref(),
        autoscaler: children.autoscaler.as_deref(),
        service: children.service.as_deref(),
        claims: &children.claims,
        children: Vec::new(),
        now: now(shared),
    }
}

fn now(shared: &Shared) -> Timestamp {
    Timestamp::from_microsecond(shared.clock.now().0).unwrap_or_default()
}

/// Writes the status and tells what has changed.
pub(crate) async fn conclude(
    shared: &Shared,
    context: &Context<Application>,
    app: &Application,
    status: ApplicationStatus,
    mut notes: Vec<Note>,
    again: Option<Duration>,
) -> Result<Action> {
    let before = app.status.as_ref();
    if before != Some(&status) {
        let told = plan::notes(before, &status);
        let valid = shared.written.status(context, app, |now| now.status = Some(status.clone())).await?;
        // Else the Application has changed since it was read, and the event of that will bring us back.
        if valid {
            shared.metrics.noted(&told);
            notes.extend(told);
        }
    }
    tell(context, app, notes);
    Ok(again.map_or(Action::AwaitChange, Action::after))
}

fn tell(context: &Context<Application>, app: &Application, notes: Vec<Note>) {
    for note in notes {
        match note.severity {
            Severity::Normal => context.recorder().normal(app, note.reason, note.message),
            Severity::Warning => context.recorder().warning(app, note.reason, note.message),
        }
    }
}
